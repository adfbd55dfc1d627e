"""The role of an agent that releases once and then talks with its neighbors in rounds, by relays alone.

Once its node has made the release, the conversation begins. A round is done when the relays of all neighbors
that have to be waited for are there. While an agent waits it sends its last two relays again, about once a
second, to the neighbors that it misses, and a neighbor that is asked so answers with its own.

Keep waiting for a live neighbor: dropping a slow one would make others drop this agent, and so on. A neighbor
is not waited for if
- it showed no sign of life for the time-out, or for ten times as long if it has not said anything yet: it may
  be about to start;
- it is past the round: it said last neither the relay that is missing nor anything that this agent has said
  itself, or it has nothing more to say;
- it holds everyone up for about ten time-outs, alive or not; for half as long after each round that it has
  held up for one time-out, and never for less than one.

A neighbor that misses two rounds in a row is dropped for the rest of the conversation: no more than two are
sent again, so neither can make up for what it has not heard of the other. Both find that out by themselves. A
neighbor that leaves the network is dropped at once, and one that misses eight rounds in all, too.

What holds, whatever happens to machine and network:
- What was heard in a round is in the journal before the next relay leaves: an agent that starts again says
  the same bytes.
- Relays are made of releases, relays and public values. Nothing that a neighbor says in them makes the agent
  release anything more.
- An agent says nothing that honest neighbors would refuse; if it had to, it takes no further part.
- The result is finite, or the agent learns alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, final

import numpy as np

from flockwise.errors import NetworkError
from flockwise.net.intake import relay_fault
from flockwise.net.journal import Ended, Journal
from flockwise.net.node import Node
from flockwise.net.outbox import Signer
from flockwise.net.time import SECOND
from flockwise.net.wire import REPEATED, Repeat, is_repeat, say_again
from flockwise.privacy.messages import Relay
from flockwise.protocol.conversation import Direction, Heard, Tag, Talk, Vector

# The least time between two repetitions to one neighbor.
REPEATING_GAP: Final = 1 * SECOND
# No conversation has more rounds: neighbors that lie could make it go on for ever, and fill the disk.
MOST_ROUNDS: Final = 1 << 15
# Nor is more heard in it, in bytes: all of it is in the journal.
MOST_BYTES: Final = 1 << 30
# Relays of one neighbor that are kept: no neighbor that keeps to the rounds is further ahead.
AHEAD: Final = 8
# Time-outs for a neighbor that was never heard, and for one that lives and does not go on. They are half as
# many after each round that it held up for longer than one.
LONG: Final = 10
# Where one agent is held up, its neighbors are a round ahead of it, their neighbors two, and so on. Patience
# grows with the number of the round, so nobody gives up an agent that only waits itself.
SLACK: Final = 2 * SECOND
SLACK_STEPS: Final = 64
# A neighbor that misses so many rounds in all is dropped, even if it never misses two in a row.
MOST_MISSED: Final = 8

Begin: TypeAlias = Callable[[Mapping[int, float]], Talk[Direction | None]]


@dataclass
class _NeighborState:
    """One neighbor in the conversation."""

    kept: dict[Tag, Vector] = field(default_factory=dict)
    said_last: list[Tag] = field(default_factory=list)
    is_over: bool = False
    was_heard: bool = False
    is_given_up: bool = False
    has_left: bool = False
    missed: int = 0  # rounds in a row
    missed_in_all: int = 0
    held_up: int = 0  # rounds that took longer than a time-out because of it
    last_sign: int = 0

    @property
    def is_lost(self) -> bool:
        return self.has_left or self.missed >= REPEATED or self.missed_in_all >= MOST_MISSED

    def miss(self) -> None:
        self.missed += 1
        self.missed_in_all += 1

    def keep(self, relay: Relay, talk: Talk[Any] | None, now: int) -> None:
        """A relay of the present round or of a later one; one that comes too late is left aside."""
        tag = relay.stage, relay.round
        self.was_heard, self.last_sign = True, now
        if self.is_lost or (talk is not None and tag != talk.waiting and talk.has_said(tag)):
            return
        self.is_given_up = False
        self.kept[tag] = relay.vector
        if len(self.kept) > AHEAD:
            del self.kept[next(iter(self.kept))]

    def is_missing(self, talk: Talk[Any]) -> bool:
        """Whether it has to be waited for in the present round."""
        tag = talk.waiting
        if tag in self.kept or self.is_lost or self.is_given_up or self.is_over or tag in self.said_last:
            return False
        return not self.said_last or talk.has_said(self.said_last[-1])

    def is_late(self, since: int, timeout: int, now: int, slack: int) -> bool:
        """Whether it was waited for too long in a round that began at `since`."""
        most = max(timeout, LONG * timeout >> self.held_up) + slack
        patience = timeout if self.was_heard else most
        return now - max(since, self.last_sign) >= patience or now - since >= most


@final
class Conversing:
    """The part of one agent in the conversation.

    begin: the conversation of an agent with these edges; called once it has released.
    timeout: of a round, in nanoseconds.
    """

    def __init__(self, begin: Begin, signer: Signer, journal: Journal, timeout: int, node: Node) -> None:
        self.rounds = 0
        self.wake_at: int | None = None  # to say it again
        self._begin = begin
        self._signer = signer
        self._journal = journal
        self._timeout = timeout
        self._node = node
        self._bytes = 0
        self._states: dict[int, _NeighborState] = {}
        self._listen_to(self._numbers())
        self._talk: Talk[Direction | None] | None = None
        self._ended: Ended | None = None
        self._last: list[bytes] = []
        self._size = 0
        self._since = 0
        self._holding_up: set[int] = set()  # neighbors, in the present round
        self._repeated_at: dict[str, int] = {}

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    @property
    def direction(self) -> Direction | None:
        """The result of the conversation; None before the end, and for an agent that learns alone."""
        return None if self._ended is None else self._ended.direction

    def awaited(self, now: int) -> list[str]:
        """Until it has released, those that its node waits for; then those that the present round needs."""
        if self._node.agent.next_tick is not None:
            return self._node.awaited(now)
        talk = self._talk
        if talk is None or talk.waiting is None:
            return []
        missing = {number for number, state in self._states.items() if state.is_missing(talk)}
        return [name for name, key in self._node.intake.neighbors.items() if key.index in missing]

    def start(self, now: int) -> None:
        record = self._journal.load()
        if record.ended is not None:
            self._ended = record.ended
            self.rounds = record.ended.rounds
            self._last = [self._signer.again(relay) for relay in record.ended.relays]
            self._node.intake.end_relays()
        elif record.edges is not None and self._node.obstacle is None:
            self._take_up(record.edges, now)
        else:
            self._begin_if_ready(now)

    def tick(self, now: int) -> None:
        self._begin_if_ready(now)
        if self.wake_at is not None and self.wake_at <= now:
            self._wait(now)

    def may_release(self, now: int) -> bool:
        """Not once all connected neighbors have finished the conversation."""
        states = map(self._state_of, self._node.greeted_by)
        return any(state is not None and not state.is_over for state in states)

    def takes(self, sender: str, data: bytes, now: int) -> bool:
        """Repeats."""
        if not is_repeat(data):
            return False
        repeat = self._node.intake.repeat(sender, data)
        if repeat is None:
            return True
        state = self._states.get(repeat.sender)
        if state is not None:
            for relay in repeat.relays:
                state.keep(relay, self._talk, now)
            state.said_last, state.is_over, state.last_sign = repeat.tags, repeat.is_over, now
        self._go_on(now)
        if repeat.waits:
            self._say_again(sender, now)
        return True

    def on_relay(self, relay: Relay, now: int) -> None:
        if relay.sender in self._states:
            self._states[relay.sender].keep(relay, self._talk, now)
        self._go_on(now)

    def before_greeting(self, neighbor: str, now: int) -> None:
        """First say that it is over: the neighbor may release as soon as it is greeted."""
        if self.is_over:
            self._repeated_at.pop(neighbor, None)
            self._say_again(neighbor, now)

    def on_arrival(self, neighbor: str, now: int) -> None:
        state = self._state_of(neighbor)
        if state is not None:
            state.last_sign = now
        if self._talk is not None or self.is_over:
            self._say_again(neighbor, now)

    def on_roster(self, now: int) -> None:
        """Once the conversation has begun nobody can join it. A neighbor that leaves is not heard again."""
        if self._talk is None:
            self._listen_to(self._numbers())
        else:
            self._lose_all_but(self._numbers())
            self._go_on(now)

    def _begin_if_ready(self, now: int) -> None:
        """As soon as the agent has released, or if it has nothing to release."""
        is_begun, has_released = self._talk is not None or self.is_over, self._node.agent.next_tick is None
        edges = {key.index: key.weight for key in self._node.intake.neighbors.values()}
        if is_begun or not has_released or not edges or self._node.obstacle is not None:
            return
        try:
            self._journal.begin(edges)
        except NetworkError:
            self._node.fall_silent("store")
            return
        talk = self._talk = self._begin(edges)
        first = talk.start()
        if first is None:
            self._end(talk.outcome)
        else:
            self._say(first, now)
            self._go_on(now)

    def _take_up(self, edges: Mapping[int, float], now: int) -> None:
        """Go through all that was heard before, to the last relays, which can be sent again."""
        self._listen_to(edges)
        talk = self._talk = self._begin(edges)
        relay = talk.start()
        said = [] if relay is None else [relay]
        for heard in self._journal.rounds():
            relay = self._turned(talk, heard)
            if relay is not None:
                said = [*said, relay][-REPEATED:]
        self._last = [self._signer.relay(relay) for relay in said]
        self._lose_all_but(self._numbers())
        if relay is None or self._is_pointless():
            self._end(talk.outcome)
        else:
            self._expect(relay, now)
            self._go_on(now)

    def _numbers(self) -> set[int]:
        """Of the neighbors, as the roster has them now."""
        return {key.index for key in self._node.intake.neighbors.values()}

    def _state_of(self, neighbor: str) -> _NeighborState | None:
        """None if it has no part in the conversation."""
        return self._states.get(self._node.intake.neighbors[neighbor].index)

    def _listen_to(self, neighbors: Iterable[int]) -> None:
        self._states = {number: self._states.get(number, _NeighborState()) for number in neighbors}

    def _lose_all_but(self, neighbors: Collection[int]) -> None:
        """A neighbor that has left is neither waited for nor heard again, even if it comes back."""
        for number, state in self._states.items():
            state.has_left = state.has_left or number not in neighbors

    def _go_on(self, now: int) -> None:
        """Do all rounds that nobody has to be waited for."""
        talk = self._talk
        while talk is not None and talk.waiting is not None and self._node.obstacle is None:
            if any(state.is_missing(talk) for state in self._states.values()):
                return
            heard = self._heard(talk.waiting)
            try:
                self._journal.add(heard)
            except NetworkError:
                self._node.fall_silent("store")
                return
            relay = self._turned(talk, heard)
            if relay is None or self._is_pointless():
                self._end(talk.outcome)
                return
            self._say(relay, now)

    def _heard(self, tag: Tag) -> Heard:
        """What neighbors said in this round. Relays of another size than the agent's own are dropped."""
        speaking = {number: state for number, state in self._states.items() if not state.is_lost}
        said = {number: state.kept.pop(tag) for number, state in speaking.items() if tag in state.kept}
        heard = {number: vector for number, vector in said.items() if len(vector) == self._size}
        if len(heard) < len(said):
            self._node.intake.dropped["wrong_dimension"] += len(said) - len(heard)
        return heard

    def _is_pointless(self) -> bool:
        """Nobody is left to talk with, or there is no end of it."""
        is_endless = self.rounds >= MOST_ROUNDS or self._bytes >= MOST_BYTES
        return is_endless or all(state.is_lost for state in self._states.values())

    def _turned(self, talk: Talk[Direction | None], heard: Heard) -> Relay | None:
        """The next relay; None at the end, which absurd numbers bring about too."""
        self.rounds += 1
        self._bytes += sum(vector.nbytes for vector in heard.values())
        for number, state in self._states.items():
            if not state.is_lost:
                if number in heard:
                    state.missed = 0
                else:
                    state.miss()
        try:
            with np.errstate(all="ignore"):
                relay = talk.turn(heard)
        except Exception:  # neighbors may have said anything; the agent is then left to itself
            return None
        return relay if relay is not None and _is_acceptable(relay) else None

    def _end(self, direction: Direction | None) -> None:
        """Keep the result, if it can be used."""
        self._talk, self.wake_at = None, None
        sane = direction if direction is not None and _is_sane(direction) else None
        self._ended = Ended(sane, self._last, self.rounds)
        self._node.intake.end_relays()
        try:
            self._journal.end(self._ended)
        except NetworkError:  # the rounds are still there, and lead to the same end
            self._node.fall_silent("store")

    def _say(self, relay: Relay, now: int) -> None:
        data = self._signer.relay(relay)
        self._last = [*self._last, data][-REPEATED:]
        self._expect(relay, now)
        self._node.publish(data)

    def _expect(self, relay: Relay, now: int) -> None:
        """Wait for what neighbors have to say in the round of the agent's own relay."""
        self._size, self._since, self.wake_at = len(relay.vector), now, now + REPEATING_GAP
        for number in self._holding_up:
            self._states[number].held_up += 1
        self._holding_up.clear()

    def _wait(self, now: int) -> None:
        """Ask the neighbors that are missing, and give up those that were waited for too long."""
        talk = self._talk
        if talk is None or talk.waiting is None or self._node.obstacle is not None:
            self.wake_at = None
            return
        self.wake_at = now + REPEATING_GAP
        for name in self._node.neighbors_up:
            state = self._state_of(name)
            if state is not None and state.is_missing(talk):
                self._say_again(name, now)
        slack = SLACK * (self.rounds % SLACK_STEPS)
        for number, state in self._states.items():
            if state.is_missing(talk):
                state.is_given_up = state.is_late(self._since, self._timeout, now, slack)
                if now - self._since >= self._timeout:
                    self._holding_up.add(number)
        self._go_on(now)

    def _say_again(self, neighbor: str, now: int) -> None:
        """Send the last relays, and whether one of the neighbor's is missing; not too often."""
        earliest = self._repeated_at.get(neighbor, -REPEATING_GAP) + REPEATING_GAP
        if self._node.obstacle is not None or now < earliest:
            return
        self._repeated_at[neighbor] = now
        talk, state = self._talk, self._state_of(neighbor)
        waits = talk is not None and state is not None and state.is_missing(talk)
        self._node.send(neighbor, say_again(Repeat(waits, self.is_over, self._last)))


def _is_acceptable(relay: Relay) -> bool:
    """Whether honest neighbors take it. If they refused it, they would wait in vain."""
    return relay_fault(relay.stage, float(np.abs(relay.vector).max(initial=0.0))) is None


def _is_sane(direction: Direction) -> bool:
    is_finite = np.isfinite(direction.vector).all() and np.isfinite(np.linalg.norm(direction.vector))
    return bool(is_finite and 0 <= direction.quality <= 1)
