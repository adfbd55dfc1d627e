"""Gossip ADMM: each half of its rule against an oracle, its limit, and what it sends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from flockwise.data import Population, linear_classification
from flockwise.engine import Conditions, RunSettings, simulate
from flockwise.engine.reference.meetings import ReferenceMeetings
from flockwise.engine.state import chosen_edge
from flockwise.errors import SimulationError
from flockwise.graph import SimilarityGraph, angular_graph
from flockwise.method import CoordinateDescent, GossipADMM, paper_vectors
from flockwise.method.admm import COPY, OWN, agree, offer, part_of
from flockwise.method.rules import Meetings
from flockwise.objective import CollaborativeObjective, LocalObjective, Objective, Problem, Quadratic
from flockwise.solve import solve_optimum

N_AGENTS, DIMENSION = 7, 3
# Agent 6 has no neighbor; agent 5 has no data.
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (1, 5)]
WEIGHTS = [0.5, 1.0, 2.0, 0.3, 1.0, 0.8, 0.1]


def small_problem(loss=Quadratic(), edges=EDGES, weights=WEIGHTS, **settings):  # noqa: B008
    random = np.random.default_rng(5)
    counts = np.array([3, 8, 1, 5, 6, 0, 4])
    features = random.standard_normal((counts.sum(), DIMENSION))
    targets = random.standard_normal(counts.sum())
    if not isinstance(loss, Quadratic):
        targets = np.where(targets >= 0, 1.0, -1.0)
    population = Population.packed(features, targets, np.concatenate(([0], np.cumsum(counts))))
    graph = SimilarityGraph.from_edges(N_AGENTS, np.reshape(edges, (-1, 2)), weights)
    return Problem(population, graph, Objective(loss, **settings))


def rule_of(method, problem):
    rule = method.prepare(problem, 0).rule
    assert isinstance(rule, Meetings)
    return rule


def part_of_eq_2(problem, agent, model, copies):
    """¼ Σ_j W_ij‖Θ_i − Θ_i^j‖² + μ D_ii c_i ℒ_i(Θ_i), word by word."""
    _, weights = problem.neighbors.neighbors_of(agent)
    data_weight = problem.tradeoff * problem.neighbors.degrees[agent] * problem.confidences[agent]
    own_term = data_weight * LocalObjective.of_agent(problem, agent).value(model)
    return 0.25 * weights @ ((model - copies) ** 2).sum(axis=1) + own_term


def quadratic_optimum(problem):
    """Eq. (2) with the quadratic loss as one dense linear system; Eq. (1) for agents without neighbors."""
    size, penalties, counts = problem.dimension, problem.l2_penalties, problem.population.sample_counts
    degrees = problem.neighbors.degrees
    pulls = np.where(degrees > 0, problem.pulls * degrees, 1.0)
    system = np.kron(problem.neighbors.laplacian().toarray(), np.eye(size))
    right = np.zeros(problem.n_agents * size)
    for agent in range(problem.n_agents):
        features, targets = problem.population.samples(agent)
        block = slice(agent * size, (agent + 1) * size)
        scale = 2 * pulls[agent] / max(counts[agent], 1)
        system[block, block] += scale * features.T @ features + 2 * pulls[agent] * penalties[agent] * np.eye(
            size
        )
        right[block] = scale * features.T @ targets
    return np.linalg.solve(system, right).reshape(-1, size)


def test_the_parts_sum_to_eq_2_where_the_copies_are_true():
    problem = small_problem(tradeoff=0.7)
    models = np.random.default_rng(0).standard_normal((N_AGENTS, DIMENSION))
    parts = [
        part_of_eq_2(problem, i, models[i], models[problem.neighbors.neighbors_of(i)[0]])
        for i in range(N_AGENTS)
    ]
    assert sum(parts) == pytest.approx(CollaborativeObjective(problem).value(models), rel=1e-12)


@pytest.mark.parametrize("agent", [1, 5])
def test_an_agent_minimizes_its_part_of_the_augmented_lagrangian(agent):
    """Own model and copies together, as scipy finds them without any elimination."""
    problem, penalty = small_problem(tradeoff=0.7), 0.4
    random = np.random.default_rng(agent)
    n_neighbors = int(problem.neighbors.neighbor_counts[agent])
    auxiliary, duals = random.standard_normal((2, n_neighbors, 2, DIMENSION))

    def lagrangian(flat):
        model, copies = flat[:DIMENSION], flat[DIMENSION:].reshape(n_neighbors, DIMENSION)
        value = part_of_eq_2(problem, agent, model, copies)
        for which, held in ((OWN, np.tile(model, (n_neighbors, 1))), (COPY, copies)):
            apart = held - auxiliary[:, which]
            value += (duals[:, which] * apart).sum() + penalty / 2 * (apart**2).sum()
        return value

    best = optimize.minimize(lagrangian, np.zeros((n_neighbors + 1) * DIMENSION), options={"gtol": 1e-7}).x
    part = part_of(rule_of(GossipADMM(penalty, gradient_steps=500, start="zeros"), problem), agent)
    model, copies = part.minimize(np.zeros(DIMENSION), auxiliary, duals)
    np.testing.assert_allclose(model, best[:DIMENSION], atol=1e-5)
    np.testing.assert_allclose(copies.ravel(), best[DIMENSION:], atol=1e-5)


def test_the_step_is_one_over_the_largest_curvature_of_the_part():
    problem = small_problem(tradeoff=5.0)
    objective = LocalObjective.of_agent(problem, 1)
    rule = rule_of(GossipADMM(0.05, gradient_steps=1, start="zeros"), problem)
    hessian = np.column_stack(
        [objective.gradient(unit) - objective.gradient(np.zeros(DIMENSION)) for unit in np.eye(DIMENSION)]
    )
    smoothness = np.linalg.eigvalsh(rule.data_weights[1] * hessian)[-1] + rule.stiffness[1]
    assert rule.step_sizes[1] == pytest.approx(1 / smoothness, rel=1e-9)


def test_the_ends_of_an_edge_agree_where_the_lagrangian_is_smallest_in_z():
    model, copy, model_dual, copy_dual = np.random.default_rng(3).standard_normal((4, DIMENSION))
    penalty = 0.3
    of_model, of_copy = offer(model, model_dual, penalty), offer(copy, copy_dual, penalty)
    shared, new_model_dual = agree(model, model_dual, of_copy, penalty)
    at_the_other_end, new_copy_dual = agree(copy, copy_dual, of_model, penalty)
    np.testing.assert_array_equal(shared, at_the_other_end)

    def lagrangian(z):
        linear = model_dual @ (model - z) + copy_dual @ (copy - z)
        return linear + penalty / 2 * (((model - z) ** 2).sum() + ((copy - z) ** 2).sum())

    best = optimize.minimize(lagrangian, np.zeros(DIMENSION), options={"gtol": 1e-9}).x
    np.testing.assert_allclose(shared, best, atol=1e-6)
    np.testing.assert_allclose(new_model_dual, model_dual + penalty * (model - shared))
    np.testing.assert_allclose(new_model_dual + new_copy_dual, 0, atol=1e-12)


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_the_limit_of_the_quadratic_loss_is_its_linear_system(penalty):
    problem = small_problem(tradeoff=0.7)
    run = simulate(problem, GossipADMM(penalty, start="zeros"), time=2000, record_every=None)
    np.testing.assert_allclose(run.models, quadratic_optimum(problem), rtol=1e-8, atol=1e-10)


def synthetic_problem(dimension, n_agents, tradeoff):
    task = linear_classification(n_agents, dimension, seed=1, max_samples=40, test_samples=1)
    graph = angular_graph(task.targets, threshold="connected", source="targets")
    return Problem(task.train, graph, Objective(tradeoff=tradeoff))


def test_at_dimension_20_admm_reaches_the_optimum_with_more_ticks_than_coordinate_descent():
    """The order of the paper's first figure, with the logistic loss."""
    problem = synthetic_problem(20, 40, tradeoff=3.0)
    optimum = solve_optimum(problem).value

    def ticks_to_reach(run, gap):
        return run.column("ticks")[run.column("objective") <= (1 + gap) * optimum].min()

    descent = simulate(problem, CoordinateDescent(), engine="reference", time=16, record_every=4.0)
    for penalty in (0.15, 1.0):
        run = simulate(problem, GossipADMM(penalty, start="zeros"), time=400, record_every=8.0)
        assert abs(run.final.objective / optimum - 1) < 1e-4
        assert ticks_to_reach(run, 1e-2) > ticks_to_reach(descent, 1e-2)


def test_an_agent_without_neighbors_gets_its_local_model_and_sends_nothing():
    problem = small_problem(edges=[], weights=[])
    run = simulate(problem, GossipADMM(start="zeros"), updates=200, record_every=None)
    np.testing.assert_allclose(run.models, quadratic_optimum(problem), atol=1e-8)
    assert run.final.vectors == 0
    assert (run.updates == 200).all()


def test_an_agent_with_nothing_to_follow_stays_where_it_started():
    problem = small_problem(edges=[], weights=[], l2=0.0)
    start = np.ones((N_AGENTS, DIMENSION))
    run = simulate(problem, GossipADMM(start=start), updates=3, engine="reference")
    np.testing.assert_array_equal(run.models[5], start[5])


def test_vectors_are_counted_as_they_are_sent_and_as_the_paper_counts_them():
    problem = small_problem()
    directed_edges, linked_agents, updates = 2 * len(EDGES), N_AGENTS - 1, 5
    public = simulate(problem, GossipADMM(start="zeros"), updates=updates)
    assert public.final.vectors == 4 * linked_agents * updates
    assert paper_vectors(public.column("vectors"))[-1] == 8 * linked_agents * updates
    private = simulate(problem, GossipADMM(start=np.ones((N_AGENTS, DIMENSION))), updates=updates)
    assert private.records[0].vectors == directed_edges
    assert private.final.vectors == directed_edges + 4 * linked_agents * updates
    assert paper_vectors(private.column("vectors"))[-1] == directed_edges + 8 * linked_agents * updates


@settings(max_examples=30)
@given(data=st.data())
def test_meetings_that_share_no_agent_commute(data):
    """Bit for bit, from a state that some ticks have made general."""
    problem = small_problem()
    directed = list(
        zip(
            np.repeat(np.arange(N_AGENTS), problem.neighbors.neighbor_counts),
            problem.neighbors.neighbors,
            strict=True,
        )
    )
    first = data.draw(st.integers(0, len(directed) - 1))
    disjoint = [e for e, ends in enumerate(directed) if not set(ends) & set(directed[first])]
    second = data.draw(st.sampled_from(disjoint))
    seed = data.draw(st.integers(0, 2**64 - 1))
    results = []
    for order in ((first, second), (second, first)):
        rule = rule_of(GossipADMM(start="zeros", gradient_steps=2), problem)
        run = ReferenceMeetings(rule, RunSettings(seed))
        run.advance(1 << 40)
        for edge in order:
            run.meet(*map(int, directed[edge]))
        results.append(run.state())
    for name, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][name])


def test_every_neighbor_is_woken_as_often():
    """Chi-square over 20 000 wake-ups of an agent with 7 neighbors; false alarm 1e-6."""
    offsets = np.array([0, 3, 10], np.int64)
    edges = np.array([chosen_edge(np.uint64(8), 1, update, offsets, 1) for update in range(20_000)])
    assert edges.min() == 3
    assert edges.max() == 9
    assert stats.chisquare(np.bincount(edges - 3)).pvalue > 1e-6


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize(
    "conditions", [Conditions(delay=0.5), Conditions(loss=0.1), Conditions(joins={0: 1.0})]
)
def test_a_network_that_is_not_ideal_is_refused(engine, conditions):
    with pytest.raises(SimulationError, match=r"needs the ideal network.*CoordinateDescent"):
        simulate(small_problem(), GossipADMM(start="zeros"), updates=1, engine=engine, conditions=conditions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"penalty": 0.0}, "penalty must be a number above 0, got penalty=0.0"),
        ({"penalty": float("nan")}, "got penalty=nan"),
        ({"penalty": float("inf")}, "got penalty=inf"),
        ({"gradient_steps": 0}, "gradient_steps must be a whole number from 1 on, got gradient_steps=0"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(SimulationError, match=message):
        GossipADMM(**arguments)
