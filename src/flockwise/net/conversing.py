"""Drives an agent that releases once and then talks with its neighbors in rounds, by relays alone.

Until it has released it is a node like any other: who is up, what they know of its releases, and that nothing
is spent for nobody. Then the conversation begins. A round is done when it is held from everyone who is waited
for (flockwise.net.hearing). What was lost is made up for: while an agent waits it sends its last two relays
again, about once a second, to the neighbors that it misses, and who is asked so answers with its own.

What holds, whatever happens to machine and network:
- What was heard in a round is in the journal before the next relay leaves: an agent that starts again says
  the same bytes.
- Relays are made of releases, relays and public values. Nothing that a neighbor says in them makes the agent
  release anything more.
- What it says is what honest neighbors take, or it takes no further part.
- What comes of it is finite, or the agent learns alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from flockwise.agent import Message
from flockwise.errors import NetworkError
from flockwise.net.hearing import Hearing
from flockwise.net.intake import NeighborKey, relay_fault
from flockwise.net.journal import Ended, Journal
from flockwise.net.node import Node
from flockwise.net.outbox import Signer
from flockwise.net.time import SECOND
from flockwise.net.wire import REPEATED, Repeat, is_repeat, say_again
from flockwise.privacy.messages import Relay
from flockwise.protocol.conversation import Conversation, Direction, Heard, Talk

# Who is missed, or asks, is told again what was said last, at most this often.
REPEATING_GAP: Final = 1 * SECOND
# No conversation has more rounds: neighbors who lie could make it go on for ever, and fill the disk.
MOST_ROUNDS: Final = 1 << 15
# Nor is more heard in it, in bytes: all of it is in the journal.
MOST_BYTES: Final = 1 << 30

# The agent's conversation, from its edges; called once it has released.
Begin: TypeAlias = Callable[[Mapping[int, float]], Conversation[Direction | None]]


@dataclass(frozen=True)
class ConversationParts:
    """What an agent needs to take part. number: the agent's own. timeout: of a round, in nanoseconds."""

    number: int
    begin: Begin
    signer: Signer
    journal: Journal
    timeout: int


class ConversingNode(Node):
    """One agent on a network of conversations."""

    def __init__(
        self, *parts: Any, conversation: ConversationParts, neighbors: Mapping[str, NeighborKey]
    ) -> None:
        """parts: those of `Node`."""
        super().__init__(*parts)
        self._rounds = 0
        self._bytes = 0
        self._conversation = conversation
        self._keys = dict(neighbors)
        self._hearing = Hearing(conversation.timeout)
        self._hearing.listen_to(key.index for key in neighbors.values())
        self._talk: Talk[Direction | None] | None = None
        self._ended: Ended | None = None
        self._last: list[bytes] = []
        self._size = 0
        self._since = 0
        self._repeat_at: int | None = None
        self._repeated_at: dict[str, int] = {}

    @property
    def rounds(self) -> int:
        return self._rounds

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    @property
    def direction(self) -> Direction | None:
        """What came of the conversation; None before the end, and for an agent that learns alone."""
        return None if self._ended is None else self._ended.direction

    def start(self, now: int) -> int | None:
        super().start(now)
        record = self._conversation.journal.load()
        if record.ended is not None:
            self._ended = record.ended
            self._rounds, self._last = record.ended.rounds, record.ended.relays
            self.intake.end_relays()
        elif record.edges is not None and self.obstacle is None:
            self._take_up(record.edges, now)
        else:
            self._begin_if_ready(now)
        return self.next_wake()

    def tick(self, now: int) -> int | None:
        super().tick(now)
        self._begin_if_ready(now)
        if self._repeat_at is not None and self._repeat_at <= now:
            self._wait(now)
        return self.next_wake()

    def on_greeting(self, sender: str, data: bytes) -> None:
        if not is_repeat(data):
            super().on_greeting(sender, data)
            return
        repeat = self.intake.repeat(sender, data)
        if repeat is None:
            return
        now = self._time.now()
        for relay in repeat.relays:
            self._hearing.keep(relay, self._talk, now)
        self._hearing.note(repeat, now)
        self._go_on(now)
        if repeat.waits:
            self._say_again(sender, now)

    def on_presence(self, neighbor: str, is_up: bool) -> None:
        super().on_presence(neighbor, is_up)
        if not is_up or neighbor not in self._keys:
            return
        now = self._time.now()
        self._hearing.sign_of_life(self._keys[neighbor].index, now)
        if self._talk is not None or self.is_over:
            self._say_again(neighbor, now)

    def set_neighbors(self, neighbors: Mapping[str, NeighborKey], version: int) -> None:
        """Who comes after the conversation has begun has no part in it, and who leaves is not heard again."""
        super().set_neighbors(neighbors, version)
        self._keys = dict(neighbors)
        if self._talk is None:
            self._hearing.listen_to(key.index for key in neighbors.values())
        else:
            self._hearing.lose_all_but(self._numbers())
            self._go_on(self._time.now())

    def next_wake(self) -> int | None:
        times = (super().next_wake(), self._repeat_at)
        return min((time for time in times if time is not None), default=None)

    def _take(self, sender: str, message: Message | Relay) -> None:
        if not isinstance(message, Relay):
            super()._take(sender, message)
            return
        now = self._time.now()
        self._hearing.keep(message, self._talk, now)
        self._go_on(now)

    def _may_release(self, now: int) -> bool:
        """Nor when it is too late: a release that nobody talks about any more is spent for nobody."""
        present = (self._keys[name].index for name, contact in self._contacts.items() if contact.has_greeted)
        return super()._may_release(now) and not all(map(self._hearing.has_ended, present))

    def _greet(self, name: str, contact: Any, now: int, *, is_answer: bool = False) -> None:
        """That it is over is said first: the neighbor may release as soon as it is greeted."""
        if self.is_over:
            self._repeated_at.pop(name, None)
            self._say_again(name, now)
        super()._greet(name, contact, now, is_answer=is_answer)

    def _begin_if_ready(self, now: int) -> None:
        """As soon as the agent has released, or if it has nothing to release."""
        is_begun = self._talk is not None or self.is_over
        if is_begun or self.obstacle is not None or self.agent.next_tick is not None or not self._keys:
            return
        edges = {key.index: key.weight for key in self._keys.values()}
        try:
            self._conversation.journal.begin(edges)
        except NetworkError:
            self._stop("store")
            return
        talk = self._talk = self._new_talk(edges)
        first = talk.start()
        if first is None:
            self._end(talk.outcome)
            return
        self._say(first, now)
        self._go_on(now)

    def _take_up(self, edges: Mapping[int, float], now: int) -> None:
        """Go through all that was heard before; what was said last can be said again."""
        self._hearing.listen_to(edges)
        talk = self._talk = self._new_talk(edges)
        relay = talk.start()
        said = [] if relay is None else [relay]
        for heard in self._conversation.journal.rounds():
            relay = self._turned(talk, heard)
            if relay is not None:
                said = [*said, relay][-REPEATED:]
        self._last = [self._conversation.signer.relay(relay) for relay in said]
        self._hearing.lose_all_but(self._numbers())
        if relay is None or self._is_pointless():
            self._end(talk.outcome)
        else:
            self._expect(relay, now)
            self._go_on(now)

    def _numbers(self) -> set[int]:
        """Of the neighbors, as the roster has them now."""
        return {key.index for key in self._keys.values()}

    def _new_talk(self, edges: Mapping[int, float]) -> Talk[Direction | None]:
        return Talk(self._conversation.number, self._conversation.begin(edges))

    def _go_on(self, now: int) -> None:
        """Do all rounds that nobody has to be waited for."""
        talk = self._talk
        while talk is not None and talk.waiting is not None and self.obstacle is None:
            if self._hearing.missing(talk):
                return
            heard, refused = self._hearing.take(talk.waiting, self._size)
            if refused:
                self.intake.dropped["wrong_dimension"] += refused
            try:
                self._conversation.journal.add(heard)
            except NetworkError:
                self._stop("store")
                return
            relay = self._turned(talk, heard)
            if relay is None or self._is_pointless():
                self._end(talk.outcome)
                return
            self._say(relay, now)

    def _is_pointless(self) -> bool:
        """Nobody is left to talk with, or there is no end of it."""
        is_endless = self._rounds >= MOST_ROUNDS or self._bytes >= MOST_BYTES
        return is_endless or self._hearing.is_deserted

    def _turned(self, talk: Talk[Direction | None], heard: Heard) -> Relay | None:
        """The next relay; None at the end, which absurd numbers bring about too."""
        self._rounds += 1
        self._bytes += sum(vector.nbytes for vector in heard.values())
        self._hearing.count(heard)
        try:
            with np.errstate(all="ignore"):
                relay = talk.turn(heard)
        except Exception:  # neighbors may have said anything; the agent is then left to itself
            return None
        return relay if relay is not None and _is_acceptable(relay) else None

    def _end(self, direction: Direction | None) -> None:
        """Keep what came of it, if it can be used."""
        self._talk, self._repeat_at = None, None
        sane = direction if direction is not None and _is_sane(direction) else None
        self._ended = Ended(sane, self._last, self._rounds)
        self.intake.end_relays()
        try:
            self._conversation.journal.end(self._ended)
        except NetworkError:  # the rounds are still there, and lead to the same end
            self._stop("store")

    def _say(self, relay: Relay, now: int) -> None:
        data = self._conversation.signer.relay(relay)
        self._last = [*self._last, data][-REPEATED:]
        self._expect(relay, now)
        self._transport.publish(self.name, data)

    def _expect(self, relay: Relay, now: int) -> None:
        """Wait for what neighbors have to say in the round of the agent's own relay."""
        self._size, self._since, self._repeat_at = len(relay.vector), now, now + REPEATING_GAP

    def _wait(self, now: int) -> None:
        """Ask those who are missed, and give up those who were waited for too long."""
        talk = self._talk
        if talk is None or talk.waiting is None or self.obstacle is not None:
            self._repeat_at = None
            return
        self._repeat_at = now + REPEATING_GAP
        missing = set(self._hearing.missing(talk))
        for name, key in self._keys.items():
            if key.index in missing and self._contacts[name].up_since is not None:
                self._say_again(name, now)
        self._hearing.give_up(talk, self._since, now)
        self._go_on(now)

    def _say_again(self, neighbor: str, now: int) -> None:
        """What was said last, and whether something of the neighbor's is missing; not too often."""
        if self.obstacle is not None or self._repeated_at.get(neighbor, -REPEATING_GAP) + REPEATING_GAP > now:
            return
        self._repeated_at[neighbor] = now
        waits = self._talk is not None and self._keys[neighbor].index in self._hearing.missing(self._talk)
        self._transport.send(self.name, neighbor, say_again(Repeat(waits, self.is_over, self._last)))


def _is_acceptable(relay: Relay) -> bool:
    """Whether honest neighbors take it: who says what they refuse makes them wait in vain."""
    return relay_fault(relay.stage, float(np.abs(relay.vector).max(initial=0.0))) is None


def _is_sane(direction: Direction) -> bool:
    is_finite = np.isfinite(direction.vector).all() and np.isfinite(np.linalg.norm(direction.vector))
    return bool(is_finite and 0 <= direction.quality <= 1)
