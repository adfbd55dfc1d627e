"""Why the parallel engine is exact: an update depends on its neighborhood alone."""

import copy

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support import LOSSES, random_problem

from murmura.agent import Agent
from murmura.method import CoordinateDescent


class NoClock:
    def next_tick(self, updates, now):
        return now + 1


def make_agents(problem, random):
    """Plain agents with random models, each knowing its neighbors' models."""
    descent = CoordinateDescent().prepare(problem)
    agents = []
    for i in range(problem.n_agents):
        neighbors, weights = problem.graph.neighbors_of(i)
        agents.append(
            Agent(
                i,
                descent.local_objective(i),
                random.normal(size=problem.dimension),
                dict(zip(neighbors.tolist(), weights.tolist(), strict=True)),
                step_size=float(descent.step_sizes[i]),
                pull=float(descent.pulls[i]),
                clock=NoClock(),
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


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), agent=st.integers(0, 8))
def test_an_update_cannot_change_with_anything_outside_its_neighborhood(seed, agent):
    """Replace the data and the models of all others who are not neighbors: the update stays bit for bit."""
    problem = random_problem(seed, n_agents=9, density=0.3)
    agents = make_agents(problem, np.random.default_rng(seed))
    changed = make_agents(random_problem(seed + 1, n_agents=9, density=0.3), np.random.default_rng(seed + 1))
    neighborhood = {agent, *agents[agent].neighbors}
    mixed = [agents[i] if i in neighborhood else changed[i] for i in range(9)]
    fire_in, fire_out = copy.deepcopy(agents), copy.deepcopy(mixed)
    assert np.array_equal(fire_in[agent].on_tick(0)[0].model, fire_out[agent].on_tick(0)[0].model)


@pytest.mark.parametrize("field", ["n_agents", "degrees", "graph", "problem", "seed", "table"])
def test_an_agent_holds_no_global_knowledge(field):
    agents = make_agents(random_problem(1, n_agents=9), np.random.default_rng(1))
    assert not hasattr(agents[0], field)
