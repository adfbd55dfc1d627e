"""The low-pass protocol between neighbors: the result of the central computation, and blind to data."""

import inspect
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csgraph
from tests.support import random_problem

from flockwise import Population, Problem, SimilarityGraph, angular_graph, linear_classification
from flockwise.engine import simulate
from flockwise.errors import SimulationError
from flockwise.method.conversation import Public
from flockwise.method.lowpass import LowPass, choice, filter, gossip, network, protocol, reach, rows
from flockwise.method.lowpass.gossip import Neighborhood
from flockwise.method.lowpass.network import run_protocol
from flockwise.method.lowpass.protocol import LowPassAgent
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.method.released import Released
from flockwise.objective import Huber, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.privacy.messages import Relay

BUDGET = Budget(1.0, math.exp(-5))


def classification(seed, n_agents=24, dimension=6):
    task = linear_classification(n_agents, dimension, seed=seed, test_samples=1)
    return Problem(task.train, angular_graph(task.targets, threshold=0.05, source="targets"))


def both(problem, method):
    released = method.release(problem)
    smoothing, traffic = run_protocol(problem.graph, released, method.signal_power(problem))
    return method.smooth(problem), smoothing, traffic


def assert_same(central, distributed):
    for name, one, other in zip(central.beliefs._fields, central.beliefs, distributed.beliefs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(central.degrees, distributed.degrees)
    np.testing.assert_array_equal(central.hops, distributed.hops)
    np.testing.assert_allclose(central.chances, distributed.chances, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_protocol_agrees_with_the_central_computation(seed):
    problem = classification(seed)
    central, distributed, _ = both(problem, LowPass(BUDGET, noise_seed=seed))
    assert_same(central, distributed)


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_on_odd_graphs_with_agents_without_points(seed):
    """Random weights, several components, isolated agents, agents with no release."""
    problem = random_problem(seed, n_agents=14, density=0.2)
    assert (problem.population.sample_counts == 0).any()
    central, distributed, _ = both(problem, LowPass(BUDGET))
    assert_same(central, distributed)


def test_it_agrees_for_models_whose_size_nobody_knows():
    quadratic: Any = Quadratic()
    problem = random_problem(7, n_agents=14, loss=quadratic, density=0.3)
    method = LowPass(Budget(5.0, 0.01), OutputPerturbation(0.5, 2.0, Huber(0.5)))
    central, distributed, _ = both(problem, method)
    assert_same(central, distributed)


def test_a_star_and_a_pair_agree_too():
    """Bipartite graphs, whose hops never settle by themselves."""
    for edges in ([(0, 1)], [(0, k) for k in range(1, 6)]):
        n_agents = len(edges) + 1
        population = random_problem(3, n_agents=n_agents, max_samples=30).population
        problem = Problem(population, SimilarityGraph.from_edges(n_agents, np.array(edges)))
        central, distributed, _ = both(problem, LowPass(BUDGET))
        assert_same(central, distributed)


# What is counted.


def test_every_vector_and_byte_is_counted():
    problem = classification(0)
    seen = []

    def spy(relay, receiver):
        seen.append((relay, receiver))
        return False

    method = LowPass(BUDGET)
    smoothing, traffic = run_protocol(problem.graph, method.release(problem), None, loses=spy)
    assert traffic.all_vectors == len(seen)
    assert traffic.all_bytes == sum(8 * len(relay.vector) for relay, _ in seen)
    assert set(traffic.vectors) == {"reach", "degree", "mixing", "mean", "power", "hop", "tally"}
    assert traffic.vectors["hop"] == (smoothing.hops * problem.graph.neighbor_counts).sum()


@pytest.mark.parametrize(
    "problem",
    [classification(0), classification(5, n_agents=40), random_problem(1, n_agents=14, density=0.2)],
    ids=["small", "larger", "components"],
)
def test_what_is_sent_is_foretold_without_sending_it(problem):
    method = LowPass(BUDGET)
    central, _, traffic = both(problem, method)
    assert method.traffic(problem, central) == traffic


def test_it_is_foretold_for_models_too():
    quadratic: Any = Quadratic()
    problem = random_problem(7, n_agents=14, loss=quadratic, density=0.3)
    method = LowPass(Budget(5.0, 0.01), OutputPerturbation(0.5, 2.0, Huber(0.5)))
    central, _, traffic = both(problem, method)
    assert method.traffic(problem, central) == traffic


def test_a_simulation_counts_the_protocol_from_its_first_message():
    problem = classification(0)
    method = LowPass(BUDGET)
    _, smoothing, traffic = both(problem, method)
    run = simulate(problem, method)
    assert (run.final.vectors, run.final.bytes) == (traffic.all_vectors, traffic.all_bytes)
    assert run.settings["bytes_by_stage"] == traffic.bytes
    np.testing.assert_allclose(run.models, smoothing.beliefs.vectors, atol=1e-6)
    np.testing.assert_array_equal(run.updates, smoothing.hops)


def test_no_two_relays_of_an_agent_have_the_same_tag():
    problem = classification(1)
    tags = []

    def spy(relay, receiver):
        tags.append((relay.sender, receiver, relay.stage, relay.round))
        return False

    method = LowPass(BUDGET)
    run_protocol(problem.graph, method.release(problem), method.signal_power(problem), loses=spy)
    assert len(tags) == len(set(tags))


# What is private.


def relays_of(problem, method, released):
    seen = []

    def spy(relay, receiver):
        seen.append((relay.sender, receiver, relay.stage, relay.round, relay.vector.tobytes()))
        return False

    run_protocol(problem.graph, released, method.signal_power(problem), loses=spy)
    return seen


def test_an_agents_other_data_after_its_release_change_no_relay():
    """All points of one agent are swapped once it has released: its own model changes, no relay does."""
    problem, agent = classification(2), 5
    method = LowPass(BUDGET)
    population = problem.population
    own = slice(*population.offsets[agent : agent + 2])
    features, targets = population.features.copy(), population.targets.copy()
    features[own] *= -7
    features[own] += 1
    targets[own] *= -1
    other = Problem(Population.packed(features, targets, population.offsets), problem.graph)
    released = method.release(problem)
    assert (method.release(other).vectors[agent] != released.vectors[agent]).any()
    assert relays_of(problem, method, released) == relays_of(other, method, released)
    smoothing, _ = run_protocol(problem.graph, released, method.signal_power(problem))
    before, after = (method.finish(each, smoothing) for each in (problem, other))
    changed = np.flatnonzero((before != after).any(axis=1))
    assert changed.tolist() == [agent]


def test_what_makes_relays_cannot_be_given_a_population():
    """No parameter of an agent, and no module behind it, knows of populations or problems."""
    assert {field.name for field in fields(Public)} == {
        "vector",
        "variance",
        "noise_variance",
        "signal_power",
    }
    assert list(inspect.signature(LowPassAgent.__init__).parameters) == [
        "self",
        "number",
        "public",
        "weights",
    ]
    for module in (protocol, gossip, reach, choice, rows, filter):
        source = inspect.getsource(module)
        assert "flockwise.data" not in source
        assert "flockwise.objective" not in source
        assert not {"Population", "Problem", "SimilarityGraph"} & set(vars(module))


# How far agents are apart.


@pytest.mark.parametrize("seed", range(5))
def test_agents_find_out_how_far_they_are_apart(seed):
    """The same number for all: at least the hops between any two of them, and at most twice as many."""
    problem = random_problem(seed, n_agents=20, density=0.12)
    graph = problem.graph
    hops = csgraph.shortest_path(graph.to_scipy(), unweighted=True)
    for component in range(graph.components.max() + 1):
        agents = np.flatnonzero(graph.components == component)
        if len(agents) > 1:
            bounds = reaches(graph, agents)
            assert len(set(bounds.values())) == 1
            farthest = hops[np.ix_(agents, agents)].max()
            assert farthest <= bounds[agents[0]] <= 2 * farthest


def reaches(graph, agents):
    """Everyone's conversation, round by round."""
    talks = {number: reach.find_reach(number) for number in agents.tolist()}
    said = {number: next(talk).vector for number, talk in talks.items()}
    found = {}
    while said:
        assert len(said) == len(agents)  # all stop in the same round
        following = {}
        for number in said:
            heard = {other: said[other] for other in graph.neighbors_of(number)[0].tolist()}
            try:
                following[number] = talks[number].send(heard).vector
            except StopIteration as end:
                found[number] = end.value
        said = following
    return found


def test_a_network_in_which_nobody_released_anything_ends():
    graph = SimilarityGraph.from_edges(3, np.array([(0, 1), (1, 2)]))
    nothing = Released(np.zeros((3, 2)), np.full(3, np.inf), np.zeros(3), (None,) * 3)
    smoothing, traffic = run_protocol(graph, nothing, 0.5)
    assert not smoothing.beliefs.collaborates.any()
    assert "hop" not in traffic.vectors


# When neighbors are late or silent.


def test_the_order_of_delivery_does_not_matter():
    problem = classification(3, n_agents=12)
    method = LowPass(BUDGET)
    released = method.release(problem)
    expected, _ = run_protocol(problem.graph, released, method.signal_power(problem))
    agents = {a.number: a for a in network._agents(problem.graph, released, method.signal_power(problem))}
    random = np.random.default_rng(0)
    post = []

    def send(relays):
        for relay in relays:
            post.extend((other, relay) for other in problem.graph.neighbors_of(relay.sender)[0].tolist())

    for agent in agents.values():
        send(agent.start())
    while post:
        place = int(random.integers(len(post)))
        post[place], post[-1] = post[-1], post[place]
        receiver, relay = post.pop()
        send(agents[receiver].on_relay(relay))
    for number, agent in agents.items():
        assert agent.outcome is not None
        np.testing.assert_array_equal(agent.outcome.beliefs.vectors[0], expected.beliefs.vectors[number])


def test_a_silent_neighbor_is_left_out_after_a_time_out():
    """One agent's relays are lost from the filter on: everyone still ends, close to what it would be."""
    problem = classification(4)
    method = LowPass(Budget(20.0, math.exp(-5)))
    released = method.release(problem)
    whole, _ = run_protocol(problem.graph, released, method.signal_power(problem))
    silent = int(np.argmin(problem.graph.degrees))

    def loses(relay, receiver):
        return relay.sender == silent and relay.stage == "hop"

    partial, _ = run_protocol(problem.graph, released, method.signal_power(problem), loses=loses)
    vectors, others = whole.beliefs.vectors, partial.beliefs.vectors
    cosines = (
        (vectors * others).sum(axis=1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(others, axis=1)
    )
    assert np.isfinite(others).all()
    assert 0.9 < cosines.mean() < 1 - 1e-9


def test_weights_of_silent_neighbors_go_to_the_others():
    def one_hop(heard):
        conversation = Neighborhood({1: 1.0, 2: 3.0}).hop("hop", np.array([8.0]))
        assert next(conversation).vector == pytest.approx([2.0])
        with pytest.raises(StopIteration) as end:
            conversation.send({other: np.array([value]) for other, value in heard.items()})
        return end.value.value

    assert one_hop({1: 1.0, 2: 2.0}) == pytest.approx([7.0])
    assert one_hop({2: 2.0}) == pytest.approx([8.0])
    assert one_hop({}) == pytest.approx([8.0])


def test_strangers_are_refused():
    agent = LowPassAgent(0, Public(np.ones(2), 1.0, 1.0, None), {1: 1.0})
    agent.start()
    with pytest.raises(SimulationError, match="not a neighbor"):
        agent.on_relay(Relay(5, "mean/16", 0, np.zeros(2)))
    with pytest.raises(SimulationError, match="no neighbor"):
        LowPassAgent(0, Public(np.ones(2), 1.0, 1.0, None), {})
