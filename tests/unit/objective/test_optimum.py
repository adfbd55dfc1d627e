"""The minimum of Eq. (2), against independent solvers, and both of its limits."""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
import pytest
from scipy.optimize import minimize
from tests.support import random_problem

from flockwise.objective import (
    CappedLogistic,
    CollaborativeObjective,
    Huber,
    LocalObjective,
    Logistic,
    Problem,
    Quadratic,
    Softmax,
)
from flockwise.registry import declared_by
from flockwise.solve import solve_global_model, solve_local_models, solve_optimum


def cvxpy_loss(problem: Problem, agent: int, model: Any) -> Any:
    """The sum of the losses of one agent as a CVXPY expression."""
    features, targets = problem.population.samples(agent)
    match problem.loss:
        case Logistic():
            return cvxpy.sum(cvxpy.logistic(-cvxpy.multiply(targets, features @ model)))
        case CappedLogistic():
            # A sample on the wrong side is moved up to the separator, at the price of ½ for every step.
            moves = cvxpy.Variable(len(targets), nonneg=True)
            margins = cvxpy.multiply(targets, features @ model) + moves
            return cvxpy.sum(cvxpy.logistic(-margins)) + 0.5 * cvxpy.sum(moves)
        case Quadratic():
            return cvxpy.sum_squares(features @ model - targets)
        case Huber(width):
            return cvxpy.sum(cvxpy.huber(features @ model - targets, width))  # pyright: ignore[reportArgumentType]
        case Softmax(classes):
            scores = features @ cvxpy.reshape(model, (classes, features.shape[1]), order="C").T
            chosen = np.eye(classes)[targets.astype(int)]
            return cvxpy.sum(cvxpy.log_sum_exp(scores, axis=1)) - cvxpy.sum(cvxpy.multiply(chosen, scores))
    raise AssertionError("no such loss")


def independent_minimum(problem: Problem) -> float:
    """By CVXPY; for a loss from outside the package, by a quasi-Newton method on plain NumPy."""
    if declared_by(problem.loss) is None:
        return cvxpy_optimum(problem)
    agents = [LocalObjective.of_agent(problem, agent) for agent in range(problem.n_agents)]
    laplacian = problem.neighbors.laplacian().toarray()
    weights = problem.neighbors.degrees * problem.pulls

    def value(flat: np.ndarray) -> float:
        models = flat.reshape(problem.n_agents, -1)
        local = sum(w * own.value(model) for w, own, model in zip(weights, agents, models, strict=True))
        return 0.5 * float(np.trace(models.T @ laplacian @ models)) + local

    start = np.zeros(problem.n_agents * problem.dimension)
    return float(minimize(value, start, method="BFGS", options={"gtol": 1e-6}).fun)


def cvxpy_optimum(problem: Problem) -> float:
    models = [cvxpy.Variable(problem.dimension) for _ in range(problem.n_agents)]
    total: Any = 0.0
    for i, own in enumerate(models):
        for j, weight in zip(*problem.neighbors.neighbors_of(i), strict=True):
            if i < j:
                total += 0.5 * weight * cvxpy.sum_squares(own - models[j])
        local: Any = problem.l2_penalties[i] * cvxpy.sum_squares(own)
        count = problem.population.sample_counts[i]
        if count:
            local += cvxpy_loss(problem, i, own) / count
        total += problem.neighbors.degrees[i] * problem.pulls[i] * local
    minimum: Any = cvxpy.Problem(cvxpy.Minimize(total)).solve(solver="CLARABEL")
    return float(minimum)


@pytest.mark.parametrize("tradeoff", [0.05, 3.0])
def test_the_optimum_is_that_of_an_independent_solver(make_problem, loss, tradeoff):
    problem = make_problem(loss, tradeoff=tradeoff)
    optimum = solve_optimum(problem)
    assert optimum.value == pytest.approx(independent_minimum(problem), rel=1e-6)
    assert optimum.value == CollaborativeObjective(problem).value(optimum.models)
    assert 0 <= optimum.gap_bound <= 1e-10 * optimum.value


def test_the_certified_gap_is_a_bound(make_problem, loss):
    problem = make_problem(loss)
    best = solve_optimum(problem, tolerance=1e-13)
    for tolerance in (1e-1, 1e-3, 1e-5):
        rough = solve_optimum(problem, tolerance=tolerance, start=np.ones_like(best.models))
        assert rough.value - best.value <= rough.gap_bound
        assert rough.gap_bound <= tolerance * rough.value


def test_penalties_of_some_agents_certify_the_gap_through_the_graph(make_problem):
    problem = make_problem(Logistic(), l2=[0.0, 0.2, 0.0, 0.0, 0.0])
    optimum = solve_optimum(problem)
    assert 0 < optimum.gap_bound <= 1e-10 * optimum.value
    assert optimum.value == pytest.approx(independent_minimum(problem), rel=1e-6)


def test_without_any_penalty_there_is_no_certificate(make_problem):
    problem = make_problem(Quadratic(), l2=0.0, counts=(8, 8, 9, 8, 7))
    optimum = solve_optimum(problem)
    assert np.isinf(optimum.gap_bound)
    assert optimum.value == pytest.approx(independent_minimum(problem), rel=1e-6)


def test_a_large_tradeoff_gives_the_local_models(make_problem, loss):
    problem = make_problem(loss, tradeoff=1e7, counts=(5, 6, 9, 3, 7))
    assert solve_optimum(problem, tolerance=1e-14).models == pytest.approx(
        solve_local_models(problem), abs=1e-4
    )


def test_a_small_tradeoff_gives_the_global_model_to_everyone(make_problem, loss):
    problem = make_problem(loss, tradeoff=1e-6)
    everyone = np.tile(solve_global_model(problem), (problem.n_agents, 1))
    assert solve_optimum(problem, tolerance=1e-13).models == pytest.approx(everyone, abs=1e-4)


def test_an_isolated_agent_gets_its_local_model(make_problem, loss):
    problem = make_problem(loss, edges=((0, 1), (1, 2), (2, 3)))
    optimum = solve_optimum(problem)
    assert np.array_equal(optimum.models[4], solve_local_models(problem, agents=[4])[0])
    assert optimum.value == pytest.approx(independent_minimum(problem), rel=1e-6)


def test_without_edges_everyone_gets_a_local_model(make_problem):
    problem = make_problem(Quadratic(), edges=())
    optimum = solve_optimum(problem)
    assert np.array_equal(optimum.models, solve_local_models(problem))
    assert (optimum.value, optimum.gap_bound) == (0.0, 0.0)


@pytest.mark.parametrize("tradeoff", [1e-3, 1.0, 1e3])
def test_many_agents_reach_the_precision_that_engines_are_judged_by(make_problem, tradeoff):
    edges = tuple((i, (i + step) % 100) for i in range(100) for step in (1, 2, 7))
    counts = tuple(np.random.default_rng(0).integers(10, 101, 100).tolist())
    problem = make_problem(Logistic(), counts=counts, edges=edges, n_features=20, tradeoff=tradeoff)
    optimum = solve_optimum(problem)
    assert optimum.gap_bound <= 1e-10 * optimum.value


def test_one_anchor_for_all_is_the_same_as_targets_less_what_it_predicts():
    """A common shift of all models changes no difference between neighbors."""
    problem = random_problem(5, loss=Quadratic(), n_agents=7)
    population = problem.population
    anchor = np.linspace(-1.0, 2.0, problem.dimension)
    shifted = population.with_samples(population.features, population.targets - population.features @ anchor)
    moved = solve_optimum(Problem(shifted, problem.graph, problem.objective), tolerance=1e-12).models
    anchored = solve_optimum(problem, tolerance=1e-12, anchors=np.tile(anchor, (7, 1))).models
    np.testing.assert_allclose(anchored, moved + anchor, atol=1e-5)
    assert np.abs(anchored - solve_optimum(problem).models).max() > 0.01
