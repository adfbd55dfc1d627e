"""Drives one agent on a network: when it wakes, what it sends, what it takes in, what it keeps.

A node has no threads, no sockets and no clock of its own: a host calls `tick` at the times that `tick` asks
for, and a transport calls the `on_…` methods. So the same node runs on zenoh and in a simulation of faults.

What holds, whatever happens to machine and network:
- Bytes are written before they leave, and one number always has the same bytes (flockwise.net.outbox).
  Without privacy a power cut may undo the last of them.
- Only what `Intake` accepts reaches the agent.
- A private agent releases only while a neighbor is connected and its ledger is up to date: every connected
  neighbor has said which number it last got from the agent. A number that the ledger lacks silences the
  agent for good.
- A message that was lost is made up for: neighbors show each other their last one whenever they meet, and
  from time to time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from flockwise.agent import Agent, Message, Neighbor
from flockwise.errors import LedgerError, NetworkError, PrivacyError
from flockwise.net.intake import Intake, NeighborKey
from flockwise.net.outbox import Outbox
from flockwise.net.store import Store
from flockwise.net.time import SECOND, Time
from flockwise.net.transport import Transport
from flockwise.net.wire import Greeting, Sent, greet
from flockwise.privacy.messages import Relay

# How long a release waits for a connected neighbor that does not answer, and the very first update for any.
PATIENCE: Final = 5 * SECOND
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
    has_greeted: bool = False  # since it came up
    greeted_at: int | None = None  # when this agent last greeted it
    unanswered: int = 0  # greetings, since it last greeted


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
        version: int,
    ) -> None:
        """version: of the roster that its neighbors and weights come from."""
        self.agent = agent
        self.intake = intake
        self.obstacle: Obstacle | None = None
        """Why it releases nothing more until it is started again; "behind" is for ever."""
        self.last_release_time: int | None = None
        self._outbox = outbox
        self._store = store
        self._transport = transport
        self._time = time
        self._version = version
        self._started_at = 0
        self._contacts = {name: _Contact() for name in agent.neighbors}
        self._unwritten: set[str] = set()  # neighbors, and former ones that are still in the store
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
        """How many updates it has sent: a budget is spent on these."""
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
        return [name for name, contact in self._contacts.items() if contact.up_since is not None]

    def start(self, now: int) -> int | None:
        """Go on where the agent last stopped; when to tick first."""
        state = self._store.load()
        self._started_at = now
        self._resume(now)
        if state.newer_release is not None and self._outbox.spends:
            self._stop("behind")
        for sender, data in state.received.items():
            if sender not in self._contacts:
                self._write_soon(sender, now)
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
                self.agent.wait(now)
        if self._greet_at is not None and self._greet_at <= now:
            for name, contact in self._contacts.items():
                due = self._greeting_due(contact)
                if due is not None and due <= now:
                    self._greet(name, contact, now)
            self._plan_greetings()
        if self._write_at is not None and self._write_at <= now:
            self._write(now)
        return self.next_wake()

    def stop(self) -> None:
        """Write received messages; the owner of store and ledger closes them."""
        self._write(self._time.now())

    def on_published(self, sender: str, data: bytes) -> None:
        message = self.intake.message(sender, data)
        if message is not None:
            self._take(sender, message)

    def on_greeting(self, sender: str, data: bytes) -> None:
        greeting = self.intake.greeting(sender, data)
        if greeting is None:
            return
        now, contact = self._time.now(), self._contacts[sender]
        # One that names another weight has not said what is needed: it is asked again until both agree.
        contact.has_greeted = contact.up_since is not None and greeting.agrees
        contact.unanswered = 0
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
        contact.has_greeted, contact.unanswered = False, 0
        contact.up_since = now if is_up else None
        if is_up:
            self._greet(neighbor, contact, now)
        self._plan_greetings()

    def set_neighbors(self, neighbors: Mapping[str, NeighborKey], version: int) -> None:
        """As in a newer roster. Neighbors that left are forgotten; new ones are greeted once they connect."""
        now = self._time.now()
        self.intake.set_neighbors(neighbors)
        self._version = version
        for name in sorted(self._contacts.keys() - neighbors.keys()):
            del self._contacts[name], self.agent.neighbors[name]
            self._write_soon(name, now)
        for name, key in neighbors.items():
            held = self.agent.neighbors.get(name)
            if held is None or self.intake.last_data(name) is None:
                self.agent.neighbors[name] = Neighbor(key.weight)
            else:
                held.weight = key.weight
            contact = self._contacts.setdefault(name, _Contact())
            if contact.up_since is not None:
                self._greet(name, contact, now)
        self._plan_greetings()

    def _resume(self, now: int) -> None:
        self.agent.resume(self._outbox.model, self._outbox.updates, now)

    def _update(self, now: int) -> None:
        """One update, and its message once that is on disk."""
        try:
            ready = [self._outbox.ready(message) for message in self.agent.on_tick(now)]
        except LedgerError:
            self._stop("ledger")
        except PrivacyError:
            # The gate has charged the event and sent nothing; the next one may come out better.
            self.agent.wait(now)
        except NetworkError:
            self._stop("store")
        else:
            for sent in ready:
                self.last_release_time = now
                self._transport.publish(self.name, sent.data)
        self._conclude(now)
        self._prepare()

    def _prepare(self) -> None:
        """Once the message has left: how long it takes to draw the next noise must show nowhere."""
        try:
            self.agent.prepare()
        except LedgerError:
            self._stop("ledger")
        except PrivacyError:
            return  # a gate that cannot release any more says so on the tick

    def _conclude(self, now: int) -> None:
        """After the last update, send the average of the later releases."""
        sent = self._outbox.conclude()
        if sent is not None:
            self._resume(now)
            self.agent.next_tick = None
            self._transport.publish(self.name, sent.data)

    def _may_release(self, now: int) -> bool:
        """Whether a neighbor listens, and none that is connected may still know of a later release."""
        if self.obstacle is not None:
            return False
        if not self._outbox.spends:
            return self._has_begun(now)
        contacts = self._contacts.values()
        silent = [one.up_since for one in contacts if one.up_since is not None and not one.has_greeted]
        return any(one.has_greeted for one in contacts) and all(since + PATIENCE <= now for since in silent)

    def _has_begun(self, now: int) -> bool:
        """Agents that are started together begin together: the first update waits a little for neighbors."""
        return (
            self.agent.updates > 0
            or self._started_at + PATIENCE <= now
            or all(contact.has_greeted for contact in self._contacts.values())
        )

    def _compare(self, echo: Sent, now: int) -> None:
        """Look at the last message that a neighbor got from this agent, under its own signature."""
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
        """Fall silent; received messages are still kept."""
        self.obstacle = obstacle
        self.agent.next_tick = None

    def _take(self, sender: str, message: Message | Relay) -> None:
        now = self._time.now()
        self._learn(message, now)
        self._write_soon(sender, now)

    def _learn(self, message: Message | Relay, now: int) -> None:
        if isinstance(message, Message):
            self.agent.on_message(message, now)

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
        contact.greeted_at = now
        contact.unanswered += not is_answer
        greeting = Greeting(
            float(self.agent.neighbors[name].weight),
            self._version,
            None if self.obstacle == "behind" else self._outbox.last.data,
            self.intake.last_data(name),
            is_answer,
        )
        self._transport.send(self.name, name, greet(greeting))

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
        times = (self.agent.next_tick, self._write_at, self._greet_at)
        return min([time for time in times if time is not None], default=None)
