"""Agents that release once and then talk, and what the simulated protocol makes of the same releases."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from tests.network.signers import NETWORK
from tests.network.world import MemoryWorld, name_of, named, samples_of, settings_of

from flockwise import Problem, SimilarityGraph, linear_classification
from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.settings import NetworkSettings
from flockwise.engine.reference.rounds import converse
from flockwise.net.signing import Verifier
from flockwise.protocol import LowPassProtocol, PropagationProtocol
from flockwise.protocol.conversation import TalkingAgent
from flockwise.release import PointMean
from flockwise.runtime.own_model import problem_of_one
from flockwise.runtime.releases import public_side
from flockwise.runtime.testing import MemoryNetwork, Packet, define_agents

# What agents talk about after their release, by the name of the method.
PROTOCOLS = {"lowpass": LowPassProtocol(), "release_once": PropagationProtocol(0.15)}
BUDGET = OwnBudget(epsilon=1.0, delta=1e-2, updates=1)
TIMEOUT = 60.0


def ring_with_chords(n_agents, seed, *, isolated=0):
    """All hear of each other, but for the isolated ones at the end."""
    source = np.random.default_rng(seed)
    together = n_agents - isolated
    ring = np.column_stack([np.arange(together), np.roll(np.arange(together), -1)])
    chords = np.array([source.choice(together, 2, replace=False) for _ in range(together)])
    edges = np.unique(np.sort(np.vstack([ring, chords]), axis=1), axis=0)
    return SimilarityGraph.from_edges(n_agents, edges, source.uniform(0.2, 2, len(edges)))


def simulated_outcomes(settings: NetworkSettings, graph, public_of):
    """The outcome of every agent's conversation when nothing gets lost.

    public_of: gives the release of an agent, by its number.
    """
    agents, neighbors = {}, {}
    for agent in range(graph.n_agents):
        others, weights = graph.neighbors_of(agent)
        edges = dict(zip(others.tolist(), weights.tolist(), strict=True))
        if edges:
            talk = settings.protocol.converse(agent, public_of(agent), edges)
            agents[agent], neighbors[agent] = TalkingAgent(agent, edges, talk), list(edges)
    converse(neighbors, agents)
    return {number: agent.outcome for number, agent in agents.items()}


def assert_same_direction(found, expected):
    if expected is None:
        assert found is None
        return
    scale = np.abs(expected.vector).max()
    np.testing.assert_allclose(found.vector, expected.vector, rtol=0, atol=1e-9 * scale)
    assert found.quality == pytest.approx(expected.quality, rel=1e-9)


class UnreliableQueue:
    """Packets on their way: some get lost, some come twice, and they come in any order."""

    def __init__(self, seed, *, loss=0.0, twice=0.0):
        self._random = random.Random(seed)
        self._loss, self._twice = loss, twice
        self._packets: list[Packet] = []

    def append(self, packet: Packet) -> None:
        if self._random.random() >= self._loss:
            self._packets += [packet] * (1 + (self._random.random() < self._twice))

    def popleft(self) -> Packet:
        return self._packets.pop(self._random.randrange(len(self._packets)))

    def __len__(self) -> int:
        return len(self._packets)


class Conversation(MemoryWorld):
    """All agents of a problem. They release a second after their start."""

    def __init__(self, method: str, n_agents=12, dimension=4, seed=0, *, isolated=0, queue=None):
        drawn = linear_classification(n_agents, dimension, seed=seed, test_samples=50)
        self.problem = Problem(drawn.train, ring_with_chords(n_agents, seed, isolated=isolated))
        self.settings = settings_of(
            self.problem,
            "dp",
            statistic=PointMean(),
            protocol=PROTOCOLS[method],
            round_timeout=TIMEOUT,
        )
        samples, graph = named(samples_of(self.problem)), self.problem.neighbors
        definitions = define_agents(self.settings, graph, samples, BUDGET, network=NETWORK)
        super().__init__(definitions, network=MemoryNetwork(queue), verifier=Verifier())

    @property
    def n_agents(self):
        return self.problem.n_agents

    def keys(self, agent):
        """Of the neighbors, by name."""
        return self.definitions[name_of(agent)].neighborhood.keys()

    def own_problem(self, agent) -> Problem:
        return problem_of_one(self.settings.objective, self.problem.population.samples(agent))

    def deliver(self, at_most):
        self.network.deliver_all(at_most)

    def run_to_the_end(self, seconds=3600.0):
        """Of all conversations."""
        self.run_until(
            lambda: all(node.role.is_over for a, node in self.nodes.items() if self.keys(a)), seconds
        )

    def simulated(self):
        """From the releases that were made."""
        statistic, dimension = self.settings.statistic, self.problem.dimension
        return simulated_outcomes(
            self.settings,
            self.problem.graph,
            lambda agent: public_side(statistic, self.memory(agent).ledger, dimension),
        )

    def dropped(self):
        """By all agents, by reason."""
        return sum((node.intake.dropped for node in self.nodes.values()), start=Counter())
