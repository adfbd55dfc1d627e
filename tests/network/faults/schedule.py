"""One schedule: a network, faults for a while, then none, and the time in which all has to be well again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.network.faults.bugs import NoBug
from tests.network.faults.disks import FAULTS
from tests.network.faults.post import Adversary, Weather
from tests.network.faults.problem import Quadratics, Roster, random_edges, random_samples
from tests.network.faults.watch import Broken
from tests.network.faults.world import FaultyWorld

from flockwise.data import Samples
from flockwise.net.time import SECOND
from flockwise.net.wire import Greeting, greet
from flockwise.runtime.testing import Packet, key_for_tests

FAULTY_SECONDS = 10
# Within this time after the last fault everyone must have learned what there is to learn.
SECONDS_TO_RECOVER = 90
WANTED_GAP = 1e-3
GHOST = "never-there"


@dataclass(frozen=True)
class Outcome:
    """How a schedule went that broke nothing."""

    events: int
    digest: str
    is_private: bool
    seconds_to_recover: int
    counts: Counter[str]


class Schedule:
    """All that happens under one seed."""

    def __init__(self, seed: int, bug: NoBug | None = None, folder: Path | None = None) -> None:
        """folder: for real files; without one the disks are in memory, and a run repeats bit by bit."""
        self.seed = seed
        self._chance = random.Random(seed)
        chance = self._chance
        self._is_private = chance.random() < 0.5
        dimension = chance.randint(1, 3)
        rosters = self._draw_rosters()
        names = sorted({name for roster in rosters for name in roster.members} - {GHOST})
        samples = {name: self._draw_samples(dimension) for name in names}
        self._world = FaultyWorld(
            chance,
            samples,
            rosters,
            "dp" if self._is_private else "none",
            n_events=chance.randint(4, 12),
            grows=chance.random() < 0.5,
            bug=NoBug() if bug is None else bug,
            folder=folder,
        )
        self._samples = samples
        self._adversary = Adversary(
            dimension, self._world.recorded, key_for_tests("adversary"), key_for_tests, self._world.privacy
        )

    def run(self) -> Outcome:
        world = self._world
        try:
            self._begin()
            for _ in range(self._chance.randint(4, 16)):
                world.after(self._chance.uniform(0, FAULTY_SECONDS), self._draw_fault())
            world.run_until(FAULTY_SECONDS * SECOND)
            self._heal()
            recovered = self._wait_for_recovery()
            world.check_budgets()
        except Exception as error:
            place = f"seed {self.seed}, event {world.events_done}, {world.now / SECOND:.3f} s"
            what = str(error) if isinstance(error, Broken) else repr(error)
            raise Broken(f"{place}: {what}") from error
        finally:
            for machine in world.machines.values():
                machine.disk.close()
        world.take_stock()
        return Outcome(world.events_done, world.digest, self._is_private, recovered, world.counts)

    # Before

    def _draw_rosters(self) -> list[Roster]:
        chance = self._chance
        members = [f"a{i}" for i in range(chance.randint(3, 5))]
        ghosts = [GHOST] if chance.random() < 0.3 else []
        rosters = [Roster(random_edges(chance, members + ghosts))]
        for _ in range(chance.choice([0, 0, 1, 2])):
            if chance.random() < 0.4:
                members = [*members, f"b{len(rosters)}"]
            if chance.random() < 0.3 and len(members) > 3:
                left = chance.choice(members)
                members = [name for name in members if name != left]
            before, edges = rosters[-1].edges, random_edges(chance, members + ghosts)
            for edge in edges:
                if edge in before and chance.random() < 0.5:
                    edges[edge] = before[edge]
            rosters.append(Roster(edges))
        return rosters

    def _draw_samples(self, dimension: int) -> Samples:
        return random_samples(self._chance, dimension, least=0 if self._chance.random() < 0.2 else 1)

    def _begin(self) -> None:
        world = self._world
        world.weather = Weather.drawn(self._chance)
        for name, machine in world.machines.items():
            if name in world.rosters[0].members:
                world.after(
                    self._chance.choice([0.0, self._chance.uniform(0, 5)]), lambda n=name: world.boot(n)
                )
            else:
                machine.is_wanted = False
        for version in range(1, len(world.rosters)):
            world.after(self._chance.uniform(1, FAULTY_SECONDS), lambda v=version: self._spread_roster(v))

    # Faults

    def _draw_fault(self) -> Callable[[], None]:
        often = [self._kill, self._write_fault, self._restore, self._inject]
        seldom = [self._full_disk, self._partition, self._hang, self._weather, self._add_samples]
        return self._chance.choice(2 * often + seldom)

    def _some_agent(self) -> str:
        return self._chance.choice(sorted(self._world.machines))

    def _kill(self) -> None:
        self._world.kill(self._some_agent())

    def _write_fault(self) -> None:
        """The next writes, or some writes later, go wrong."""
        writes = self._world.machines[self._some_agent()].disk.writes
        writes.next_faults = [self._chance.choice(FAULTS) for _ in range(self._chance.randint(1, 2))]

    def _full_disk(self) -> None:
        writes = self._world.machines[self._some_agent()].disk.writes
        writes.is_full = True

        def free() -> None:
            writes.is_full = False

        self._world.after(self._chance.uniform(0.5, 5), free)

    def _partition(self) -> None:
        world, chance = self._world, self._chance
        half = {name for name in sorted(world.machines) if chance.random() < 0.5}
        cut = {frozenset((a, b)) for a in half for b in world.machines if b not in half}
        world.cut |= cut
        world.look_around()

        def heal() -> None:
            world.cut -= cut
            world.look_around()

        world.after(chance.uniform(0.1, 6), heal)

    def _hang(self) -> None:
        machine = self._world.machines[self._some_agent()]
        machine.hung_until = self._world.now + round(self._chance.uniform(0.5, 6) * SECOND)

    def _weather(self) -> None:
        self._world.weather = Weather.drawn(self._chance)

    def _restore(self) -> None:
        """A copy of a disk is made, and some time later put back."""
        world, name = self._world, self._some_agent()
        machine = world.machines[name]
        if not machine.incarnation:
            return
        backup = machine.disk.backup()

        def put_back() -> None:
            world.kill(name)
            machine.disk.restore(backup)
            world.watch.misled.add(name)

        world.after(self._chance.uniform(1, 5), put_back)

    def _add_samples(self) -> None:
        self._world.add_samples(
            self._some_agent(), random_samples(self._chance, self._world.dimension, least=1)
        )

    def _inject(self) -> None:
        """A burst of hostile bytes."""
        world, chance = self._world, self._chance
        for _ in range(chance.randint(1, 12)):
            receiver, sender = self._some_agent(), self._some_agent()
            data = self._adversary.bytes_for(sender, chance)
            world.inject(Packet(sender, receiver, "published", data))
            if chance.random() < 0.3:
                weight = world.rosters[-1].neighbors_of(sender).get(receiver, 1.0)
                world.inject(Packet(sender, receiver, "greeting", greet(Greeting(weight, 1, data, data))))

    def _spread_roster(self, version: int) -> None:
        """A newer roster reaches everyone, one after the other; who is new starts, who is out stops."""
        world, chance = self._world, self._chance
        for name in sorted(world.machines):
            world.after(chance.uniform(0, 3), lambda n=name: self._apply_roster(n, version))

    def _apply_roster(self, name: str, version: int) -> None:
        world = self._world
        machine = world.machines[name]
        if version <= machine.version:
            return
        world.apply_roster(name, version)
        if name not in world.rosters[version].members:
            world.shut_down(name)
        elif not machine.is_wanted:
            machine.is_wanted = True
            world.boot(name)

    # After

    def _heal(self) -> None:
        world = self._world
        world.weather, world.cut = Weather(), set()
        for name, machine in world.machines.items():
            machine.disk.writes.next_faults = []
            machine.disk.writes.is_full = False
            self._apply_roster(name, len(world.rosters) - 1)
            if machine.node is not None and machine.node.obstacle in ("ledger", "store"):
                world.kill(name)  # its owner has seen to the disk
        world.look_around()

    def _wait_for_recovery(self) -> int:
        world, missing = self._world, None
        for second in range(1, SECONDS_TO_RECOVER + 1):
            world.run_until((FAULTY_SECONDS + second) * SECOND)
            missing = self._missing()
            if missing is None:
                return second
        raise Broken(f"{SECONDS_TO_RECOVER} s after the last fault {missing}")

    def _missing(self) -> str | None:
        """What is not yet as it should be."""
        world = self._world
        wanted = {name for name, machine in world.machines.items() if machine.is_wanted}
        if world.lives.keys() != wanted:
            return f"only {sorted(world.lives)} of {sorted(wanted)} run"
        for name, node in world.lives.items():
            if node.obstacle in ("ledger", "store"):
                return f"{name} is stopped by {node.obstacle}"
        return self._unspent() if self._is_private else self._unlearned()

    def _unlearned(self) -> str | None:
        world = self._world
        samples = {name: world.samples_of(name) for name in world.lives}
        optimum = Quadratics(samples, world.rosters[-1].edges)
        gap = optimum.gap({name: node.agent.model for name, node in world.lives.items()})
        return None if gap <= WANTED_GAP else f"the objective is {gap:.2g} above its minimum"

    def _unspent(self) -> str | None:
        world = self._world
        for name, node in world.lives.items():
            if node.obstacle == "behind" or not len(self._samples[name].targets):
                continue
            if len(world.machines[name].disk.entries()) < world.n_events:
                return f"{name} has released {node.sent.number} of {world.n_events}"
            for other in world.rosters[-1].neighbors_of(name):
                if other in world.lives and world.lives[other].intake.last_number(name) != node.sent.number:
                    return f"{other} has not got the last release of {name}"
        return None
