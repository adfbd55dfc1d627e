"""One process with many agents on one clock: the agents of the product, in memory or from their folders."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.network.signers import NETWORK

from flockwise.data import Samples
from flockwise.deploy.folder import AgentFolder
from flockwise.deploy.settings import NetworkSettings
from flockwise.deploy.setup import Member, create_network, free_addresses
from flockwise.errors import NetworkError
from flockwise.net.signing import Verifier
from flockwise.net.time import SECOND, PoissonClock
from flockwise.net.wire import PrivacyLabel
from flockwise.objective import Problem
from flockwise.runtime.durable import open_participant
from flockwise.runtime.participant import Participant
from flockwise.runtime.testing import (
    AgentMemory,
    ManualTime,
    MemoryNetwork,
    MemoryStore,
    SimulatedNoise,
    run_for,
    start_agents,
    step,
)

SAMPLES = Samples(
    np.array([[0.5, 0.5], [0.1, -0.7], [-0.3, 0.2], [0.6, 0.0]]), np.array([1.0, -0.5, 0.3, 2.0])
)


class EverySecond:
    """Ticks every second, for as many updates as `limit` says."""

    def __init__(self, limit):
        self._limit = limit

    def next_tick(self, updates, now):
        return now + SECOND if updates < self._limit() else None


def every_second(number, rate, limit):
    return EverySecond(limit)


def poisson_by(chance):
    """Clocks of agents in a world, all from one source of randomness."""
    return lambda number, rate, limit: PoissonClock(rate, limit=limit, randomness=chance)


class World:
    """Agents that start, stop, die and start again. They go by their names, or by numbers: 3 is "agent3".

    verifier: shared as by the agents of one process; without one each agent checks every signature itself.
    """

    def __init__(
        self,
        names,
        *,
        network: MemoryNetwork | None = None,
        time: ManualTime | None = None,
        verifier: Verifier | None = None,
    ):
        self.names = list(names)
        self.network = MemoryNetwork() if network is None else network
        self.time = ManualTime() if time is None else time
        self.verifier = verifier
        self.running: dict[str, Participant] = {}

    def make(self, name: str) -> Participant:
        raise NotImplementedError

    def __getitem__(self, agent: str | int) -> Participant:
        return self.running[name_of(agent)]

    @property
    def nodes(self) -> dict[int, Any]:
        """Of those that run, by their numbers in the roster."""
        return {one.neighborhood.index: one.node for one in self.running.values()}

    def start(self, *agents):
        """All of them if none is named."""
        started = {name: self.make(name) for name in map(name_of, agents or self.names)}
        self.running |= started
        start_agents(started.values(), self.network, self.time)

    def stop(self, *agents):
        """In peace: what they received is written."""
        for name in map(name_of, agents or list(self.running)):
            self.running[name].node.stop()
            self.kill(name)

    def kill(self, *agents):
        """At once: the system gives back what they held, and nothing is written any more."""
        for name in map(name_of, agents or list(self.running)):
            self.network.detach(name)
            self.running.pop(name).close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def step(self):
        """Deliver everything, then go to the next time at which anything is due."""
        self.network.deliver_all()
        assert step(self.running.values(), self.time), "nobody has anything left to do"

    def run(self, seconds):
        run_for(seconds, self.running.values(), self.network, self.time)

    def run_until(self, condition, seconds=3600.0):
        end = self.time.now() + round(seconds * SECOND)
        while not condition():
            assert self.time.now() < end, "it did not happen in time"
            self.step()


class MemoryWorld(World):
    """Agents of these definitions, in memory.

    noise: of the agent with a number. make_clock: see `AgentResources`, after the number of the agent.
    """

    def __init__(self, definitions, *, noise=None, make_clock=every_second, **options):
        super().__init__(definitions, **options)
        self.definitions = definitions
        self.memories = {name: AgentMemory(name) for name in definitions}
        self.noise = partial(SimulatedNoise, 0) if noise is None else noise
        self.make_clock = make_clock

    def make(self, name: str) -> Participant:
        definition = self.definitions[name]
        number = definition.neighborhood.index
        resources = self.memories[name].resources(
            self.network,
            self.time,
            self.noise(number),
            verifier=self.verifier,
            make_clock=partial(self.make_clock, number),
        )
        return Participant(definition, resources)

    def memory(self, agent: str | int) -> AgentMemory:
        return self.memories[name_of(agent)]


class FolderWorld(World):
    """Agents from their folders, with real ledgers, stores and secure noise, and clocks by a seed."""

    def __init__(self, paths: list[Path], **options):
        super().__init__([path.name for path in paths], **options)
        self.paths = dict(zip(self.names, paths, strict=True))
        self.make_clock = partial(PoissonClock, randomness=random.Random(0))

    def make(self, name: str) -> Participant:
        folder = AgentFolder.read(self.paths[name])
        return open_participant(folder, self.network, self.time, self.verifier, self.make_clock)


def name_of(agent: str | int) -> str:
    return agent if isinstance(agent, str) else f"agent{agent}"


def named(samples: Iterable[Samples]) -> dict[str, Samples]:
    """Samples of agents by the names of the agents."""
    return {name_of(number): one for number, one in enumerate(samples)}


def settings_of(problem: Problem, privacy: PrivacyLabel, **options) -> NetworkSettings:
    """The public side of a problem, as a roster carries it."""
    objective = replace(problem.objective, max_samples=problem.sample_cap)
    return NetworkSettings(objective, privacy, **options)


def samples_of(problem: Problem) -> list[Samples]:
    return [problem.population.samples(agent) for agent in range(problem.n_agents)]


def make_folders(
    folder: Path, settings: NetworkSettings, graph, samples, privacy=None, *, tick_rate=4.0, addresses=None
):
    """A network on disk: the folders of its agents."""
    addresses = free_addresses("127.0.0.1", len(samples)) if addresses is None else addresses
    members = [Member(name_of(number), one, privacy, addresses[number]) for number, one in enumerate(samples)]
    dimension = samples[0].features.shape[1]
    create_network(folder, NETWORK, members, graph, settings, dimension=dimension, tick_rate=tick_rate)
    return [folder / "agents" / member.name for member in members]


@dataclass
class Recorder:
    """A listener that notes what it is told."""

    events: list = field(default_factory=list)

    def on_published(self, sender, data):
        self.events.append(("model", sender, data))

    def on_greeting(self, sender, data):
        self.events.append(("greeting", sender, data))

    def on_presence(self, neighbor, is_up):
        self.events.append(("up" if is_up else "down", neighbor))

    def take(self):
        """All events since the last call."""
        events, self.events = self.events, []
        return events

    def up(self):
        """The neighbors that it was told are up."""
        there = set()
        for kind, who, *_ in self.events:
            if kind == "up":
                there.add(who)
            elif kind == "down":
                there.discard(who)
        return there

    def heard(self):
        return [event for event in self.events if event[0] in ("model", "greeting")]


class FullDisk(MemoryStore):
    """Cannot write while it is full."""

    is_full = False

    def save_sent(self, sent):
        self._check()
        super().save_sent(sent)

    def save_received(self, received, forgotten=()):
        self._check()
        super().save_received(received, forgotten)

    def _check(self):
        if self.is_full:
            raise NetworkError("the disk is full")
