"""Agents on a clock, a network and disks that belong to a schedule: their lives, deaths and restarts."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.network.faults.bugs import NoBug
from tests.network.faults.disks import Disk, FileDisk, Killed, MemoryDisk
from tests.network.faults.post import NETWORK, Weather, arrivals
from tests.network.faults.problem import Roster, settings_of
from tests.network.faults.watch import Broken, Life, Watch, watch_intake

from flockwise.data import Samples
from flockwise.deploy.folder import NoBudget, OwnBudget
from flockwise.deploy.roster import Link, SignedNeighborhood
from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.node import Node
from flockwise.net.signing import Verifier, public_key_of
from flockwise.net.time import SECOND, PoissonClock
from flockwise.net.transport import Place
from flockwise.net.wire import PrivacyLabel, open_greeting
from flockwise.privacy import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.ledger import LedgerBase
from flockwise.privacy.messages import decode
from flockwise.privacy.noise import Noise, SecureNoise
from flockwise.runtime.participant import AgentDefinition, AgentResources, Participant
from flockwise.runtime.testing import ManualTime, MemoryJournal, Packet, key_for_tests

TICK_RATE = 2.0
CLIP = 1.0
BUDGET = Budget(8.0, 1e-3)
# Room for the last digits: noise is scaled to the sensitivity.
ROUNDING = 1 + 1e-9


def place_of(name: str) -> Place:
    return Place(name, name, "127.0.0.1:7447", public_key_of(key_for_tests(name)))


class FreshNoise:
    """Different at every draw, so nothing drawn twice comes out the same by luck."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def check(self, event: Any) -> None:
        """Any event will do."""

    def draw(self, event: Any, number: int) -> np.ndarray:
        return np.array([self._chance.gauss(0, event.scale) for _ in range(event.dimension)])


@dataclass
class Machine:
    """Where an agent lives: its disk stays, its node comes and goes."""

    name: str
    samples: Samples  # those that it began with
    disk: Disk
    version: int
    agent: Participant | None = None
    life: Life | None = None
    incarnation: int = 0
    is_wanted: bool = True  # whether it ought to run
    hung_until: int = 0
    wake_at: int | None = None
    sees: set[str] = field(default_factory=set)
    verifier: Verifier = field(default_factory=Verifier)

    @property
    def node(self) -> Node | None:
        return None if self.agent is None else self.agent.node


class FaultyWorld:
    """Runs events in the order of time. Every decision comes from `chance`, every digest from every event.

    notice: after how many seconds an agent notices that a neighbor came or went.
    """

    notice = 0.02

    def __init__(
        self,
        chance: random.Random,
        samples: Mapping[str, Samples],
        rosters: list[Roster],
        privacy: PrivacyLabel,
        n_events: int,
        grows: bool,
        bug: NoBug,
        folder: Path | None = None,
    ) -> None:
        self.chance = chance
        self.rosters = rosters
        self.privacy: PrivacyLabel = privacy
        self.n_events = n_events
        self.grows = grows
        self.time = ManualTime()
        self.weather = Weather()
        self.cut: set[frozenset[str]] = set()
        self.dimension = next(iter(samples.values())).features.shape[1]
        self.watch = Watch(privacy, self.dimension, n_events)
        self.recorded: list[tuple[str, bytes]] = []
        self.events_done = 0
        self.counts: Counter[str] = Counter()
        self.has_files = folder is not None
        self._bug = bug
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._n_pushed = 0
        self._digest = hashlib.sha256()
        self.machines = {
            name: Machine(name, mine, self._new_disk(name, folder), version=0)
            for name, mine in samples.items()
        }

    @property
    def now(self) -> int:
        return self.time.now()

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._digest.hexdigest()

    @property
    def lives(self) -> dict[str, Node]:
        return {name: machine.node for name, machine in self.machines.items() if machine.node is not None}

    # The queue

    def at(self, time: int, action: Callable[[], None]) -> None:
        self._n_pushed += 1
        heapq.heappush(self._queue, (time, self._n_pushed, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + round(seconds * SECOND), action)

    def run_until(self, until: int) -> None:
        while self._queue and self._queue[0][0] <= until:
            time, _, action = heapq.heappop(self._queue)
            self.time.move_to(time)
            self.events_done += 1
            action()
        self.time.move_to(until)

    # Lives

    def boot(self, name: str) -> None:
        """Start an agent on what its disk holds; if that fails, it is tried again."""
        machine = self.machines[name]
        if machine.node is not None or not machine.is_wanted:
            return
        machine.incarnation += 1
        self._note(f"boot {name}")
        self.counts["lives"] += 1
        try:
            machine.life = Life(self._spends(machine), self._on_disk_of(machine))
            machine.agent = self._make_agent(machine, machine.life)
            machine.agent.node.start(self.now)
        except Killed:
            self._bury(machine)
        except FlockwiseError as error:
            self._note(f"{name} does not start: {type(error).__name__}")
            self._bury(machine)
        else:
            self._after_call(machine)
        self.look_around()

    def kill(self, name: str) -> None:
        """SIGKILL: all that is not on disk is gone."""
        machine = self.machines[name]
        if machine.node is not None:
            self._note(f"kill {name}")
            self._bury(machine)
            self.look_around()

    def shut_down(self, name: str) -> None:
        """An end in peace, for good."""
        machine = self.machines[name]
        machine.is_wanted = False
        if machine.node is not None:
            self._guarded(machine, machine.node.stop)
        self.kill(name)

    def take_stock(self) -> None:
        """Count what the lives that are still going on have seen."""
        for machine in self.machines.values():
            self._count(machine)

    def _count(self, machine: Machine) -> None:
        if machine.node is not None:
            self.counts.update({f"dropped: {k}": n for k, n in machine.node.intake.dropped.items()})
            self.counts[f"stopped: {machine.node.obstacle}"] += machine.node.obstacle is not None
            self.counts["accepted"] += machine.node.intake.accepted

    def _bury(self, machine: Machine) -> None:
        self._count(machine)
        machine.agent = machine.life = machine.wake_at = None
        machine.sees = set()
        machine.hung_until = 0
        machine.disk.close()
        if machine.is_wanted:
            self.after(0.1 + self.chance.random(), lambda: self.boot(machine.name))

    def _make_agent(self, machine: Machine, life: Life) -> Participant:
        noise: Noise = SecureNoise() if self.has_files else FreshNoise(self.chance)
        resources = AgentResources(
            machine.disk.open_store(),
            _OneLedger(lambda: self._bug.open_ledger(machine.disk)),
            MemoryJournal,
            noise,
            _Tap(self, machine),
            self.time,
            machine.verifier,
            lambda rate, limit: PoissonClock(rate, limit=limit, randomness=self.chance),
        )
        definition = AgentDefinition(
            self._slice(machine), self._own_privacy(), machine.samples, key_for_tests(machine.name)
        )
        agent = Participant(definition, resources)
        self._bug.change(agent.node)
        watch_intake(agent.node.intake, self.watch, life, lambda: self.now)
        return agent

    def _own_privacy(self) -> NoBudget | OwnBudget:
        if self.privacy == "none":
            return NoBudget()
        return OwnBudget(
            epsilon=BUDGET.epsilon,
            delta=BUDGET.delta,
            updates=self.n_events,
            clip=CLIP,
        )

    def _slice(self, machine: Machine) -> SignedNeighborhood:
        links = [
            Link(**vars(place_of(other)), index=index, weight=weight)
            for index, (other, weight) in enumerate(self._weights(machine.name).items())
        ]
        return SignedNeighborhood(
            NETWORK,
            1 + machine.version,
            len(links),
            place_of(machine.name),
            self.dimension,
            TICK_RATE,
            tuple(links),
            settings_of(self.privacy).to_json(),
        )

    def _spends(self, machine: Machine) -> bool:
        return self.privacy == "dp" and len(machine.samples.targets) > 0

    def _new_disk(self, name: str, folder: Path | None) -> Disk:
        return MemoryDisk(name) if folder is None else FileDisk(name, folder / name)

    # Data

    def add_samples(self, name: str, batch: Samples) -> None:
        """New samples arrive at an agent, if it can take any."""
        machine = self.machines[name]
        agent, is_private = machine.agent, self.privacy == "dp"
        if agent is None or (is_private and not (self.grows and self._spends(machine))):
            return
        self._note(f"samples for {name}")
        self.counts["arrivals"] += 1

        def add() -> None:
            with suppress(NetworkError):  # the disk failed: who brings the samples is told
                agent.add_data(batch.features, batch.targets)

        self._guarded(machine, add)

    def samples_of(self, name: str) -> Samples:
        """All that a living agent learns from."""
        agent = self.machines[name].agent
        assert agent is not None
        return agent.samples

    def check_budgets(self) -> None:
        """What every ledger says was charged fits the budget."""
        accountant = ACCOUNTANTS["zcdp" if self.has_files else "gdp"]
        for machine in self.machines.values():
            events = [entry.event for entry in machine.disk.entries()]
            spent = accountant.epsilon(events, BUDGET.delta) if events else 0.0
            if spent > BUDGET.epsilon * ROUNDING:
                raise Broken(f"{machine.name} has spent {spent} of {BUDGET.epsilon}")

    # Rosters

    def apply_roster(self, name: str, version: int) -> None:
        """A newer roster reaches an agent, running or not."""
        machine = self.machines[name]
        if version <= machine.version:
            return
        self._note(f"roster {version} for {name}")
        machine.version = version
        node = machine.node
        if node is not None:
            keys = self._slice(machine).keys()
            machine.sees &= keys.keys()
            assert machine.life is not None
            for left in machine.life.up.keys() - keys.keys():
                machine.life.on_presence(left, False, self.now)
            self._guarded(machine, lambda: node.set_neighbors(keys, 1 + version))
        self.look_around()

    # The network

    def publish(self, machine: Machine, data: bytes) -> None:
        self._watch_sent(machine, data)
        for other in sorted(self.machines):
            if other != machine.name and machine.name in self._weights(other):
                self._post(Packet(machine.name, other, "published", data))

    def send(self, machine: Machine, receiver: str, data: bytes) -> None:
        mine = open_greeting(data, len(data)).mine
        if mine is not None:
            self._watch_sent(machine, mine)
        self._post(Packet(machine.name, receiver, "greeting", data))

    def inject(self, packet: Packet) -> None:
        """Bytes of the adversary."""
        self._note(f"inject {packet.sender} {packet.receiver} {packet.kind}")
        self._deliver(packet, self.machines[packet.receiver].incarnation)

    def _weights(self, name: str) -> dict[str, float]:
        return self.rosters[self.machines[name].version].neighbors_of(name)

    def _watch_sent(self, machine: Machine, data: bytes) -> None:
        assert machine.life is not None
        writes = machine.disk.writes

        def was_written(number: int, payload: bytes) -> bool:
            if self._spends(machine):
                return (number, payload) in writes.released or self._is_last_word(machine, number, payload)
            return any(sent.number == number and sent.data == data for sent in writes.sent)

        self.watch.on_sent(machine.name, data, was_written, machine.life)
        self.recorded.append((machine.name, data))

    def _post(self, packet: Packet) -> None:
        if not self._is_connected(packet.sender, packet.receiver):
            return
        incarnation = self.machines[packet.receiver].incarnation
        for delay, arriving in arrivals(packet, self.weather, self.chance):
            self.at(self.now + delay, lambda arriving=arriving: self._deliver(arriving, incarnation))

    def _deliver(self, packet: Packet, incarnation: int) -> None:
        """A connection ends with either process: nothing reaches a later life of the receiver."""
        machine = self.machines[packet.receiver]
        if machine.node is None or machine.incarnation != incarnation:
            return
        if machine.hung_until > self.now:
            self.at(machine.hung_until, lambda: self._deliver(packet, incarnation))
            return
        self._note(f"{packet.kind} {packet.sender} {packet.receiver}", packet.data)
        node = machine.node
        receive = node.on_published if packet.kind == "published" else node.on_greeting
        self._guarded(machine, lambda: receive(packet.sender, packet.data))

    def _is_connected(self, one: str, other: str) -> bool:
        return (
            frozenset((one, other)) not in self.cut
            and self.machines[one].node is not None
            and self.machines[other].node is not None
            and one in self._weights(other)
            and other in self._weights(one)
        )

    def look_around(self) -> None:
        """Agents notice soon that a neighbor came or went."""
        for name in sorted(self.machines):
            machine = self.machines[name]
            if machine.node is None:
                continue
            for other in sorted(self._weights(name)):
                is_up = other in self.machines and self._is_connected(name, other)
                if is_up != (other in machine.sees):
                    (machine.sees.add if is_up else machine.sees.discard)(other)
                    self._tell(machine, other, is_up)

    def _tell(self, machine: Machine, other: str, is_up: bool) -> None:
        incarnation = machine.incarnation

        def tell() -> None:
            node = machine.node
            if node is not None and machine.incarnation == incarnation:
                self._note(f"{machine.name} sees {other} {is_up}")
                assert machine.life is not None
                if other in self._weights(machine.name):  # news of one that has just left say nothing
                    machine.life.on_presence(other, is_up, self.now)
                self._guarded(machine, lambda: node.on_presence(other, is_up))

        # In the order in which things happened, since all take equally long.
        self.after(self.notice, tell)

    # Calls into nodes

    def _guarded(self, machine: Machine, call: Callable[[], Any]) -> None:
        """A call that the agent may not survive."""
        try:
            call()
            self._bug.after_call(machine.disk)
        except Killed:
            self._note(f"{machine.name} dies")
            self.counts["died at a write"] += 1
            self._bury(machine)
            self.look_around()
            return
        self._after_call(machine)

    def _after_call(self, machine: Machine) -> None:
        node = machine.node
        if node is None:
            return
        self.watch.on_model(machine.name, node.agent.model)
        wake = self._next_wake(machine.name, node)
        if wake is not None and (machine.wake_at is None or wake < machine.wake_at):
            machine.wake_at = max(wake, self.now)
            incarnation = machine.incarnation
            self.at(machine.wake_at, lambda: self._wake(machine, incarnation))

    def _next_wake(self, name: str, node: Node) -> int | None:
        return node.next_wake()

    def _wake(self, machine: Machine, incarnation: int) -> None:
        node = machine.node
        if node is None or machine.incarnation != incarnation or machine.wake_at != self.now:
            return
        if machine.hung_until > self.now:
            machine.wake_at = machine.hung_until
            self.at(machine.wake_at, lambda: self._wake(machine, incarnation))
            return
        machine.wake_at = None
        spent, life = len(machine.disk.writes.released), machine.life
        assert life is not None
        self._note(f"wake {machine.name}")
        self._guarded(machine, lambda: node.tick(self.now))
        if len(machine.disk.writes.released) > spent:
            self.watch.on_spent(machine.name, machine.disk.writes.released[-1][0], life, self.now)

    def _on_disk_of(self, machine: Machine) -> Callable[[int, bytes], bool]:
        """Whether a release is in the ledger of this life: what the disk had, and what it wrote since."""
        known = {(entry.number, entry.payload) for entry in machine.disk.entries()}
        first = len(machine.disk.writes.released)

        def is_on_disk(number: int, payload: bytes) -> bool:
            release = (number, payload)
            return (
                release in known
                or release in machine.disk.writes.released[first:]
                or self._is_last_word(machine, number, payload)
            )

        return is_on_disk

    def _is_last_word(self, machine: Machine, number: int, payload: bytes) -> bool:
        """Whether it is the mean of the later half of all releases, which are on disk."""
        entries = machine.disk.entries()
        if number != self.n_events + 1 or len(entries) < self.n_events:
            return False
        released = [entry.payload for entry in entries[self.n_events // 2 :] if entry.payload is not None]
        mean = np.mean([decode(one)[1] for one in released], axis=0)
        return bool(np.allclose(decode(payload)[1], mean, rtol=1e-9, atol=1e-12))

    def _note(self, what: str, data: bytes = b"") -> None:
        self._digest.update(f"{self.now} {what} ".encode())
        if not self.has_files:
            self._digest.update(data)


class _OneLedger:
    """All samples of an agent share one budget in a schedule."""

    def __init__(self, open_it: Callable[[], LedgerBase]) -> None:
        self._open = open_it

    def make(self, place: int) -> None:
        raise AssertionError("no batch has a ledger of its own")

    def open(self, place: int) -> LedgerBase:
        assert place == 0
        return self._open()

    def has(self, place: int) -> bool:
        return place == 0


class _Tap:
    """The transport of one node: it belongs to a life, and the dead do not send."""

    def __init__(self, world: FaultyWorld, machine: Machine) -> None:
        self._world = world
        self._machine = machine

    def publish(self, sender: str, data: bytes) -> None:
        self._world.publish(self._machine, data)

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        self._world.send(self._machine, receiver, data)
