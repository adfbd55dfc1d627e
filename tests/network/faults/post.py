"""A network that does its worst: it delays, reorders, duplicates, drops, corrupts and forges."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flockwise.net.signing import SigningKey
from flockwise.net.time import SECOND
from flockwise.net.wire import ModelBody, PrivacyLabel, sign
from flockwise.privacy.messages import encode
from flockwise.runtime.testing import Packet

NETWORK = "faults"


@dataclass
class Weather:
    """How bad it is: probabilities for one packet, and its mean delay in seconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    delay: float = 0.01

    @classmethod
    def drawn(cls, chance: random.Random) -> Weather:
        return cls(
            drop=chance.choice([0.0, 0.05, 0.2, 0.4]),
            duplicate=chance.choice([0.0, 0.1, 0.3]),
            corrupt=chance.choice([0.0, 0.05, 0.2]),
            delay=chance.choice([0.001, 0.05, 0.5, 2.0]),
        )


def arrivals(packet: Packet, weather: Weather, chance: random.Random) -> list[tuple[int, Packet]]:
    """What arrives of a packet, and after how many nanoseconds each."""
    if chance.random() < weather.drop:
        return []
    copies = 2 if chance.random() < weather.duplicate else 1
    return [(_delay(weather, chance), _as_it_arrives(packet, weather, chance)) for _ in range(copies)]


def _delay(weather: Weather, chance: random.Random) -> int:
    return 1 + round(chance.expovariate(1 / weather.delay) * SECOND)


def _as_it_arrives(packet: Packet, weather: Weather, chance: random.Random) -> Packet:
    if chance.random() >= weather.corrupt:
        return packet
    return Packet(packet.sender, packet.receiver, packet.kind, corrupted(packet.data, chance))


def corrupted(data: bytes, chance: random.Random) -> bytes:
    """One to three bits of it are flipped, or its end is missing."""
    if chance.random() < 0.2:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


@dataclass
class Adversary:
    """Has every message that was ever sent, and can hand any bytes to anyone in anyone's name.

    It cannot sign for others. An agent whose key it has may sign what no honest agent would send
    (`hostile_bodies`): that must not get through either.
    """

    dimension: int
    recorded: list[tuple[str, bytes]]
    own_key: SigningKey
    key_of: Callable[[str], SigningKey]
    label: PrivacyLabel

    def bytes_for(self, sender: str, chance: random.Random) -> bytes:
        """Something that the receiver must not take for a new message of `sender`."""
        kind = chance.choice(["garbage", "replay", "replay", "stolen", "forged", "hostile", "corrupted"])
        if kind == "garbage" or not self.recorded:
            return chance.randbytes(chance.choice([0, 1, 40, 200, 5000]))
        if kind == "forged":
            number, values = chance.randrange(1000), [chance.gauss(0, 1) for _ in range(self.dimension)]
            return sign(self._body(sender, number, np.array(values)), self.own_key)
        if kind == "hostile":
            return sign(self._hostile_body(sender, chance), self.key_of(sender))
        others = [data for name, data in self.recorded if (name == sender) == (kind != "stolen")]
        if not others:
            return b""
        data = chance.choice(others)
        return corrupted(data, chance) if kind == "corrupted" else data

    def _body(self, sender: str, number: int, vector: np.ndarray) -> ModelBody:
        return ModelBody(NETWORK, sender, number, self.label, encode(number, vector))

    def _hostile_body(self, sender: str, chance: random.Random) -> ModelBody:
        number, fine = 10**6 + chance.randrange(1000), np.ones(self.dimension)
        return chance.choice(
            [
                self._body(sender, number, fine * np.nan),
                self._body(sender, number, fine * 1e300),
                self._body(sender, number, np.ones(self.dimension + 1)),
                ModelBody("another", sender, number, self.label, encode(number, fine)),
                ModelBody(
                    NETWORK, sender, number, "dp" if self.label == "none" else "none", encode(number, fine)
                ),
                ModelBody(NETWORK, sender, number, self.label, encode(number + 1, fine)),
            ]
        )
