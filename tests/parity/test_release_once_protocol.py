"""Release once between neighbors: the result of the central computation, and blind to data."""

import importlib
import inspect
import math

import numpy as np
import pytest
from tests.support import random_problem

from flockwise import Problem, SimilarityGraph, linear_classification
from flockwise.engine.reference.rounds import converse, never
from flockwise.method import ReleaseOnce, release_once
from flockwise.method.release_once import PROPAGATION_TRADEOFF
from flockwise.method.rules import Descent, LocalAnchors
from flockwise.objective import PropagationObjective
from flockwise.privacy.budget import Budget
from flockwise.protocol.conversation import Public, TalkingAgent
from flockwise.protocol.propagation import PropagationProtocol
from flockwise.protocol.rows import public_noise
from flockwise.release import PointMean, Released
from flockwise.release.finish import finish_along_directions

BUDGET = Budget(1.0, math.exp(-5))


def connected(seed, n_agents):
    """A ring, so that all agents hear of each other, with random weights and as many random ties."""
    random = np.random.default_rng(seed)
    ring = np.column_stack([np.arange(n_agents), np.roll(np.arange(n_agents), -1)])
    more = np.array([random.choice(n_agents, 2, replace=False) for _ in range(n_agents)])
    edges = np.unique(np.sort(np.vstack([ring, more]), axis=1), axis=0)
    return SimilarityGraph.from_edges(n_agents, edges, random.uniform(0.1, 2, len(edges)))


def directions(graph, released, *, loses=never):
    """What everyone ends with who talks about these releases."""
    agents, neighbors = {}, {}
    for agent in range(graph.n_agents):
        public = Public(
            released.vectors[agent],
            float(released.variances[agent]),
            float(released.noise_variances[agent]),
            PointMean().signal_power(released.vectors.shape[1]),
        )
        others, weights = graph.neighbors_of(agent)
        ties = dict(zip(others.tolist(), weights.tolist(), strict=True))
        talk = PropagationProtocol(PROPAGATION_TRADEOFF).converse(agent, public, ties)
        agents[agent], neighbors[agent] = TalkingAgent(agent, ties, talk), list(ties)
    converse(neighbors, agents, loses=loses)
    return [agents[agent].outcome for agent in range(graph.n_agents)]


def converged(graph, anchors, pulls):
    """What propagation goes towards: the minimum of supplement C's objective."""
    return PropagationObjective(graph, anchors, pulls).optimum()


@pytest.mark.parametrize("seed", range(3))
def test_the_protocol_agrees_with_the_central_computation(seed, monkeypatch):
    """With the public noise that agents draw by their numbers, and propagation to the very end."""
    task = linear_classification(15, 6, seed=seed, test_samples=1)
    graph = connected(seed, 15)
    problem = Problem(task.train, graph)
    monkeypatch.setattr(release_once, "noise_like", lambda variances: public_noise(np.arange(15), variances))
    monkeypatch.setattr(release_once, "propagate", converged)
    prepared = ReleaseOnce(BUDGET).prepare(problem, seed)
    assert isinstance(prepared.rule, Descent)
    assert isinstance(prepared.rule.local, LocalAnchors)
    assert prepared.finish is not None
    models = converged(graph, prepared.rule.local.anchors, prepared.rule.pulls)
    outcomes = directions(graph, ReleaseOnce(BUDGET).release(problem, seed))
    vectors = np.array([outcome.vector for outcome in outcomes])
    qualities = np.array([outcome.quality for outcome in outcomes])
    scale = np.abs(models).max()
    np.testing.assert_allclose(vectors, models, rtol=0, atol=1e-6 * scale)
    own = prepared.finish(models, None)
    np.testing.assert_allclose(
        finish_along_directions(problem, vectors, qualities), own, rtol=0, atol=1e-6 * np.abs(own).max()
    )


def test_agents_without_samples_take_part():
    graph = connected(1, 12)
    released = ReleaseOnce(BUDGET).release(Problem(random_problem(1).population, graph), 0)
    assert not np.isfinite(released.variances).all()
    for outcome in directions(graph, released):
        assert np.isfinite(outcome.vector).all()
        assert 0 <= outcome.quality <= 1


def test_a_network_in_which_nobody_released_anything_ends():
    graph = SimilarityGraph.from_edges(3, np.array([(0, 1), (1, 2)]))
    nothing = Released(np.zeros((3, 2)), np.full(3, np.inf), np.zeros(3), None, "gdp")
    assert directions(graph, nothing) == [None] * 3


def test_a_silent_neighbor_is_left_out_after_a_time_out():
    """One agent says nothing after the means: everyone else still ends with something finite."""
    task = linear_classification(10, 4, seed=3, test_samples=1)
    graph = connected(3, 10)
    released = ReleaseOnce(BUDGET).release(Problem(task.train, graph), 0)
    lost = []

    def loses(relay, receiver):
        if relay.sender == 4 and relay.stage == "sweep":
            lost.append(relay)
            return True
        return False

    for outcome in directions(graph, released, loses=loses):
        assert np.isfinite(outcome.vector).all()
    assert lost


def test_what_makes_relays_cannot_be_given_a_population():
    given = inspect.signature(PropagationProtocol(1.0).converse).parameters
    assert list(given) == ["number", "public", "weights"]
    for name in ("propagation", "conversation"):
        module = importlib.import_module(f"flockwise.protocol.{name}")
        source = inspect.getsource(module)
        assert "flockwise.data" not in source
        assert "flockwise.objective" not in source
        assert not {"Population", "Problem", "SimilarityGraph"} & set(vars(module))
