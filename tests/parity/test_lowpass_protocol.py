"""The low-pass protocol between neighbors: the result of the central computation, and blind to data."""

import importlib
import inspect
import math
import pkgutil
from dataclasses import fields

import numpy as np
import pytest
from scipy.sparse import csgraph
from tests.support import random_problem

from flockwise import Problem, SimilarityGraph, angular_graph, linear_classification, protocol
from flockwise.engine import Conditions, simulate
from flockwise.engine.reference.rounds import run_rounds
from flockwise.errors import SimulationError
from flockwise.method import LowPass, ReleaseOnce
from flockwise.method.rules import Rounds
from flockwise.objective import Quadratic
from flockwise.privacy.budget import Budget
from flockwise.privacy.messages import Relay
from flockwise.protocol.conversation import Public, Say, TalkingAgent
from flockwise.protocol.gossip import Neighborhood
from flockwise.protocol.lowpass import collaborate
from flockwise.protocol.reach import find_reach
from flockwise.release import OutputPerturbation, PointMean, Released

BUDGET = Budget(1.0, math.exp(-5))
MEANS = ReleaseOnce(BUDGET, smoother=LowPass())
MODELS = ReleaseOnce(Budget(5.0, 0.01), OutputPerturbation(width=0.5, l2=0.5), LowPass())


class PowerUnknown(PointMean):
    """A mean of which nobody knows beforehand how long it is."""

    def signal_power(self, dimension):
        return None


def classification(seed, n_agents=24, dimension=6):
    task = linear_classification(n_agents, dimension, seed=seed, test_samples=1)
    return Problem(task.train, angular_graph(task.targets, threshold=0.05, source="targets"))


def regression():
    return random_problem(7, n_agents=14, loss=Quadratic(), density=0.3, feature_bound=2.0)


def rounds_of(problem, released, statistic=PointMean()):  # noqa: B008
    """The rule of the conversation about given releases."""
    rule = LowPass().prepare(problem, statistic, released).rule
    assert isinstance(rule, Rounds)
    return rule


def both(problem, method, seed=0):
    """What is computed at once, and what agents find by talking."""
    rule = method.prepare(problem, seed).rule
    assert rule.at_once is not None
    return rule.at_once(rule.ids), run_rounds(rule)


def assert_same(central, distributed):
    one, other = central.details, distributed.details
    for name, ours, theirs in zip(one.beliefs._fields, one.beliefs, other.beliefs, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(one.degrees, other.degrees)
    np.testing.assert_array_equal(one.hops, other.hops)
    np.testing.assert_allclose(one.chances, other.chances, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_protocol_agrees_with_the_central_computation(seed):
    assert_same(*both(classification(seed), MEANS, seed))


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_on_odd_graphs_with_agents_without_samples(seed):
    """Random weights, several components, isolated agents, agents with no release."""
    problem = random_problem(seed, n_agents=14, density=0.2)
    assert (problem.population.sample_counts == 0).any()
    assert_same(*both(problem, MEANS))


def test_it_agrees_for_models_whose_size_nobody_knows():
    assert_same(*both(regression(), MODELS))


def test_a_star_and_a_pair_agree_too():
    """Bipartite graphs, whose hops never settle by themselves."""
    for edges in ([(0, 1)], [(0, k) for k in range(1, 6)]):
        n_agents = len(edges) + 1
        population = random_problem(3, n_agents=n_agents, max_samples=30).population
        problem = Problem(population, SimilarityGraph.from_edges(n_agents, np.array(edges)))
        assert_same(*both(problem, MEANS))


# What is counted.


def test_every_vector_and_byte_is_counted():
    problem = classification(0)
    seen = []

    def spy(relay, receiver):
        seen.append((relay, receiver))
        return False

    released = MEANS.release(problem, 0)
    outcome = run_rounds(rounds_of(problem, released, PowerUnknown()), loses=spy)
    traffic = outcome.traffic
    assert traffic.all_vectors == len(seen)
    assert traffic.all_bytes == sum(8 * len(relay.vector) for relay, _ in seen)
    assert set(traffic.vectors) == {"reach", "degree", "mixing", "mean", "power", "hop", "tally"}
    assert traffic.vectors["hop"] == (outcome.details.hops * problem.neighbors.neighbor_counts).sum()


@pytest.mark.parametrize(
    "problem",
    [classification(0), classification(5, n_agents=40), random_problem(1, n_agents=14, density=0.2)],
    ids=["small", "larger", "components"],
)
def test_what_is_sent_is_foretold_without_sending_it(problem):
    central, distributed = both(problem, MEANS)
    assert central.traffic == distributed.traffic


def test_it_is_foretold_for_models_too():
    central, distributed = both(regression(), MODELS)
    assert central.traffic == distributed.traffic
    assert "power" in distributed.traffic.vectors


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_simulation_counts_the_protocol_from_its_first_message(engine):
    problem = classification(0)
    _, distributed = both(problem, MEANS)
    run = simulate(problem, MEANS, engine=engine)
    traffic = distributed.traffic
    assert (run.final.vectors, run.final.bytes) == (traffic.all_vectors, traffic.all_bytes)
    assert run.settings["vectors_by_stage"] == traffic.vectors
    assert run.settings["bytes_by_stage"] == traffic.bytes
    np.testing.assert_allclose(run.models, distributed.models, atol=1e-6)
    np.testing.assert_array_equal(run.updates, distributed.details.hops)


@pytest.mark.parametrize(
    ("problem", "method"),
    [(classification(0), MEANS), (random_problem(1, density=0.2), MEANS), (regression(), MODELS)],
    ids=["means", "components", "models"],
)
def test_real_conversations_end_where_the_cpu_engine_computes_at_once(problem, method):
    """To a billionth of the largest number, with the same rounds, vectors and bytes."""
    cpu, reference = (simulate(problem, method, engine=name, seed=3) for name in ("cpu", "reference"))
    np.testing.assert_array_equal(cpu.updates, reference.updates)
    assert cpu.settings["vectors_by_stage"] == reference.settings["vectors_by_stage"]
    assert cpu.settings["bytes_by_stage"] == reference.settings["bytes_by_stage"]
    for ours, theirs in ((cpu.models, reference.models), (cpu.own_models, reference.own_models)):
        scale = max(1.0, float(np.abs(np.asarray(theirs)).max()))
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_conversation_needs_the_ideal_network(engine):
    with pytest.raises(SimulationError, match="cannot use conditions"):
        simulate(classification(0), MEANS, engine=engine, conditions=Conditions(loss=0.1))


def test_no_two_relays_of_an_agent_have_the_same_tag():
    problem = classification(1)
    tags = []

    def spy(relay, receiver):
        tags.append((relay.sender, receiver, relay.stage, relay.round))
        return False

    run_rounds(rounds_of(problem, MEANS.release(problem, 0)), loses=spy)
    assert len(tags) == len(set(tags)) > 0


# What is private.


def relays_of(problem, released):
    seen = []

    def spy(relay, receiver):
        seen.append((relay.sender, receiver, relay.stage, relay.round, relay.vector.tobytes()))
        return False

    run_rounds(rounds_of(problem, released), loses=spy)
    return seen


def test_an_agents_other_data_after_its_release_change_no_relay():
    """All samples of one agent are swapped once it has released: its own model changes, no relay does."""
    problem, agent = classification(2), 5
    population = problem.population
    own = slice(*population.offsets[agent : agent + 2])
    features, targets = population.features.copy(), population.targets.copy()
    features[own] *= -7
    features[own] += 1
    targets[own] *= -1
    other = Problem(population.with_samples(features, targets), problem.graph)
    released = MEANS.release(problem, 0)
    assert (MEANS.release(other, 0).vectors[agent] != released.vectors[agent]).any()
    assert relays_of(problem, released) == relays_of(other, released)
    outcome = run_rounds(rounds_of(problem, released))
    before, after = (finished(each, released, outcome) for each in (problem, other))
    changed = np.flatnonzero((before != after).any(axis=1))
    assert changed.tolist() == [agent]


def finished(problem, released, outcome):
    finish = LowPass().prepare(problem, PointMean(), released).finish
    assert finish is not None
    return finish(outcome.models, outcome.details)


def test_what_makes_relays_cannot_be_given_a_population():
    """No parameter of a conversation, and no module behind it, knows of populations or problems."""
    assert {field.name for field in fields(Public)} == {
        "vector",
        "variance",
        "noise_variance",
        "signal_power",
    }
    assert list(inspect.signature(collaborate).parameters) == ["number", "public", "weights"]
    names = [module.name for module in pkgutil.iter_modules(protocol.__path__)]
    assert {"lowpass", "gossip", "reach", "choice", "rows", "filter", "conversation"} < set(names)
    for name in names:
        module = importlib.import_module(f"flockwise.protocol.{name}")
        source = inspect.getsource(module)
        assert "flockwise.data" not in source
        assert "flockwise.objective" not in source
        assert not {"Population", "Problem", "SimilarityGraph"} & set(vars(module))


# How far agents are apart.


@pytest.mark.parametrize("seed", range(5))
def test_agents_find_out_how_far_they_are_apart(seed):
    """The same number for all: at least the hops between any two of them, and at most twice as many."""
    graph = random_problem(seed, n_agents=20, density=0.12).neighbors
    hops = csgraph.shortest_path(graph.to_scipy(), unweighted=True)
    for component in range(graph.components.max() + 1):
        agents = np.flatnonzero(graph.components == component)
        if len(agents) > 1:
            bounds = reaches(graph, agents)
            assert len(set(bounds.values())) == 1
            farthest = hops[np.ix_(agents, agents)].max()
            assert farthest <= bounds[agents[0]] <= 2 * farthest


def vector_of(step):
    assert isinstance(step, Say)
    return step.vector


def reaches(graph, agents):
    """Everyone's conversation, round by round."""
    talks = {number: find_reach(number) for number in agents.tolist()}
    said = {number: vector_of(next(talk)) for number, talk in talks.items()}
    found = {}
    while said:
        assert len(said) == len(agents)  # all stop in the same round
        following = {}
        for number in said:
            heard = {other: said[other] for other in graph.neighbors_of(number)[0].tolist()}
            try:
                following[number] = vector_of(talks[number].send(heard))
            except StopIteration as end:
                found[number] = end.value
        said = following
    return found


def test_a_network_in_which_nobody_released_anything_ends():
    problem = Problem(
        random_problem(0, n_agents=3, n_features=2).population,
        SimilarityGraph.from_edges(3, np.array([(0, 1), (1, 2)])),
    )
    nothing = Released(np.zeros((3, 2)), np.full(3, np.inf), np.zeros(3), None, "gdp")
    outcome = run_rounds(rounds_of(problem, nothing))
    assert not outcome.details.beliefs.collaborates.any()
    assert "hop" not in outcome.traffic.vectors


# When neighbors are late or silent.


def test_the_order_of_delivery_does_not_matter():
    problem = classification(3, n_agents=12)
    rule = rounds_of(problem, MEANS.release(problem, 0))
    expected = run_rounds(rule).details
    ties = {number: rule.edges.around(number) for number in range(12)}
    agents = {
        number: TalkingAgent(number, own, rule.converse(number, number, own))
        for number, own in ties.items()
        if own
    }
    random = np.random.default_rng(0)
    post = []

    def send(relays):
        for relay in relays:
            post.extend((other, relay) for other in ties[relay.sender])

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
    method = ReleaseOnce(Budget(20.0, math.exp(-5)), smoother=LowPass())
    released = method.release(problem, 0)
    whole = run_rounds(rounds_of(problem, released)).details
    silent = int(np.argmin(problem.neighbors.degrees))

    def loses(relay, receiver):
        return relay.sender == silent and relay.stage == "hop"

    partial = run_rounds(rounds_of(problem, released), loses=loses).details
    vectors, others = whole.beliefs.vectors, partial.beliefs.vectors
    cosines = (
        (vectors * others).sum(axis=1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(others, axis=1)
    )
    assert np.isfinite(others).all()
    assert 0.9 < cosines.mean() < 1 - 1e-9


def test_weights_of_silent_neighbors_go_to_the_others():
    def one_hop(heard):
        conversation = Neighborhood({1: 1.0, 2: 3.0}).hop("hop", np.array([8.0]))
        assert vector_of(next(conversation)) == pytest.approx([2.0])
        with pytest.raises(StopIteration) as end:
            conversation.send({other: np.array([value]) for other, value in heard.items()})
        return end.value.value

    assert one_hop({1: 1.0, 2: 2.0}) == pytest.approx([7.0])
    assert one_hop({2: 2.0}) == pytest.approx([8.0])
    assert one_hop({}) == pytest.approx([8.0])


def test_relays_of_strangers_are_refused_and_agents_without_neighbors():
    public = Public(np.ones(2), 1.0, 1.0, None)
    agent = TalkingAgent(0, {1: 1.0}, collaborate(0, public, {1: 1.0}))
    agent.start()
    with pytest.raises(SimulationError, match="not a neighbor"):
        agent.on_relay(Relay(5, "mean/16", 0, np.zeros(2)))
    with pytest.raises(SimulationError, match="no neighbor"):
        TalkingAgent(0, {}, collaborate(0, public, {}))
