"""The two kinds of message that leave an agent; there is no third.

A `Release` is computed from private data, so it reveals something about them. Only the gate
(flockwise.privacy.gate) makes one: after clipping, noise and a durable charge. The class cannot be
constructed without the gate's seal; that is a guard against accidents, such as wrapping a fresh
model to send it, and not against a programmer who means harm.

A `Relay` is computed from releases, other relays and public values. Whatever it says was in those
already, so it costs nothing and anyone may make one, provided that the function that does
receives no private data.
"""

from __future__ import annotations

import struct
from dataclasses import InitVar, dataclass
from typing import Final

import numpy as np

from flockwise.arrays import Floats
from flockwise.errors import PrivacyError

MAGIC: Final = b"FLKW"
HEADER: Final = struct.Struct("<4sQI")  # magic, number of the release, number of coordinates
COORDINATE: Final = np.dtype("<f8")


class Seal:
    """What only the gate holds."""


SEAL: Final = Seal()


@dataclass(frozen=True, eq=False)
class Release:
    """A message made of private data: noisy, paid for, and on disk before it leaves.

    `payload` holds the whole message; the same number always has the same payload.
    """

    number: int
    vector: Floats
    payload: bytes
    seal: InitVar[Seal | None] = None

    def __post_init__(self, seal: Seal | None) -> None:
        if seal is not SEAL:
            raise PrivacyError(
                "a Release is made by the gate alone (Gate.release): anything else "
                "would leave the agent without noise and without a charge"
            )


@dataclass(frozen=True, eq=False)
class Relay:
    """A message made of releases, relays and public values alone."""

    sender: int
    stage: str
    round: int
    vector: Floats


def encode(number: int, vector: Floats) -> bytes:
    """The bytes of a release: little-endian, the same on every machine."""
    return HEADER.pack(MAGIC, number, len(vector)) + vector.astype(COORDINATE).tobytes()


def decode(payload: bytes) -> tuple[int, Floats]:
    """Number and vector of a release that was encoded."""
    if len(payload) < HEADER.size:
        raise PrivacyError(f"a release has at least {HEADER.size} bytes, got {len(payload)}")
    magic, number, dimension = HEADER.unpack_from(payload)
    size = HEADER.size + dimension * COORDINATE.itemsize
    if magic != MAGIC:
        raise PrivacyError(f"a release begins with {MAGIC!r}, got {magic!r}")
    if len(payload) != size:
        raise PrivacyError(f"a release of {dimension} coordinates has {size} bytes, got {len(payload)}")
    vector = np.frombuffer(payload, COORDINATE, offset=HEADER.size).astype(np.float64)
    vector.flags.writeable = False
    return number, vector
