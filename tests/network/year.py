"""A year in fast time: `python -m tests.network.year --days 365`.

50 agents with a budget each. Every day one joins, one leaves, one moves to another address, one crashes,
every third time in the middle of a write, and the certificate of one lapses and is renewed hours later; other
certificates are renewed every month, in time. Once a month an agent is revoked: it runs on, and sends what it
likes to its old neighbors.
Agents, disks, post and watch are those of `tests.network.faults`. A real authority signs certificates and
rosters, and agents take rosters over as hosts do.

Agents tick twice a day. In the minute after anything changed around it, an agent wakes whenever it asks to,
as on a real host. In quiet hours it wakes for its ticks alone, and its greetings wait for them.
"""

from __future__ import annotations

import argparse
import random
import time as wall
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
from tests.network.faults.bugs import NoBug
from tests.network.faults.disks import MemoryDisk
from tests.network.faults.post import NETWORK, Weather
from tests.network.faults.problem import Roster, random_edges, random_samples, settings_of
from tests.network.faults.watch import Broken
from tests.network.faults.world import FaultyWorld, Machine

from flockwise.deploy.certificates import certificate_from_pem, check_issued
from flockwise.deploy.identity import Authority, Keys
from flockwise.deploy.roster import SignedNeighborhood, neighborhoods, read_neighborhood, sign_neighborhood
from flockwise.graph import SimilarityGraph
from flockwise.net.node import Node
from flockwise.net.signing import public_key_of
from flockwise.net.time import SECOND
from flockwise.net.transport import Place
from flockwise.net.wire import Greeting, ModelBody, greet, sign
from flockwise.privacy.messages import encode
from flockwise.runtime.testing import Packet, key_for_tests

AGENTS = 50
DIMENSION = 2
UPDATES = 60  # a budget lasts for a month
EDGES = 3  # of an agent that joins
DAY_SECONDS = 24 * 3600
DAY = DAY_SECONDS * SECOND
TICK_RATE = 2 / DAY_SECONDS
MINUTE = 60 * SECOND
CERTIFICATE_DAYS = 30
MONTH = 30
LAPSE = 9000 * SECOND
TAKE_OVER = 10  # seconds until the last agent has looked at its new roster


class Office:
    """The authority, and the network as it knows it. An agent keeps its number for ever."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._authority = Authority.new(NETWORK)
        self._began = datetime.now(UTC).replace(microsecond=0)
        self.version = 0
        self.places: dict[str, Place] = {}
        self.edges: dict[frozenset[str], float] = {}
        self._cut: dict[str, SignedNeighborhood] = {}
        self._n_placed = 0
        self._removed: list[str] = []

    def found(self, names: list[str]) -> None:
        self.edges = random_edges(self._chance, names)
        for name in names:
            self._place(name)
        self._sign()

    def join(self, name: str) -> None:
        for other in self._chance.sample(self.members, EDGES):
            self._connect(name, other)
        self._place(name)
        self._sign()

    def remove(self, name: str) -> None:
        """Nobody is left without a neighbor."""
        self._removed.append(name)
        before = set(self.members) - {name}
        self.edges = {edge: weight for edge, weight in self.edges.items() if name not in edge}
        for lonely in sorted(before - set(self.members)):
            self._connect(lonely, self._chance.choice(self.members))
        self._sign()

    def move(self, name: str) -> None:
        self._place(name)
        self._sign()

    @property
    def members(self) -> list[str]:
        return sorted({name for edge in self.edges for name in edge})

    def slice_of(self, name: str) -> SignedNeighborhood:
        """The newest one, read from what the authority signed."""
        return read_neighborhood(
            sign_neighborhood(self._cut[name], self._authority), name, self._authority.trust
        )

    def certify(self, name: str, now: int, days: float) -> int:
        """Sign a certificate that ends after so many days; when that is."""
        ends = timedelta(seconds=now // SECOND + round(days * DAY_SECONDS))
        keys = Keys(Keys.new([name]).tls, {name: key_for_tests(name)})
        request = keys.request(NETWORK, name, self.places[name].address)
        lifetime = self._began + ends - datetime.now(UTC)
        trust = self._authority.trust
        certificate = certificate_from_pem(self._authority.certify(request, {}, lifetime=lifetime))
        check_issued(
            certificate,
            certificate_from_pem(trust.certificate),
            self._began + timedelta(seconds=now / SECOND),
        )
        return round((certificate.not_valid_after_utc - self._began).total_seconds()) * SECOND

    def _connect(self, one: str, other: str) -> None:
        self.edges[frozenset((one, other))] = self._chance.uniform(0.2, 2)

    def _place(self, name: str) -> None:
        """Where nobody was before."""
        self._n_placed += 1
        address = f"10.0.{self._n_placed // 250}.{1 + self._n_placed % 250}:7447"
        self.places[name] = Place(name, name, address, public_key_of(key_for_tests(name)))

    def _sign(self) -> None:
        self.version += 1
        numbers = {name: number for number, name in enumerate(self.places)}
        pairs = [tuple(sorted(numbers[name] for name in edge)) for edge in self.edges]
        graph = SimilarityGraph.from_edges(
            len(numbers), np.array(pairs, np.int64), np.array(list(self.edges.values()))
        )
        cut = neighborhoods(
            NETWORK,
            self.version,
            graph,
            list(self.places.values()),
            dimension=DIMENSION,
            tick_rate=TICK_RATE,
            settings=settings_of("dp").to_json(),
            removed=self._removed,
        )
        self._cut = {one.agent: one for one in cut}


class YearWorld(FaultyWorld):
    """Agents whose certificates end, whose addresses change, and who wake seldom in quiet hours."""

    notice = 5.0  # seconds

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.office = Office(chance)
        names = [f"agent{number}" for number in range(AGENTS)]
        self.office.found(names)
        samples = {name: random_samples(chance, DIMENSION, least=1) for name in names}
        super().__init__(chance, samples, [Roster(self.office.edges)], "dp", UPDATES, False, NoBug())
        self.weather = Weather(drop=0.1, duplicate=0.05, delay=0.1)
        self.slowest = 0
        """The longest that two living neighbors were out of contact after an event."""
        self.releases = 0
        """Of agents that have gone."""
        self._held: dict[str, SignedNeighborhood] = {}
        self._address: dict[str, str] = {}
        self._valid_until: dict[str, int] = {}
        self._awake_until: dict[str, int] = {}
        self._last_event = 0
        self._n_named = AGENTS
        for name in names:
            self._install(name)
        self._happen("begins")

    def run_day(self, day: int) -> None:
        events: list[Callable[[], None]] = [self._join, self._leave, self._crash, self._move, self._expire]
        if day % MONTH == MONTH - 1:
            events.append(self._revoke)
        for event in events:
            self.after(self.chance.uniform(0, DAY_SECONDS - 300), event)
        self.run_until((day + 1) * DAY)
        self.check_budgets()
        for machine in self.machines.values():
            numbers = [number for number, _ in machine.disk.writes.released]
            if len(set(numbers)) < len(numbers):
                raise Broken(f"{machine.name} drew a number twice: {numbers}")

    def check_contacts(self) -> None:
        """All living neighbors are in contact, a minute after an event."""
        if self._last_event > self.now - MINUTE:
            return  # there will be another look, a minute after that one
        for edge in self.office.edges:
            for one, other in (sorted(edge), sorted(edge, reverse=True)):
                if self._lives(one) and self._lives(other):
                    self._check_contact(one, other)

    def _check_contact(self, one: str, other: str) -> None:
        node = self.lives[one]
        if self._held[one].version != self.office.version:
            raise Broken(f"{one} has roster {self._held[one].version} of {self.office.version}")
        since = node._contacts[other].greeted_since
        if since is None:
            raise Broken(f"a minute after the last event {one} has not heard from {other}")
        self.slowest = max(self.slowest, since - self._last_event)

    # What happens

    def _happen(self, what: str) -> None:
        self.counts[what] += 1
        self._last_event = self.now
        self.after(60, self.check_contacts)

    def _join(self) -> None:
        name = f"agent{self._n_named}"
        self._n_named += 1
        self._happen("joins")
        self.office.join(name)
        samples = random_samples(self.chance, DIMENSION, least=1)
        self.machines[name] = Machine(name, samples, MemoryDisk(name), len(self.rosters))
        self._spread()
        self._install(name)

    def _leave(self) -> None:
        name = self._some_agent()
        self._happen("leaves")
        self.shut_down(name)
        self.office.remove(name)
        self._spread()
        self.after(DAY_SECONDS, lambda: self._forget(name))

    def _revoke(self) -> None:
        """Its old neighbors know it no more a minute later, whatever it sends them."""
        name = self._some_agent()
        victims = sorted(self._held[name].keys())
        self._happen("revoked")
        self.office.remove(name)
        if not self.office.slice_of(name).is_removed:
            raise Broken(f"the roster of {name} does not say that it was revoked")
        self._spread(but=name)
        for hour in range(20):
            self.after(61 + hour * 3600, lambda hour=hour: self._attack(name, victims, 10**6 + hour))
        self.after(DAY_SECONDS, lambda: self._forget(name))

    def _attack(self, name: str, victims: list[str], number: int) -> None:
        body = ModelBody(NETWORK, name, number, "dp", encode(number, np.ones(DIMENSION)))
        data = sign(body, key_for_tests(name))
        for victim in victims:
            if victim in self.lives:
                refused = self.lives[victim].intake.dropped
                before = refused["unknown_sender"]
                self.inject(Packet(name, victim, "published", data))
                self.inject(Packet(name, victim, "greeting", greet(Greeting(1.0, 1, data, None))))
                if refused["unknown_sender"] != before + 2:
                    raise Broken(f"{victim} listens to {name}, which was revoked")

    def _crash(self) -> None:
        """At once, or at its next write. Something starts it again soon."""
        name = self._some_agent()
        if self.chance.random() < 1 / 3:
            self.machines[name].disk.writes.next_faults = [self.chance.choice(["dies before", "dies after"])]
        else:
            self.kill(name)

    def _move(self) -> None:
        """It stops, and starts elsewhere when there is a roster with its new address."""
        name = self._some_agent()
        self._happen("moves")
        self.shut_down(name)

        def arrive() -> None:
            self._happen("arrives")
            self.office.move(name)
            self._spread()
            self._take_roster(name)
            self._address[name] = self.office.places[name].address
            self.machines[name].is_wanted = True
            self.boot(name)

        self.after(1800, arrive)

    def _expire(self) -> None:
        """A certificate is signed for some hours only, and nobody renews it in time."""
        self._certify(self._some_agent(), self.chance.uniform(0.05, 0.2), is_late=True)

    def _certify(self, name: str, days: float, *, is_late: bool = False) -> None:
        """It is renewed in time, or lapses for some hours."""
        until = self._valid_until[name] = self.office.certify(name, self.now, days)
        self.look_around()
        if is_late:
            self.at(until, lambda: self._lapse(name, until))
        self.at(until + (LAPSE if is_late else -LAPSE), lambda: self._renew(name, until))

    def _is_last(self, name: str, until: int) -> bool:
        """Whether that is still the end of its certificate."""
        return name in self.office.members and self._valid_until[name] == until

    def _lapse(self, name: str, until: int) -> None:
        if self._is_last(name, until):
            self._happen("lapses")
            self.look_around()

    def _renew(self, name: str, until: int) -> None:
        if self._is_last(name, until):
            self._happen("renews")
            self._certify(name, CERTIFICATE_DAYS)

    # How the network comes to know

    def _install(self, name: str) -> None:
        self._held[name] = self.office.slice_of(name)
        self._address[name] = self.office.places[name].address
        self._certify(name, self.chance.uniform(1, CERTIFICATE_DAYS))
        self.boot(name)

    def _spread(self, but: str | None = None) -> None:
        """Everyone looks at its roster from time to time."""
        self.rosters.append(Roster(self.office.edges))
        for name in self.office.members:
            if name != but and name in self._held:
                self.after(self.chance.uniform(0, TAKE_OVER), lambda name=name: self._take_roster(name))

    def _take_roster(self, name: str) -> None:
        if name in self.office.members:
            self._held[name] = self._held[name].successor(self.office.slice_of(name))
            self.apply_roster(name, self.office.version - 1)

    def _slice(self, machine: Machine) -> SignedNeighborhood:
        return self._held[machine.name]

    def _forget(self, name: str) -> None:
        """Its machine is switched off."""
        machine = self.machines[name]
        machine.is_wanted = False
        self.kill(name)
        self.check_budgets()
        self.releases += len(machine.disk.entries())
        del self.machines[name]

    def _some_agent(self) -> str:
        return self.chance.choice([name for name in self.office.members if self._lives(name)])

    def _lives(self, name: str) -> bool:
        return name in self.lives and self.now < self._valid_until[name]

    # The parts of a faulty world that differ here

    def boot(self, name: str) -> None:
        if name in self.machines:
            super().boot(name)

    def _bury(self, machine: Machine) -> None:
        super()._bury(machine)
        if machine.is_wanted:
            self._happen("crashes")

    def _deliver(self, packet: Packet, incarnation: int) -> None:
        if packet.receiver in self.machines:
            super()._deliver(packet, incarnation)

    def _is_connected(self, one: str, other: str) -> bool:
        return super()._is_connected(one, other) and self._can_dial(one, other) and self._can_dial(other, one)

    def _can_dial(self, one: str, other: str) -> bool:
        return self.now < self._valid_until[other] and any(
            link.name == other and link.address == self._address[other] for link in self._held[one].neighbors
        )

    def _tell(self, machine: Machine, other: str, is_up: bool) -> None:
        self._awake_until[machine.name] = self.now + round(self.notice * SECOND) + MINUTE
        super()._tell(machine, other, is_up)

    def _next_wake(self, name: str, node: Node) -> int | None:
        return node.next_wake() if self.now < self._awake_until.get(name, 0) else node.agent.next_tick


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.network.year", description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began, world = wall.process_time(), YearWorld(options.seed)
    for day in range(options.days):
        world.run_day(day)
    world.take_stock()
    releases = world.releases + sum(len(machine.disk.entries()) for machine in world.machines.values())
    print(
        f"{options.days} days in {wall.process_time() - began:.0f} s of one core, {world.events_done} events"
    )
    print(f"releases: {releases}; slowest contact after an event: {world.slowest / SECOND:.1f} s")
    print(", ".join(f"{what} {count}" for what, count in sorted(world.counts.items())))
    print(world.digest)


if __name__ == "__main__":
    main()
