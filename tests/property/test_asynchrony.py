"""Why the parallel engine is exact: an update depends on its neighborhood alone."""

import copy

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support import LOSSES, random_problem, random_weights

from flockwise.agent import Agent
from flockwise.engine import Conditions, simulate
from flockwise.engine.state import first_ticks
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent
from flockwise.objective import LocalObjective, LocalUpdate, Problem


class NoClock:
    def next_tick(self, updates, now):
        return now + 1


def make_agents(problem, random):
    """Plain agents with random models, each knowing its neighbors' models."""
    agents = []
    for i in range(problem.n_agents):
        neighbors, weights = problem.neighbors.neighbors_of(i)
        agents.append(
            Agent(
                i,
                LocalUpdate(
                    LocalObjective.of_agent(problem, i), float(problem.step_sizes[i]), float(problem.pulls[i])
                ),
                random.normal(size=problem.dimension),
                dict(zip(neighbors.tolist(), weights.tolist(), strict=True)),
                NoClock(),
            )
        )
    for agent in agents:
        broadcast(agents, agent.last_message(), agent)
    return agents


def broadcast(agents, message, sender):
    for j in sender.neighbors:
        agents[j].on_message(message, 0)


def fire(agents, i):
    for message in agents[i].on_tick(0):
        broadcast(agents, message, agents[i])


def after(agents, order):
    agents = copy.deepcopy(agents)
    for i in order:
        fire(agents, i)
    return np.stack([agent.model for agent in agents])


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32), loss=st.sampled_from(LOSSES), data=st.data())
def test_updates_of_agents_that_are_not_neighbors_commute(seed, loss, data):
    problem = random_problem(seed, n_agents=9, density=0.3, loss=loss)
    agents = make_agents(problem, np.random.default_rng(seed))
    first, second = data.draw(st.tuples(st.integers(0, 8), st.integers(0, 8)))
    assume(first != second and second not in agents[first].neighbors)
    assert np.array_equal(after(agents, [first, second]), after(agents, [second, first]))


def test_updates_of_neighbors_do_not_commute():
    """The property above would be empty if everything commuted."""
    problem = random_problem(3, n_agents=9, density=0.6)
    agents = make_agents(problem, np.random.default_rng(3))
    other = next(iter(agents[0].neighbors))
    assert not np.array_equal(after(agents, [0, other]), after(agents, [other, 0]))


def elsewhere_changed(problem, agent, random):
    """The same agent with the same ties, but other data for everyone else and other ties among them."""
    population, graph = problem.population, problem.neighbors
    features, targets = np.array(population.features), np.array(population.targets)
    others = np.ones(len(targets), bool)
    others[population.offsets[agent] : population.offsets[agent + 1]] = False
    features[others] = random.normal(size=(others.sum(), features.shape[1]))
    targets[others] *= -1
    weights = random_weights(random, problem.n_agents, 0.5)
    weights[agent], weights[:, agent] = 0, 0
    neighbors, ties = graph.neighbors_of(agent)
    weights[agent, neighbors], weights[neighbors, agent] = ties, ties
    edges = np.argwhere(np.triu(weights) > 0)
    elsewhere = SimilarityGraph.from_edges(problem.n_agents, edges, weights[edges[:, 0], edges[:, 1]])
    return Problem(population.with_samples(features, targets), elsewhere, problem.objective)


MAX_SAMPLES = 8


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_an_update_cannot_change_with_anything_outside_its_neighborhood(engine, seed):
    """The first agent to tick updates to the same bits, whatever the others hold and whoever they know."""
    random = np.random.default_rng(seed)
    problem = random_problem(seed, n_agents=9, density=0.4).with_objective(max_samples=MAX_SAMPLES)
    ticks = first_ticks(Conditions().table(np.arange(9)), np.uint64(seed), np.arange(9))
    agent = int(np.argmin(ticks))
    start = random.normal(size=(9, problem.dimension))
    results = [
        simulate(p, CoordinateDescent(start), engine=engine, seed=seed, ticks=1, record_every=None)
        for p in (problem, elsewhere_changed(problem, agent, random))
    ]
    assert results[0].updates[agent] == results[1].updates[agent] == 1
    assert np.array_equal(results[0].models[agent], results[1].models[agent])
    assert not np.array_equal(results[0].models[agent], start[agent])


def test_an_agent_holds_its_neighborhood_and_nothing_else():
    problem = random_problem(1, n_agents=9)
    for i, agent in enumerate(make_agents(problem, np.random.default_rng(1))):
        assert set(vars(agent)) == {
            "name", "model", "updates", "neighbors", "next_tick", "_local", "_clock", "_releases", "_mean_of",
        }  # fmt: skip
        assert agent._releases is None
        assert set(vars(agent._local)) == {"objective", "step_size", "pull"}
        assert set(agent.neighbors) == set(problem.neighbors.neighbors_of(i)[0].tolist())
        own_numbers = sum(np.size(part) for part in problem.population.samples(i))
        held = sum(np.size(value) for value in vars(agent._local.objective).values())
        assert held <= own_numbers + 2  # the loss and the penalty beside the samples
