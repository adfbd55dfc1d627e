"""Drives one agent on a network: when it wakes, what it sends, what it takes in, what it keeps.

A node has no threads, no sockets and no clock of its own: a host calls `tick` at the times that `tick` asks
for, and a transport calls the `on_…` methods. So the same node runs on zenoh and in a simulation of faults.
It knows no method: what else the agent does is its `Role`, `Descending` or `Conversing`.

What holds, whatever happens to machine and network:
- Bytes are written before they leave, and one number always has the same bytes (flockwise.net.outbox).
  Without privacy a power cut may undo the last of them.
- Only what `Intake` accepts reaches the agent.
- A private agent releases only while a neighbor is connected and its ledger is up to date: every connected
  neighbor has said which number it last got from the agent, or has used up the time that it is given for
  that. A number that the ledger lacks silences the agent for good.
- A message that was lost is made up for: neighbors show each other their last one whenever they meet, and
  from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, final

from flockwise.agent import Agent, Message, Neighbor
from flockwise.errors import LedgerError, NetworkError, PrivacyError
from flockwise.net.intake import Intake, NeighborKey
from flockwise.net.outbox import Outbox
from flockwise.net.store import Store
from flockwise.net.time import SECOND, Time
from flockwise.net.transport import Transport
from flockwise.net.wire import Greeting, Sent, greet
from flockwise.privacy.messages import Relay

# How long releases wait for one neighbor's greetings, however often it comes and goes; and how long the very
# first update waits for any.
PATIENCE: Final = 5 * SECOND
# A neighbor that has stayed so long after its greeting is waited for again when it comes back.
STEADY: Final = 60 * SECOND
# The least time between two greetings to a neighbor. It doubles each time that the neighbor does not answer:
# where answers are late because of the load, greetings must not add to it.
GREETING_GAP: Final = 1 * SECOND
# A connected neighbor hears from the agent at least this often, in case something was lost.
GREETING_PERIOD: Final = 30 * SECOND
MOMENT: Final = 1 * SECOND
# Received messages are written to disk after this time, in one go.
WRITING_GAP: Final = 5 * SECOND

Obstacle: TypeAlias = Literal["behind", "ledger", "store"]


@dataclass
class _Contact:
    """The connection to a neighbor."""

    up_since: int | None = None
    greeted_since: int | None = None  # since it came up
    patience: int = PATIENCE  # how long releases will still wait for it
    left_silent: bool = False  # it went down without a greeting
    greeted_at: int | None = None  # when this agent last greeted it
    unanswered: int = 0  # greetings, since it last greeted

    @property
    def has_greeted(self) -> bool:
        return self.greeted_since is not None

    def is_awaited(self, now: int) -> bool:
        """Whether a release waits for its greeting, which may show that the ledger is an old copy."""
        return self.up_since is not None and not self.has_greeted and now < self.up_since + self.patience

    def come(self, now: int) -> None:
        self.leave(now)
        self.up_since, self.unanswered = now, 0

    def greet(self, now: int, agrees: bool) -> None:
        """It has greeted this agent. Until weight and settings agree it has not said what is needed."""
        self.unanswered = 0
        if self.up_since is None or not agrees:
            self.greeted_since = None
        elif self.greeted_since is None:
            self._use_patience(now)
            self.greeted_since = now

    def leave(self, now: int) -> None:
        """One that comes and goes uses its patience up; one that was there for a while gets it back."""
        if self.up_since is not None:
            self.left_silent = self.greeted_since is None
            if self.greeted_since is None:
                self._use_patience(now)
            elif now - self.greeted_since >= STEADY:
                self.patience = PATIENCE
        self.up_since = self.greeted_since = None
        self.unanswered = 0

    def _use_patience(self, now: int) -> None:
        assert self.up_since is not None
        self.patience = max(0, self.patience - (now - self.up_since))


class Role(Protocol):
    """The part of an agent that depends on its method. Its node calls it.

    rounds: how far its conversation has come; is_over: whether that has ended. None if it never has one.
    wake_at: when `tick` has something to do next.
    """

    @property
    def rounds(self) -> int | None: ...

    @property
    def is_over(self) -> bool | None: ...

    @property
    def wake_at(self) -> int | None: ...

    def awaited(self, now: int) -> list[str]:
        """The neighbors that it waits for."""
        ...

    def may_release(self, now: int) -> bool:
        """Its node has conditions of its own."""
        ...

    def takes(self, sender: str, data: bytes, now: int) -> bool:
        """Take in bytes that were sent to this agent alone; False if they are a greeting instead."""
        ...

    def start(self, now: int) -> None: ...

    def tick(self, now: int) -> None: ...

    def on_relay(self, relay: Relay, now: int) -> None: ...

    def before_greeting(self, neighbor: str, now: int) -> None: ...

    def on_arrival(self, neighbor: str, now: int) -> None:
        """A neighbor has come up, and was greeted."""

    def on_roster(self, now: int) -> None:
        """There are other neighbors, or other keys or weights."""


@final
class Node:
    """One agent on a network; `start` it once, then plug it into a transport and `tick` it."""

    def __init__(
        self,
        agent: Agent,
        intake: Intake,
        outbox: Outbox,
        store: Store,
        transport: Transport,
        time: Time,
        make_role: Callable[[Node], Role],
    ) -> None:
        self.agent = agent
        self.intake = intake
        self.obstacle: Obstacle | None = None
        """Why it releases nothing more until it is started again; "behind" is for ever."""
        self.last_release_time: int | None = None
        self.flaps = 0
        """How often a neighbor came up again that had left without a greeting."""
        self.late_by = 0
        """How late its last update was."""
        self.skipped_time = 0
        """By how much its clock stood still because this machine was late."""
        self._outbox = outbox
        self._store = store
        self._transport = transport
        self._time = time
        self.started_at = 0
        self._contacts = {name: _Contact() for name in agent.neighbors}
        self._unwritten: set[str] = set()  # neighbors, and former ones that are still in the store
        self._write_at: int | None = None
        self._greet_at: int | None = None
        self.role = make_role(self)

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def sent(self) -> Sent:
        """The last message, as it is on disk."""
        return self._outbox.last

    @property
    def releases(self) -> int:
        """How many updates it has sent: a budget is spent on these."""
        return self._outbox.updates

    @property
    def spends(self) -> bool:
        """Whether a release uses budget."""
        return self._outbox.spends

    @property
    def neighbors_up(self) -> list[str]:
        return [name for name, contact in self._contacts.items() if contact.up_since is not None]

    @property
    def greeted_by(self) -> list[str]:
        """The connected neighbors that have greeted it and agree with it."""
        return [name for name, contact in self._contacts.items() if contact.has_greeted]

    def awaited(self, now: int) -> list[str]:
        """The neighbors that a release waits for: all of them, where it needs one and none has greeted."""
        if self.spends and not self.greeted_by:
            return list(self._contacts)
        return [name for name, contact in self._contacts.items() if contact.is_awaited(now)]

    def start(self, now: int) -> int | None:
        """Go on where the agent last stopped; when to tick first."""
        state = self._store.load()
        self.started_at = now
        self._resume(now)
        if state.newer_release is not None and self.spends:
            self.fall_silent("behind")
        for sender, data in state.received.items():
            if sender not in self._contacts:
                self._write_soon(sender, now)
            elif isinstance(message := self.intake.message(sender, data), Message):
                self.agent.on_message(message, now)
        self.role.start(now)
        return self.next_wake()

    def tick(self, now: int) -> int | None:
        """Do what is due; when to come back, unless something happens before. None: no need to."""
        due = self.agent.next_tick
        if due is not None and due <= now:
            if self.may_release(now):
                # A host that is late by a moment does not slow the clock down; one that sleeps, does.
                self.late_by = now - due
                self.skipped_time += max(0, now - MOMENT - due)
                self._update(max(due, now - MOMENT))
            else:
                self.agent.wait(now)
        if self._greet_at is not None and self._greet_at <= now:
            for name, contact in self._contacts.items():
                due = self._greeting_due(contact)
                if due is not None and due <= now:
                    self._greet(name, contact, now)
            self._plan_greetings()
        if self._write_at is not None and self._write_at <= now:
            self._write(now)
        self.role.tick(now)
        return self.next_wake()

    def stop(self) -> None:
        """Write received messages; the owner of store and ledger closes them."""
        self._write(self._time.now())

    def on_published(self, sender: str, data: bytes) -> None:
        message = self.intake.message(sender, data)
        if message is not None:
            self._take(sender, message)

    def on_greeting(self, sender: str, data: bytes) -> None:
        now = self._time.now()
        if self.role.takes(sender, data, now) or (greeting := self.intake.greeting(sender, data)) is None:
            return
        contact = self._contacts[sender]
        contact.greet(now, greeting.agrees)
        if greeting.yours is not None:
            self._compare(greeting.yours, now)
        if greeting.mine is not None:
            self._take(sender, greeting.mine)
        if not greeting.is_answer and (
            contact.greeted_at is None or contact.greeted_at + GREETING_GAP <= now
        ):
            self._greet(sender, contact, now, is_answer=True)
        self._plan_greetings()

    def on_presence(self, neighbor: str, is_up: bool) -> None:
        contact = self._contacts.get(neighbor)
        if contact is None:
            return
        now = self._time.now()
        if is_up:
            contact.come(now)
            self.flaps += contact.left_silent
            self._greet(neighbor, contact, now)
            self.role.on_arrival(neighbor, now)
        else:
            contact.leave(now)
        self._plan_greetings()

    def set_neighbors(self, neighbors: Mapping[str, NeighborKey], version: int) -> None:
        """As in a newer roster. Neighbors that left are forgotten; new ones are greeted once they connect."""
        now = self._time.now()
        self.intake.set_neighbors(neighbors)
        with suppress(NetworkError):  # it is marked again at the next start
            self._store.mark_roster(version)
        for name in sorted(self._contacts.keys() - neighbors.keys()):
            del self._contacts[name], self.agent.neighbors[name]
            self._write_soon(name, now)
        for name, key in neighbors.items():
            held = self.agent.neighbors.get(name)
            if held is None or self.intake.last_data(name) is None:
                self.agent.neighbors[name] = Neighbor(key.weight)
                self._write_soon(name, now)  # what it sent under another key is kept no more
            else:
                held.weight = key.weight
            contact = self._contacts.setdefault(name, _Contact())
            if contact.up_since is not None:
                self._greet(name, contact, now)
        self._plan_greetings()
        self.role.on_roster(now)

    def fall_silent(self, obstacle: Obstacle) -> None:
        """Received messages are still kept."""
        self.obstacle = obstacle
        self.agent.next_tick = None

    def publish(self, data: bytes) -> None:
        """To all neighbors."""
        self._transport.publish(self.name, data)

    def send(self, neighbor: str, data: bytes) -> None:
        self._transport.send(self.name, neighbor, data)

    def _resume(self, now: int) -> None:
        self.agent.resume(self._outbox.model, self._outbox.updates, now)

    def _update(self, now: int) -> None:
        """One update, and its message once that is on disk."""
        try:
            ready = [self._outbox.ready(message) for message in self.agent.on_tick(now)]
        except LedgerError:
            self.fall_silent("ledger")
        except PrivacyError:
            # The gate has charged the event and sent nothing; the next one may come out better.
            self.agent.wait(now)
        except NetworkError:
            self.fall_silent("store")
        else:
            for sent in ready:
                self.last_release_time = now
                self.publish(sent.data)
        self._conclude(now)
        self._prepare()

    def _prepare(self) -> None:
        """Once the message has left: how long it takes to draw the next noise must show nowhere."""
        try:
            self.agent.prepare()
        except LedgerError:
            self.fall_silent("ledger")
        except PrivacyError:
            return  # a gate that cannot release any more says so on the tick

    def _conclude(self, now: int) -> None:
        """After the last update, send the average of the later releases."""
        sent = self._outbox.conclude()
        if sent is not None:
            self._resume(now)
            self.agent.next_tick = None
            self.publish(sent.data)

    def may_release(self, now: int) -> bool:
        """Whether a neighbor listens, and none that is connected may still know of a later release."""
        if self.obstacle is not None or not self.role.may_release(now):
            return False
        return not self.spends or (bool(self.greeted_by) and not self.awaited(now))

    def _compare(self, echo: Sent, now: int) -> None:
        """Look at the last message that a neighbor got from this agent, under its own signature."""
        if self._outbox.knows(echo) or self.obstacle == "behind":
            return
        if self.spends:
            self.fall_silent("behind")
            with suppress(NetworkError):  # unwritten it is found out again, before the next release
                self._store.mark_newer_release(echo.number)
        elif self.obstacle is None:
            try:
                self._outbox.take_back(echo)
                self._resume(now)
            except NetworkError:
                self.fall_silent("store")

    def _take(self, sender: str, message: Message | Relay) -> None:
        now = self._time.now()
        if isinstance(message, Relay):
            self.role.on_relay(message, now)
        else:
            self.agent.on_message(message, now)
            self._write_soon(sender, now)

    def _write_soon(self, sender: str, now: int) -> None:
        """The last message of a neighbor, or that nothing of it is kept any more."""
        self._unwritten.add(sender)
        if self._write_at is None:
            self._write_at = now + WRITING_GAP

    def _write(self, now: int) -> None:
        """A failure does no harm, and it is tried again: neighbors show their last models at every start."""
        last = {sender: self.intake.last_data(sender) for sender in sorted(self._unwritten)}
        received = {sender: data for sender, data in last.items() if data is not None}
        try:
            if last:
                self._store.save_received(received, sorted(last.keys() - received.keys()))
        except NetworkError:
            self._write_at = now + WRITING_GAP
        else:
            self._unwritten.clear()
            self._write_at = None

    def _greet(self, name: str, contact: _Contact, now: int, *, is_answer: bool = False) -> None:
        self.role.before_greeting(name, now)
        contact.greeted_at = now
        contact.unanswered += not is_answer
        greeting = Greeting(
            float(self.agent.neighbors[name].weight),
            self.intake.settings_version,
            None if self.obstacle == "behind" else self._outbox.last.data,
            self.intake.last_data(name),
            is_answer,
        )
        self.send(name, greet(greeting))

    def _greeting_due(self, contact: _Contact) -> int | None:
        """Soon where an answer is missing, else after a silence; none to a neighbor that is down."""
        if contact.up_since is None or contact.greeted_at is None:
            return contact.up_since
        if not contact.has_greeted:
            return contact.greeted_at + min(
                GREETING_GAP << min(max(0, contact.unanswered - 1), 5), GREETING_PERIOD
            )
        return max(contact.greeted_at, self.last_release_time or 0) + GREETING_PERIOD

    def _plan_greetings(self) -> None:
        """Worked out when something has changed, which is seldom; a release in between only puts it off."""
        dues = map(self._greeting_due, self._contacts.values())
        self._greet_at = min((due for due in dues if due is not None), default=None)

    def next_wake(self) -> int | None:
        """When `tick` has something to do next; to be asked again after every call from outside."""
        times = (self.agent.next_tick, self._write_at, self._greet_at, self.role.wake_at)
        return min([time for time in times if time is not None], default=None)


@final
class Descending:
    """The role of an agent that updates and releases on its ticks, and does nothing else."""

    rounds = is_over = wake_at = None

    def __init__(self, node: Node) -> None:
        self._node = node

    def may_release(self, now: int) -> bool:
        """Agents that are started together begin together: the first update waits a little for neighbors.

        One with a budget waits for them anyway.
        """
        node = self._node
        has_begun = node.agent.updates > 0 or node.started_at + PATIENCE <= now
        return has_begun or node.spends or len(node.greeted_by) == len(node.agent.neighbors)

    def awaited(self, now: int) -> list[str]:
        return self._node.awaited(now)

    def takes(self, sender: str, data: bytes, now: int) -> bool:
        return False

    def start(self, now: int) -> None: ...

    def tick(self, now: int) -> None: ...

    def on_relay(self, relay: Relay, now: int) -> None: ...

    def before_greeting(self, neighbor: str, now: int) -> None: ...

    def on_arrival(self, neighbor: str, now: int) -> None: ...

    def on_roster(self, now: int) -> None: ...
