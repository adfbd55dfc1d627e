"""Conversations between neighbors: each round an agent sends one vector and gets its neighbors'.

A conversation is a generator. It yields what the agent sends to all its neighbors and is resumed with
what they sent in the same round; it knows nothing of networks, clocks or time-outs, nor of how many
agents there are. `Talk` goes through one round by round; `TalkingAgent` adds an inbox and decides when.
Both do the same whenever they hear the same, so that what was heard is all that has to be kept.
Nothing here can receive a population.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import SimulationError
from flockwise.privacy.messages import Relay

Vector: TypeAlias = NDArray[np.float64]
# A stage of the protocol, and a round of it.
Tag: TypeAlias = tuple[str, int]


class Sending(NamedTuple):
    """One round: what to send, in which stage of the protocol."""

    stage: str
    vector: Vector


# What neighbors sent, by their number; one that was not heard in time is missing.
Heard: TypeAlias = Mapping[int, Vector]
Result = TypeVar("Result")
Conversation: TypeAlias = Generator[Sending, Heard, Result]


@dataclass(frozen=True)
class Public:
    """What an agent tells everyone: its release, s² of one coordinate, and the part of it that is noise.

    signal_power: ‖t‖² of what is released if it is known beforehand; the same for all agents.
    """

    vector: NDArray[np.float64]
    variance: float
    noise_variance: float
    signal_power: float | None


class Direction(NamedTuple):
    """What a conversation about two classes ends with: where an agent's separator is expected to point.

    quality: the correlation that it is expected to have with the truth.
    """

    vector: Vector
    quality: float


class Talk(Generic[Result]):
    """One agent's side of a conversation, round by round; when it is over, there is an outcome.

    waiting: the round whose relays it needs next; None before the start and after the end.
    """

    def __init__(self, number: int, conversation: Conversation[Result]) -> None:
        self.number = number
        self.outcome: Result | None = None
        self.is_over = False
        self.waiting: Tag | None = None
        self._conversation = conversation
        self._rounds: dict[str, int] = {}

    def start(self) -> Relay:
        """The first message."""
        return self._said(next(self._conversation))

    def turn(self, heard: Heard) -> Relay | None:
        """End the round with what was heard in it; what to say next, None at the end."""
        try:
            return self._said(self._conversation.send(heard))
        except StopIteration as end:
            self.waiting, self.outcome, self.is_over = None, end.value, True
            return None

    def has_said(self, tag: Tag) -> bool:
        stage, number = tag
        return number < self._rounds.get(stage, 0)

    def _said(self, sending: Sending) -> Relay:
        """Rounds are counted within a stage, so that no two relays of an agent have the same tag."""
        number = self._rounds.get(sending.stage, 0)
        self._rounds[sending.stage] = number + 1
        self.waiting = (sending.stage, number)
        return Relay(self.number, sending.stage, number, sending.vector)


class TalkingAgent(Generic[Result]):
    """One agent without input or output: it is told what arrives and when it waited too long.

    It does a round when it holds that round from every neighbor, or after a time-out without the
    missing ones. Each method returns the relays to send to all neighbors.
    """

    def __init__(self, number: int, neighbors: Iterable[int], conversation: Conversation[Result]) -> None:
        self.number = number
        self._neighbors = frozenset(neighbors)
        if not self._neighbors:
            raise SimulationError(f"agent {number} has no neighbor; it learns alone")
        self._talk = Talk(number, conversation)
        self._inbox: dict[Tag, dict[int, Vector]] = {}

    @property
    def outcome(self) -> Result | None:
        return self._talk.outcome

    @property
    def is_over(self) -> bool:
        return self._talk.is_over

    def start(self) -> list[Relay]:
        """The first message."""
        return [self._talk.start(), *self._go_on()]

    def on_relay(self, relay: Relay) -> list[Relay]:
        """Keep what arrived, and do the rounds that are now complete; what comes too late is left aside."""
        if relay.sender not in self._neighbors:
            raise SimulationError(f"agent {self.number} got a relay from {relay.sender}, not a neighbor")
        self._inbox.setdefault((relay.stage, relay.round), {})[relay.sender] = relay.vector
        return self._go_on()

    def on_timeout(self) -> list[Relay]:
        """Do the present round with those who were heard."""
        return [*self._round(), *self._go_on()]

    def _go_on(self) -> list[Relay]:
        relays: list[Relay] = []
        while (tag := self._talk.waiting) and len(self._inbox.get(tag, {})) == len(self._neighbors):
            relays += self._round()
        return relays

    def _round(self) -> list[Relay]:
        if self._talk.waiting is None:
            return []
        relay = self._talk.turn(self._inbox.pop(self._talk.waiting, {}))
        if relay is None:
            self._inbox.clear()
        return [] if relay is None else [relay]
