"""What an agent holds of its neighbors in a conversation, and for whom it still waits.

A neighbor that lives is waited for: it may itself be waiting for somebody, and who gave it up would have
everyone give up everyone in turn. Not waited for is

- one that showed no sign of life for the time-out, with ten times that for one that has not said anything
  yet: it may be about to start;
- one that is past the round: what it said last is neither the relay that is missing nor anything that this
  agent has said itself, or it has nothing more to say;
- one that holds everyone up for ten time-outs, alive or not.

One that is missing in as many rounds as are said again is lost for good: by then neither can make up for what
it has not heard of the other, and what it would say later no longer fits into what is averaged. Both find
that out by themselves. One that leaves the network is lost at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from flockwise.net.intake import AcceptedRepeat
from flockwise.net.wire import REPEATED
from flockwise.privacy.messages import Relay
from flockwise.protocol.conversation import Heard, Tag, Talk, Vector

# Relays of one neighbor that are kept: more than any that keeps to the rounds is ahead.
AHEAD: Final = 8
# Time-outs for one that was never heard, and for one that lives and does not go on.
LONG: Final = 10


@dataclass
class _Ear:
    """What is known of one neighbor."""

    kept: dict[Tag, Vector] = field(default_factory=dict)
    said_last: list[Tag] = field(default_factory=list)
    is_over: bool = False
    was_heard: bool = False
    is_given_up: bool = False
    has_left: bool = False
    missed: int = 0  # rounds in a row
    last_sign: int = 0

    @property
    def is_lost(self) -> bool:
        return self.has_left or self.missed >= REPEATED

    def is_past(self, tag: Tag, talk: Talk[Any]) -> bool:
        if self.is_over or tag in self.said_last:
            return True  # what was missing came with that, or never will
        return bool(self.said_last) and not talk.has_said(self.said_last[-1])


class Hearing:
    """The ears of one agent. timeout: in nanoseconds, as all times here."""

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._ears: dict[int, _Ear] = {}

    def listen_to(self, neighbors: Iterable[int]) -> None:
        """To these and to nobody else."""
        self._ears = {number: self._ears.get(number, _Ear()) for number in neighbors}

    def lose_all_but(self, neighbors: Collection[int]) -> None:
        """Who has left is neither waited for nor heard again, though it may come back."""
        for number, ear in self._ears.items():
            ear.has_left = ear.has_left or number not in neighbors

    def sign_of_life(self, sender: int, now: int) -> None:
        if sender in self._ears:
            self._ears[sender].last_sign = now

    def keep(self, relay: Relay, talk: Talk[Any] | None, now: int) -> None:
        """A relay of the present round or of a later one; what comes too late is left aside."""
        ear, tag = self._ears.get(relay.sender), (relay.stage, relay.round)
        if ear is None:
            return
        ear.was_heard, ear.last_sign = True, now
        if ear.is_lost or (talk is not None and tag != talk.waiting and talk.has_said(tag)):
            return
        ear.is_given_up = False
        ear.kept[tag] = relay.vector
        if len(ear.kept) > AHEAD:
            del ear.kept[next(iter(ear.kept))]

    def note(self, repeat: AcceptedRepeat, now: int) -> None:
        """Where a neighbor is, by its own words; its relays have been kept."""
        ear = self._ears.get(repeat.sender)
        if ear is not None:
            ear.said_last, ear.is_over, ear.last_sign = repeat.tags, repeat.is_over, now

    def missing(self, talk: Talk[Any]) -> list[int]:
        """Who has to be waited for in the present round."""
        tag = talk.waiting
        assert tag is not None
        return [
            number
            for number, ear in self._ears.items()
            if not (tag in ear.kept or ear.is_lost or ear.is_given_up or ear.is_past(tag, talk))
        ]

    @property
    def is_deserted(self) -> bool:
        """Whether there is nobody left to hear."""
        return all(ear.is_lost for ear in self._ears.values())

    def give_up(self, talk: Talk[Any], since: int, now: int) -> None:
        """Those who were waited for too long in a round that began at `since`."""
        for number in self.missing(talk):
            ear = self._ears[number]
            patience = self._timeout if ear.was_heard else LONG * self._timeout
            is_silent = now - max(since, ear.last_sign) >= patience
            ear.is_given_up = is_silent or now - since >= LONG * self._timeout

    def has_ended(self, neighbor: int) -> bool:
        """Whether it has said that it has nothing more to say, or has no part in the conversation."""
        return neighbor not in self._ears or self._ears[neighbor].is_over

    def count(self, heard: Heard) -> None:
        """Note who was heard in a round."""
        for number, ear in self._ears.items():
            if not ear.is_lost:
                ear.missed = 0 if number in heard else ear.missed + 1

    def take(self, tag: Tag, size: int) -> tuple[Heard, int]:
        """What neighbors said in this round, and how many of them said something of another size."""
        speaking = {number: ear for number, ear in self._ears.items() if not ear.is_lost}
        said = {number: ear.kept.pop(tag) for number, ear in speaking.items() if tag in ear.kept}
        heard = {number: vector for number, vector in said.items() if len(vector) == size}
        return heard, len(said) - len(heard)
