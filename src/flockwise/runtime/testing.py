"""Agents in the memory of one process: for tests of programs that use them, and for our own.

    network, time = MemoryNetwork(), ManualTime()
    agents = [
        Participant(one, AgentMemory(name).resources(network, time, SimulatedNoise(0, number)))
        for number, (name, one) in enumerate(define_agents(settings, graph, samples).items())
    ]
    start_agents(agents, network, time)
    run_for(60, agents, network, time)

They are made of the same parts as agents on disk (flockwise.runtime.participant). Time stands still until it
is moved, packets wait until they are delivered, and `AgentMemory` keeps what a disk would keep, so an agent
can be made again from it. Nothing here is for real data: keys and clocks follow from names, and noise
from a seed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from flockwise.data.samples import Samples
from flockwise.deploy.folder import NoBudget, OwnBudget
from flockwise.deploy.roster import neighborhoods
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import NetworkError
from flockwise.net.journal import Ended, JournalRecord
from flockwise.net.signing import SEED_BYTES, SigningKey, public_key_of
from flockwise.net.store import State, Store
from flockwise.net.time import SECOND, PoissonClock, Time
from flockwise.net.transport import Listener, Place, Switchboard, Transport
from flockwise.net.wire import Sent
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import Noise, SimulatedNoise
from flockwise.protocol.conversation import Heard
from flockwise.runtime.participant import AgentDefinition, AgentResources, Participant

if TYPE_CHECKING:
    from flockwise.graph import SimilarityGraph

__all__ = [
    "AgentMemory",
    "ManualTime",
    "MemoryJournal",
    "MemoryLedger",
    "MemoryNetwork",
    "MemoryStore",
    "NetworkSettings",
    "OwnBudget",
    "Packet",
    "Participant",
    "Samples",
    "SimulatedNoise",
    "define_agents",
    "key_for_tests",
    "run_for",
    "start_agents",
    "step",
]

# Where agents in memory are said to be: nobody ever connects to it.
ADDRESS: Final = "127.0.0.1:7447"

PacketKind: TypeAlias = Literal["published", "greeting"]


def define_agents(
    settings: NetworkSettings,
    graph: SimilarityGraph,
    samples: Mapping[str, Samples],
    privacy: NoBudget | OwnBudget | None = None,
    *,
    network: str = "test",
    version: int = 1,
    tick_rate: float = 1.0,
) -> dict[str, AgentDefinition]:
    """All agents of a network, by name. samples: of each agent, in the order of the graph."""
    keys = {name: key_for_tests(name) for name in samples}
    places = [Place(name, name, ADDRESS, public_key_of(key)) for name, key in keys.items()]
    n_features = next(iter(samples.values())).features.shape[1]
    slices = neighborhoods(
        network,
        version,
        graph,
        places,
        dimension=settings.objective.loss.outputs * n_features,
        tick_rate=tick_rate,
        settings=settings.to_json(),
    )
    own = NoBudget() if privacy is None else privacy
    return {one.agent: AgentDefinition(one, own, samples[one.agent], keys[one.agent]) for one in slices}


def key_for_tests(name: str) -> SigningKey:
    """The same for the same name, so anybody can have it."""
    return SigningKey(random.Random(name).randbytes(SEED_BYTES))


def start_agents(participants: Collection[Participant], network: Switchboard, time: Time) -> None:
    """Start them, and then plug all of them in."""
    for one in participants:
        one.node.start(time.now())
    for one in participants:
        network.attach(one.node.name, one.node, [link.name for link in one.neighborhood.neighbors])


def run_for(
    seconds: float, participants: Collection[Participant], network: MemoryNetwork, time: ManualTime
) -> None:
    """Let time pass: agents tick when they are due, and what they send arrives at once."""
    end = time.now() + round(seconds * SECOND)
    network.deliver_all()
    while step(participants, time, until=end):
        network.deliver_all()
    time.move_to(end)


def step(participants: Collection[Participant], time: ManualTime, until: int | None = None) -> bool:
    """Move the time to when the next agent is due, and tick all that are due then.

    False if none is, or none before `until`.
    """
    due = min((wake for one in participants if (wake := one.node.next_wake()) is not None), default=None)
    if due is None or (until is not None and due > until):
        return False
    time.move_to(max(due, time.now()))
    for one in participants:
        wake = one.node.next_wake()
        if wake is not None and wake <= time.now():
            one.node.tick(time.now())
    return True


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
        """options: of AgentResources. By default an agent wakes by a clock that its name seeds."""
        options.setdefault("make_clock", partial(PoissonClock, randomness=random.Random(self.ledger.agent)))
        return AgentResources(self.store, self, lambda: self.journal, noise, transport, time, **options)

    def make(self, place: int) -> None:
        if place == len(self.ledgers):
            self.ledgers.append(MemoryLedger(self.ledger.agent))

    def has(self, place: int) -> bool:
        return place < len(self.ledgers)

    def open(self, place: int) -> MemoryLedger:
        """With what it holds, and without the gate that it had: as another process would read it."""
        before = self.ledgers[place]
        opened = self.ledgers[place] = MemoryLedger(before.agent)
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
        for other in sorted((plug.neighbors - known) & self._plugs.keys()):
            if agent in self._plugs[other].neighbors:
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


@dataclass
class MemoryStore:
    """A store that is gone with the process."""

    state: State = field(default_factory=State)

    def load(self) -> State:
        state = self.state
        return State(state.sent, dict(state.received), state.newer_release, state.roster, list(state.batches))

    def save_sent(self, sent: Sent) -> None:
        self.state.sent = sent

    def save_received(self, received: Mapping[str, bytes], forgotten: Iterable[str] = ()) -> None:
        for sender in forgotten:
            self.state.received.pop(sender, None)
        self.state.received.update(received)

    def mark_newer_release(self, number: int) -> None:
        self.state.newer_release = number

    def mark_roster(self, version: int) -> None:
        self.state.roster = version

    def add_batch(self, batch: Samples) -> None:
        self.state.batches.append(batch)

    def close(self) -> None:
        """Nothing is open."""


class MemoryJournal:
    """A journal that is gone with the process."""

    def __init__(self) -> None:
        self._record = JournalRecord()
        self._rounds: list[Heard] = []

    def load(self) -> JournalRecord:
        return JournalRecord(self._record.edges, self._record.ended)

    def rounds(self) -> Iterator[Heard]:
        yield from self._rounds

    def begin(self, edges: Mapping[int, float]) -> None:
        self._record.edges = dict(edges)

    def add(self, heard: Heard) -> None:
        self._rounds.append(dict(heard))

    def end(self, ended: Ended) -> None:
        self._record.ended = ended
        self._rounds.clear()
