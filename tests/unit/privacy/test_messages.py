"""A release has one maker and one form in bytes."""

import copy
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import flockwise.privacy
from flockwise.errors import PrivacyError
from flockwise.privacy.messages import SEAL, Relay, Release, Seal, decode, encode

VECTOR = np.array([1.5, -0.0, 5e-324, -1e300])


def test_nobody_makes_a_release_by_accident():
    payload = encode(1, VECTOR)
    with pytest.raises(PrivacyError, match="by the gate alone"):
        Release(1, VECTOR, payload)
    with pytest.raises(PrivacyError, match="by the gate alone"):
        Release(1, VECTOR, payload, Seal())
    genuine = Release(1, VECTOR, payload, SEAL)
    with pytest.raises(PrivacyError, match="by the gate alone"):
        dataclasses.replace(genuine, number=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        genuine.number = 2  # type: ignore[misc]
    assert copy.copy(genuine).payload == payload


def test_the_seal_is_used_in_the_gate_and_nowhere_else():
    """What Python cannot forbid is looked for in the source."""
    package = Path(flockwise.privacy.__file__).parents[1]
    users = {file.name for file in package.rglob("*.py") if re.search(r"\bSEAL\b", file.read_text("utf-8"))}
    assert users == {"messages.py", "gate.py"}


def test_anyone_makes_a_relay():
    relay = Relay(sender=3, stage="smoothing", round=2, vector=VECTOR)
    assert (relay.sender, relay.stage, relay.round) == (3, "smoothing", 2)


def test_bytes_hold_number_and_vector_exactly():
    payload = encode(2**40 + 7, VECTOR)
    number, vector = decode(payload)
    assert number == 2**40 + 7
    assert vector.tobytes() == VECTOR.tobytes()
    assert not vector.flags.writeable
    assert encode(number, vector) == payload


def test_bytes_are_the_same_on_every_machine():
    assert encode(258, np.array([1.0])) == (
        b"FLKW"
        + bytes([2, 1, 0, 0, 0, 0, 0, 0])
        + bytes([1, 0, 0, 0])
        + bytes([0, 0, 0, 0, 0, 0, 0xF0, 0x3F])
    )


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"FLKW", "at least 16 bytes"),
        (b"XXXX" + encode(1, VECTOR)[4:], "begins with"),
        (encode(1, VECTOR)[:-1], "has 48 bytes, got 47"),
        (encode(1, VECTOR) + b"\0", "has 48 bytes, got 49"),
    ],
)
def test_damaged_bytes_are_refused(payload, complaint):
    with pytest.raises(PrivacyError, match=complaint):
        decode(payload)
