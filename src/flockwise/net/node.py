"""Drives one agent on a network: when it wakes, what it sends, what it takes in, what it keeps.

A node has no threads and no sockets and reads no clock but the one handed to it: a host calls `tick` at the
times that `tick` asks for, and a transport calls the `on_…` methods. So the same node runs on zenoh and in
a simulation of faults.

What holds, whatever happens to machine and network:
- Bytes are written before they leave, and one number always has the same bytes (flockwise.net.outbox);
  without privacy, where nothing is at stake, a power cut may undo the last of them.
- Only what `Intake` accepts reaches the agent.
- Nothing is spent for nobody, nor on an old copy of a ledger: an agent with a budget releases only while a
  neighbor is up, and after every neighbor that is up has told it which number it last got from the agent.
  One that knows a later number than the agent itself silences it for good.
- A message that was lost is made up for: neighbors show each other their last one whenever they meet, and
  from time to time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from numpy.typing import NDArray

from flockwise.agent import Message
from flockwise.agent.agent import Clock, Neighbor
from flockwise.errors import LedgerError, NetworkError, PrivacyError
from flockwise.net.intake import Intake, NeighborKey
from flockwise.net.outbox import Outbox
from flockwise.net.store import Sent, Store
from flockwise.net.time import SECOND, Time
from flockwise.net.transport import Transport
from flockwise.net.wire import Greeting, greet
from flockwise.privacy.messages import Relay

# A neighbor that is up and does not answer is waited for so long before a release, and any neighbor before
# the very first update.
PATIENCE: Final = 5 * SECOND
# A neighbor is answered at most once in this time. One that did not answer is greeted again after it, and
# then after twice as long each time: answers that are late because of the load must not add to it.
GREETING_GAP: Final = 1 * SECOND
# A neighbor that is up hears from the agent at least this often, for the sake of what was lost.
GREETING_PERIOD: Final = 30 * SECOND
MOMENT: Final = 1 * SECOND
# What was received is written to disk after this time, in one go.
WRITING_GAP: Final = 5 * SECOND

Obstacle: TypeAlias = Literal["behind", "ledger", "store"]


class Learner(Protocol):
    """What a node drives: an `Agent`, or something that behaves like one."""

    name: Any
    model: NDArray[Any]
    updates: int
    next_tick: int | None
    neighbors: dict[Any, Neighbor]

    def on_tick(self, now: int) -> list[Message]: ...

    def prepare(self, now: int) -> None: ...

    def on_message(self, message: Message, now: int) -> None: ...


@dataclass
class _Tie:
    """How things stand with a neighbor."""

    up_since: int | None = None
    has_greeted: bool = False  # since it came up
    greeted_at: int | None = None  # when this agent last greeted it
    unanswered: int = 0  # greetings, since it last greeted


class Node:
    """One agent on a network; `start` it once, then plug it into a transport and `tick` it."""

    def __init__(
        self,
        agent: Learner,
        clock: Clock,
        intake: Intake,
        outbox: Outbox,
        store: Store,
        transport: Transport,
        time: Time,
        *,
        version: int = 0,
    ) -> None:
        """clock: the agent's own. version: of the roster that its neighbors and weights come from."""
        self.agent = agent
        self.intake = intake
        self.obstacle: Obstacle | None = None
        """Why it releases nothing any more, until it is started again; for ever if it is "behind"."""
        self.failed_updates = 0
        self.last_release_time: int | None = None
        self._clock = clock
        self._outbox = outbox
        self._store = store
        self._transport = transport
        self._time = time
        self._version = version
        self._started_at = 0
        self._ties = {name: _Tie() for name in agent.neighbors}
        self._unwritten: set[str] = set()
        self._forgotten: set[str] = set()
        self._write_at: int | None = None
        self._greet_at: int | None = None

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def sent(self) -> Sent:
        """The last message, as it is on disk."""
        return self._outbox.last

    @property
    def releases(self) -> int:
        """How many updates its messages tell of: what a budget is spent on."""
        return self._outbox.updates

    @property
    def rounds(self) -> int | None:
        """How far its conversation has come, where there is one (flockwise.net.conversing)."""
        return None

    @property
    def is_over(self) -> bool | None:
        """Whether that has ended."""
        return None

    @property
    def neighbors_up(self) -> list[str]:
        return [name for name, tie in self._ties.items() if tie.up_since is not None]

    def start(self, now: int) -> int | None:
        """Take up where the last life ended; when to tick first."""
        state = self._store.load()
        self._started_at = now
        self._resume(now)
        if state.newer_release is not None and self._outbox.spends:
            self._stop("behind")
        for sender, data in state.received.items():
            if sender not in self._ties:
                self._forget(sender, now)
            elif (message := self.intake.message(sender, data)) is not None:
                self._learn(message, now)
        return self.next_wake()

    def tick(self, now: int) -> int | None:
        """Do what is due; when to come back, unless something happens before. None: no need to."""
        due = self.agent.next_tick
        if due is not None and due <= now:
            if self._may_release(now):
                # A host that is late by a moment does not slow the clock down; one that sleeps, does.
                self._update(max(due, now - MOMENT))
            else:
                self.agent.next_tick = self._clock.next_tick(self.agent.updates, now)
        if self._greet_at is not None and self._greet_at <= now:
            for name, tie in self._ties.items():
                due = self._greeting_due(tie)
                if due is not None and due <= now:
                    self._greet(name, tie, now)
            self._plan_greetings()
        if self._write_at is not None and self._write_at <= now:
            self._write(now)
        return self.next_wake()

    def stop(self) -> None:
        """Write what was received; the owner of store and ledger closes them."""
        self._write(self._time.now())

    def on_published(self, sender: str, data: bytes) -> None:
        message = self.intake.message(sender, data)
        if message is not None:
            self._take(sender, message)

    def on_greeting(self, sender: str, data: bytes) -> None:
        greeting = self.intake.greeting(sender, data)
        if greeting is None:
            return
        now, tie = self._time.now(), self._ties[sender]
        # One that names another weight has not said what is needed: it is asked again until both agree.
        tie.has_greeted = tie.up_since is not None and greeting.agrees
        tie.unanswered = 0
        if greeting.yours is not None:
            self._compare(Sent(greeting.yours.number, greeting.yours.data), now)
        if greeting.mine is not None:
            self._take(sender, greeting.mine)
        if not greeting.is_answer and (tie.greeted_at is None or tie.greeted_at + GREETING_GAP <= now):
            self._greet(sender, tie, now, is_answer=True)
        self._plan_greetings()

    def on_presence(self, neighbor: str, is_up: bool) -> None:
        tie = self._ties.get(neighbor)
        if tie is None:
            return
        now = self._time.now()
        tie.has_greeted, tie.unanswered = False, 0
        tie.up_since = now if is_up else None
        if is_up:
            self._greet(neighbor, tie, now)
        self._plan_greetings()

    def set_neighbors(self, neighbors: Mapping[str, NeighborKey], version: int) -> None:
        """As in a newer roster: who left is forgotten, who came is greeted when it is up."""
        now = self._time.now()
        self.intake.set_neighbors(neighbors)
        self._version = version
        for name in sorted(self._ties.keys() - neighbors.keys()):
            del self._ties[name], self.agent.neighbors[name]
            self._forget(name, now)
        for name, key in neighbors.items():
            held = self.agent.neighbors.get(name)
            if held is None or self.intake.last_data(name) is None:
                self.agent.neighbors[name] = Neighbor(key.weight)
            else:
                held.weight = key.weight
            tie = self._ties.setdefault(name, _Tie())
            if tie.up_since is not None:
                self._greet(name, tie, now)
        self._plan_greetings()

    def _resume(self, now: int) -> None:
        self.agent.model = self._outbox.model.astype(self.agent.model.dtype)
        self.agent.updates = self._outbox.updates
        self.agent.next_tick = self._clock.next_tick(self.agent.updates, now)

    def _update(self, now: int) -> None:
        """One update, and its message once that is on disk."""
        try:
            ready = [self._outbox.ready(message) for message in self.agent.on_tick(now)]
        except LedgerError:
            self._stop("ledger")
        except PrivacyError:
            # The gate has charged the event and sent nothing; the next one may come out better.
            self.failed_updates += 1
            self.agent.next_tick = self._clock.next_tick(self.agent.updates, now)
        except NetworkError:
            self._stop("store")
        else:
            for sent in ready:
                self.last_release_time = now
                self._transport.publish(self.name, sent.data)
        self._conclude()
        self._prepare(now)

    def _prepare(self, now: int) -> None:
        """Once the message has left: how long it takes to draw the next noise must show nowhere."""
        try:
            self.agent.prepare(now)
        except LedgerError:
            self._stop("ledger")
        except PrivacyError:
            return  # a gate that cannot release any more says so on the tick

    def _conclude(self) -> None:
        """Say the last word, if it is time for it; there is no update after it."""
        sent = self._outbox.conclude()
        if sent is not None:
            self.agent.model = self._outbox.model.astype(self.agent.model.dtype)
            self.agent.updates = self._outbox.updates
            self.agent.next_tick = None
            self._transport.publish(self.name, sent.data)

    def _may_release(self, now: int) -> bool:
        """Whether someone listens, and nobody who is up may still know of a later release."""
        if self.obstacle is not None:
            return False
        if not self._outbox.spends:
            return self._has_begun(now)
        up = [tie for tie in self._ties.values() if tie.up_since is not None]
        return any(tie.has_greeted for tie in up) and all(
            tie.has_greeted or tie.up_since + PATIENCE <= now for tie in up if tie.up_since is not None
        )

    def _has_begun(self, now: int) -> bool:
        """Agents that are started together begin together: the first update waits a little for neighbors."""
        return (
            self.agent.updates > 0
            or self._started_at + PATIENCE <= now
            or all(tie.has_greeted for tie in self._ties.values())
        )

    def _compare(self, echo: Sent, now: int) -> None:
        """Look at what a neighbor last got from this agent, under the agent's own signature."""
        if self._outbox.knows(echo) or self.obstacle == "behind":
            return
        if self._outbox.spends:
            self._stop("behind")
            with suppress(NetworkError):  # unwritten it is found out again, before the next release
                self._store.mark_newer_release(echo.number)
        elif self.obstacle is None:
            try:
                self._outbox.take_back(echo)
                self._resume(now)
            except NetworkError:
                self._stop("store")

    def _stop(self, obstacle: Obstacle) -> None:
        """Fall silent; what is received is still kept."""
        self.obstacle = obstacle
        self.agent.next_tick = None

    def _take(self, sender: str, message: Message | Relay) -> None:
        now = self._time.now()
        self._learn(message, now)
        self._unwritten.add(sender)
        self._forgotten.discard(sender)
        self._write_soon(now)

    def _learn(self, message: Message | Relay, now: int) -> None:
        if isinstance(message, Message):
            self.agent.on_message(message, now)

    def _forget(self, sender: str, now: int) -> None:
        self._unwritten.discard(sender)
        self._forgotten.add(sender)
        self._write_soon(now)

    def _write_soon(self, now: int) -> None:
        if self._write_at is None:
            self._write_at = now + WRITING_GAP

    def _write(self, now: int) -> None:
        """A failure does no harm: neighbors send their models again; so it is only tried once more."""
        received = {}
        for sender in sorted(self._unwritten):
            data = self.intake.last_data(sender)
            if data is not None:
                received[sender] = data
        try:
            if received or self._forgotten:
                self._store.save_received(received, sorted(self._forgotten))
        except NetworkError:
            self._write_at = now + WRITING_GAP
        else:
            self._unwritten.clear()
            self._forgotten.clear()
            self._write_at = None

    def _greet(self, name: str, tie: _Tie, now: int, *, is_answer: bool = False) -> None:
        tie.greeted_at = now
        tie.unanswered += not is_answer
        greeting = Greeting(
            float(self.agent.neighbors[name].weight),
            self._version,
            None if self.obstacle == "behind" else self._outbox.last.data,
            self.intake.last_data(name),
            is_answer,
        )
        self._transport.send(self.name, name, greet(greeting))

    def _greeting_due(self, tie: _Tie) -> int | None:
        """Soon where an answer is missing, else after a silence; none to a neighbor that is down."""
        if tie.up_since is None or tie.greeted_at is None:
            return tie.up_since
        if not tie.has_greeted:
            return tie.greeted_at + min(GREETING_GAP << min(max(0, tie.unanswered - 1), 5), GREETING_PERIOD)
        return max(tie.greeted_at, self.last_release_time or 0) + GREETING_PERIOD

    def _plan_greetings(self) -> None:
        """Worked out when something has changed, which is seldom; a release in between only puts it off."""
        dues = map(self._greeting_due, self._ties.values())
        self._greet_at = min((due for due in dues if due is not None), default=None)

    def next_wake(self) -> int | None:
        """When `tick` has something to do next; to be asked again after every call from outside."""
        times = (self.agent.next_tick, self._write_at, self._greet_at)
        return min([time for time in times if time is not None], default=None)
