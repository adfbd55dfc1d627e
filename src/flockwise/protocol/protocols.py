"""What real agents talk about after one release, by name: a roster carries the name and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flockwise.checks import Positive, check_fields
from flockwise.errors import NetworkError
from flockwise.protocol import lowpass, propagation
from flockwise.protocol.conversation import Conversation, Direction, Public
from flockwise.registry import Registry

PROTOCOLS: Registry[type[Any]] = Registry("protocol", NetworkError)


@PROTOCOLS.register
@dataclass(frozen=True)
class PropagationProtocol:
    """Propagation of the releases, with this μ."""

    tradeoff: Positive
    name: ClassVar[str] = "propagation"

    def __post_init__(self) -> None:
        check_fields(self, NetworkError)

    def largest_relay(self, dimension: int) -> int:
        """How many coordinates a relay has at most."""
        return propagation.largest_relay(dimension)

    def converse(
        self, number: int, public: Public, weights: Mapping[int, float]
    ) -> Conversation[Direction | None]:
        """One agent's side. number: its own. weights: of its edges, by the numbers of its neighbors."""
        return propagation.find_direction(number, public, weights, self.tradeoff)


@PROTOCOLS.register
@dataclass(frozen=True)
class LowPassProtocol:
    """A graph filter over as many hops as the releases show to be worth it."""

    name: ClassVar[str] = "lowpass"

    def largest_relay(self, dimension: int) -> int:
        return lowpass.largest_relay(dimension)

    def converse(
        self, number: int, public: Public, weights: Mapping[int, float]
    ) -> Conversation[Direction | None]:
        return lowpass.find_direction(number, public, weights)
