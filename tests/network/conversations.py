"""Networks of conversations in memory: agents that release once and talk, and a post that loses things."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flockwise import Problem, SimilarityGraph, linear_classification
from flockwise.method.conversation import Public, TalkingAgent
from flockwise.method.lowpass.network import converse
from flockwise.net.conversing import ConversingNode, Voice
from flockwise.net.growth import Meter, MeteredGate
from flockwise.net.intake import Intake, NeighborKey
from flockwise.net.journal import MemoryJournal
from flockwise.net.learner import Protection, Settings
from flockwise.net.memory import Letter, MemoryNetwork
from flockwise.net.one_release import (
    CLIP,
    CONVERSING_RATE,
    OneReleaseAgent,
    conversation_about,
    largest_relay,
    public_side,
)
from flockwise.net.outbox import GateOutbox, PlainOutbox, Signer
from flockwise.net.signing import Verifier, new_signing_key, public_key_of
from flockwise.net.store import MemoryStore
from flockwise.net.task import Method, Task
from flockwise.net.time import SECOND, ManualTime
from flockwise.privacy.budget import Budget
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import SimulatedNoise

NETWORK = "test"
BUDGET = Budget(1.0, 1e-2)
TIMEOUT = 60.0


def ring_with_chords(n_agents, seed, *, isolated=0):
    """All hear of each other, but for the isolated ones at the end."""
    source = np.random.default_rng(seed)
    together = n_agents - isolated
    ring = np.column_stack([np.arange(together), np.roll(np.arange(together), -1)])
    chords = np.array([source.choice(together, 2, replace=False) for _ in range(together)])
    edges = np.unique(np.sort(np.vstack([ring, chords]), axis=1), axis=0)
    return SimilarityGraph.from_edges(n_agents, edges, source.uniform(0.2, 2, len(edges)))


def task_of(method: Method, problem: Problem) -> Task:
    return Task("logistic", problem.tradeoff, problem.sample_cap, "dp", method=method, round_timeout=TIMEOUT)


class Once:
    """A clock that ticks a second from now, and never after the release."""

    def __init__(self, limit):
        self._limit = limit

    def next_tick(self, updates, now):
        return now + SECOND if updates < self._limit else None


@dataclass
class Life:
    """What of an agent outlasts its process."""

    key: Any = field(default_factory=new_signing_key)
    store: MemoryStore = field(default_factory=MemoryStore)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    ledger: MemoryLedger | None = None

    def reopened(self, name):
        """The same ledger as another process would read it."""
        again = MemoryLedger(name)
        if self.ledger is not None and self.ledger.policy is not None:
            again.grant(self.ledger.policy)
            for entry in self.ledger.entries:
                again.record(entry)
        self.ledger = again
        return again


class Post:
    """Letters on their way: some get lost, some come twice, and they come in any order."""

    def __init__(self, seed=0, *, loss=0.0, twice=0.0, in_order=True):
        self._random = random.Random(seed)
        self._loss, self._twice, self._in_order = loss, twice, in_order
        self.letters: list[Letter] = []

    def carry(self, letter: Letter) -> None:
        if self._random.random() >= self._loss:
            self.letters += [letter] * (1 + (self._random.random() < self._twice))

    def next(self) -> Letter:
        return self.letters.pop(0 if self._in_order else self._random.randrange(len(self.letters)))


class Town:
    """All agents of a problem, on one clock."""

    def __init__(
        self, method: Method, n_agents=12, dimension=4, seed=0, *, isolated=0, post: Post | None = None
    ):
        self.time = ManualTime()
        drawn = linear_classification(n_agents, dimension, seed=seed, test_samples=50)
        self.test = drawn.test
        self.graph = ring_with_chords(n_agents, seed, isolated=isolated)
        self.problem = Problem(drawn.train, self.graph)
        self.task = task_of(method, self.problem)
        self.post = Post() if post is None else post
        self.network = MemoryNetwork(self.post.carry)
        self.verifier = Verifier()
        self.lives = [Life() for _ in range(n_agents)]
        self.nodes: dict[int, Any] = {}

    @property
    def n_agents(self):
        return self.problem.n_agents

    def name(self, agent):
        return f"agent{agent}"

    def keys(self, agent):
        neighbors, weights = self.graph.neighbors_of(agent)
        return {
            self.name(other): NeighborKey(public_key_of(self.lives[other].key), weight, other)
            for other, weight in zip(neighbors.tolist(), weights.tolist(), strict=True)
        }

    def start(self, *agents):
        for agent in agents or range(self.n_agents):
            node = self.nodes[agent] = self.node(agent)
            node.start(self.time.now())
        for agent in agents or range(self.n_agents):
            self.network.attach(self.name(agent), self.nodes[agent], self.keys(agent))

    def kill(self, agent):
        """At once, with all that was only in memory."""
        self.network.detach(self.name(agent))
        del self.nodes[agent]

    def own_problem(self, agent) -> Problem:
        settings = Settings(self.problem.loss, self.problem.tradeoff, self.problem.sample_cap, None)
        return settings.problem(*self.problem.population.samples(agent))

    def node(self, agent) -> ConversingNode:
        name, life, keys = self.name(agent), self.lives[agent], self.keys(agent)
        problem = self.own_problem(agent)
        dimension, samples = problem.dimension, problem.population.n_samples
        signer = Signer(NETWORK, name, "dp", life.key, self.verifier)
        protection, ledger = None, None
        if samples:
            ledger = life.reopened(name)
            meter = Meter(BUDGET, 1, CLIP, on_grid=False)
            noise = SimulatedNoise(0, agent)
            gate = MeteredGate(meter, samples, ledger, noise, start=np.zeros(dimension))
            protection, outbox = Protection(gate, CLIP), GateOutbox(signer, gate, ledger)
        else:
            outbox = PlainOutbox(signer, life.store, np.zeros(dimension))
        clock = Once(1 if samples else 0)
        weights: Any = {other: key.weight for other, key in keys.items()}
        intake = Intake(
            name,
            NETWORK,
            dimension,
            ["dp"],
            keys,
            1e6,
            public_key=public_key_of(life.key),
            clock=self.time.now,
            relay_dimension=largest_relay(self.task, dimension),
            rate=CONVERSING_RATE,
            verifier=self.verifier,
        )
        voice = Voice(
            agent,
            lambda ties: conversation_about(self.task, agent, public_side(ledger, dimension), ties),
            signer,
            life.journal,
            round(TIMEOUT * SECOND),
        )
        return ConversingNode(
            OneReleaseAgent(name, problem, weights, clock, protection),
            clock,
            intake,
            outbox,
            life.store,
            self.network,
            self.time,
            voice=voice,
            neighbors=keys,
        )

    def deliver(self, at_most=10**9):
        """What is on its way, and what is sent in answer."""
        while self.post.letters and at_most > 0:
            self.network.deliver(self.post.next())
            at_most -= 1

    def step(self):
        """To the next time at which anything is due."""
        self.deliver()
        wakes = [wake for node in self.nodes.values() if (wake := node.next_wake()) is not None]
        self.time.move_to(max(min(wakes), self.time.now()))
        for node in list(self.nodes.values()):
            wake = node.next_wake()
            if wake is not None and wake <= self.time.now():
                node.tick(self.time.now())

    def run(self, seconds=3600.0, agents=None):
        """Until all of them have come to an end."""
        end = self.time.now() + round(seconds * SECOND)
        while not self.is_over(agents):
            assert self.time.now() < end, "it did not end"
            self.step()

    def is_over(self, agents=None):
        watched = self.nodes if agents is None else agents
        return all(self.nodes[agent].is_over for agent in watched if self.keys(agent))

    def simulated(self):
        """What the same conversations end with when nothing gets lost, from the releases that were made."""
        agents = {}
        for agent in range(self.n_agents):
            ties = {key.index: key.weight for key in self.keys(agent).values()}
            if ties:
                talk = conversation_about(self.task, agent, self.public(agent), ties)
                agents[agent] = TalkingAgent(agent, ties, talk)
        converse(self.graph, agents)
        return {number: agent.outcome for number, agent in agents.items()}

    def public(self, agent) -> Public:
        return public_side(self.lives[agent].ledger, self.problem.dimension)

    def dropped(self):
        """By all agents, by reason."""
        return sum((node.intake.dropped for node in self.nodes.values()), start=Counter())
