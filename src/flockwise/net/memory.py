"""Resources for agents in the memory of one process: a network, a clock, stores, journals and ledgers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from flockwise.data.samples import Samples
from flockwise.errors import NetworkError
from flockwise.net.journal import Ended, Record
from flockwise.net.participant import AgentResources
from flockwise.net.store import Sent, State, Store
from flockwise.net.time import Time
from flockwise.net.transport import Listener, Transport
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import Noise
from flockwise.protocol.conversation import Heard

PacketKind: TypeAlias = Literal["published", "greeting"]


class AgentMemory:
    """Keeps an agent's state in place of a disk: make the agent again from it, and the agent goes on."""

    def __init__(self, agent: str) -> None:
        self.store: Store = MemoryStore()
        self.ledgers = [MemoryLedger(agent)]
        self.journal = MemoryJournal()

    @property
    def ledger(self) -> MemoryLedger:
        """Of the samples that the agent began with."""
        return self.ledgers[0]

    def resources(self, transport: Transport, time: Time, noise: Noise, **options: Any) -> AgentResources:
        """options: further fields of AgentResources."""
        return AgentResources(
            self.store,
            self._make_ledger,
            self._open_ledger,
            lambda batch: batch < len(self.ledgers),
            lambda: self.journal,
            noise,
            transport,
            time,
            **options,
        )

    def _make_ledger(self, batch: int) -> None:
        if batch == len(self.ledgers):
            self.ledgers.append(MemoryLedger(self.ledger.agent))

    def _open_ledger(self, batch: int) -> MemoryLedger:
        """With what it holds, and without the gate that it had: as another process would read it."""
        before = self.ledgers[batch]
        opened = self.ledgers[batch] = MemoryLedger(before.agent)
        if before.plan is not None:
            opened.grant(before.plan)
        for entry in before.entries:
            opened.record(entry)
        return opened


class ManualTime:
    """A clock that stands still until it is moved."""

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def move_to(self, now: int) -> None:
        if now < self._now:
            raise NetworkError(f"time does not go back: it is {self._now}, got now={now}")
        self._now = now


@dataclass(frozen=True)
class Packet:
    """Bytes on their way from one agent to another."""

    sender: str
    receiver: str
    kind: PacketKind
    data: bytes


class PacketQueue(Protocol):
    """Packets on their way. A test puts delays and losses here."""

    def append(self, packet: Packet, /) -> None: ...

    def popleft(self) -> Packet:
        """The packet that arrives next."""
        ...

    def __len__(self) -> int: ...


@dataclass
class _Plug:
    listener: Listener
    neighbors: frozenset[str]


class MemoryNetwork:
    """A transport that connects all agents that are attached to it.

    queue: where packets wait; by default in the order in which they were sent.
    """

    def __init__(self, queue: PacketQueue | None = None) -> None:
        self.queue: PacketQueue = deque[Packet]() if queue is None else queue
        self._plugs: dict[str, _Plug] = {}

    def attach(self, agent: str, listener: Listener, neighbors: Iterable[str]) -> None:
        """Plug an agent in; neighbors that are in as well see each other come up."""
        before = self._plugs.get(agent)
        known = frozenset() if before is None else before.neighbors
        plug = self._plugs[agent] = _Plug(listener, frozenset(neighbors))
        for other in sorted(plug.neighbors - known):
            if self._are_linked(agent, other):
                listener.on_presence(other, True)
                self._plugs[other].listener.on_presence(agent, True)

    def detach(self, agent: str) -> None:
        """Unplug it, as if its process had died."""
        plug = self._plugs.pop(agent)
        for other in sorted(plug.neighbors & self._plugs.keys()):
            if agent in self._plugs[other].neighbors:
                self._plugs[other].listener.on_presence(agent, False)

    def publish(self, sender: str, data: bytes) -> None:
        for receiver in sorted(self._plugs):
            if sender in self._plugs[receiver].neighbors:
                self.queue.append(Packet(sender, receiver, "published", data))

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        self.queue.append(Packet(sender, receiver, "greeting", data))

    def deliver(self, packet: Packet) -> None:
        """Hand a packet over; one for an agent that is not there, or does not listen, is lost."""
        plug = self._plugs.get(packet.receiver)
        if plug is None or packet.sender not in plug.neighbors:
            return
        if packet.kind == "published":
            plug.listener.on_published(packet.sender, packet.data)
        else:
            plug.listener.on_greeting(packet.sender, packet.data)

    def deliver_all(self, at_most: int | None = None) -> int:
        """Deliver what waits in the queue, and what is sent in answer; how many packets it was."""
        count = 0
        while len(self.queue) and (at_most is None or count < at_most):
            self.deliver(self.queue.popleft())
            count += 1
        return count

    def _are_linked(self, agent: str, other: str) -> bool:
        plug = self._plugs.get(other)
        return plug is not None and agent in plug.neighbors


@dataclass
class MemoryStore:
    """A store that is gone with the process."""

    state: State = field(default_factory=State)

    def load(self) -> State:
        state = self.state
        return State(state.sent, dict(state.received), state.newer_release, list(state.batches))

    def save_sent(self, sent: Sent) -> None:
        self.state.sent = sent

    def save_received(self, received: Mapping[str, bytes], forgotten: Iterable[str] = ()) -> None:
        for sender in forgotten:
            self.state.received.pop(sender, None)
        self.state.received.update(received)

    def mark_newer_release(self, number: int) -> None:
        self.state.newer_release = number

    def add_batch(self, batch: Samples) -> None:
        self.state.batches.append(batch)

    def close(self) -> None:
        """Nothing is open."""


class MemoryJournal:
    """A journal that is gone with the process."""

    def __init__(self) -> None:
        self._record = Record()
        self._rounds: list[Heard] = []

    def load(self) -> Record:
        return Record(self._record.edges, self._record.ended)

    def rounds(self) -> Iterator[Heard]:
        yield from self._rounds

    def begin(self, edges: Mapping[int, float]) -> None:
        self._record.edges = dict(edges)

    def add(self, heard: Heard) -> None:
        self._rounds.append(dict(heard))

    def end(self, ended: Ended) -> None:
        self._record.ended = ended
        self._rounds.clear()
