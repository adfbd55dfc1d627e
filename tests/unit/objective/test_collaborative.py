"""Eq. (2) and Eq. (3), against sums written out and finite differences."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from scipy.optimize import approx_fprime

from flockwise.objective import CollaborativeObjective, LocalObjective, Logistic, Problem

THREADS = numba.get_num_threads()


def random_models(problem: Problem, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((problem.n_agents, problem.dimension))


def test_value_is_eq_2_written_out(make_problem, loss):
    problem = make_problem(loss, tradeoff=0.3)
    models = random_models(problem)
    weights = problem.neighbors.to_scipy().toarray()
    expected = 0.0
    for i in range(problem.n_agents):
        for j in range(i + 1, problem.n_agents):
            expected += 0.5 * weights[i, j] * np.sum((models[i] - models[j]) ** 2)
        own = LocalObjective.of_agent(problem, i).value(models[i])
        expected += 0.3 * weights[i].sum() * problem.confidences[i] * own
    assert CollaborativeObjective(problem).value(models) == pytest.approx(expected, rel=1e-13)


def test_everyones_part_has_half_of_each_of_its_edges(make_problem, loss):
    problem = make_problem(loss, tradeoff=0.3)
    models = random_models(problem)
    parts = CollaborativeObjective(problem).agent_values(models)
    for agent in range(problem.n_agents):
        neighbors, weights = problem.neighbors.neighbors_of(agent)
        edges = 0.25 * weights @ ((models[agent] - models[neighbors]) ** 2).sum(axis=1)
        own = LocalObjective.of_agent(problem, agent).value(models[agent])
        expected = edges + problem.neighbors.degrees[agent] * problem.pulls[agent] * own
        assert parts[agent] == pytest.approx(expected, rel=1e-12)


def block_of_eq_3(problem: Problem, agent: int, models: np.ndarray) -> np.ndarray:
    """One agent's block of the gradient, written out."""
    neighbors, weights = problem.neighbors.neighbors_of(agent)
    apart = weights @ (models[agent] - models[neighbors])
    own = LocalObjective.of_agent(problem, agent).gradient(models[agent])
    return apart + problem.neighbors.degrees[agent] * problem.pulls[agent] * own


def test_gradient_agrees_with_finite_differences_and_with_single_blocks(make_problem, loss):
    problem = make_problem(loss, tradeoff=0.3)
    objective = CollaborativeObjective(problem)
    models = random_models(problem)
    numeric = approx_fprime(models.ravel(), lambda flat: objective.value(flat.reshape(models.shape)))
    gradient = objective.gradient(models)
    assert gradient.ravel() == pytest.approx(numeric, abs=2e-5)
    for agent in range(problem.n_agents):
        assert block_of_eq_3(problem, agent, models) == pytest.approx(gradient[agent], abs=1e-13)


def test_hessian_product_agrees_with_differences_of_gradients(make_problem, loss):
    problem = make_problem(loss, tradeoff=0.3)
    objective = CollaborativeObjective(problem)
    models, direction = random_models(problem, 1), random_models(problem, 2)
    step = 1e-6
    difference = objective.gradient(models + step * direction) - objective.gradient(models - step * direction)
    assert objective.hessian(models)[0](direction) == pytest.approx(difference / (2 * step), abs=1e-7)


def test_an_isolated_agent_adds_nothing(make_problem):
    problem = make_problem(Logistic(), edges=((0, 1), (1, 2), (2, 3)))
    objective = CollaborativeObjective(problem)
    models = random_models(problem)
    other = models.copy()
    other[4] += 5.0
    assert objective.value(models) == objective.value(other)
    assert not objective.gradient(other)[4].any()
    assert objective.agent_values(other)[4] == 0


@pytest.mark.skipif(THREADS < 2, reason="needs two threads to compare")
def test_results_are_the_same_for_every_thread_count(make_problem):
    edges = tuple((i, (i + 1) % 50) for i in range(50))
    objective = CollaborativeObjective(make_problem(Logistic(), counts=(9,) * 50, edges=edges))
    models = random_models(objective.problem)
    several = objective.value(models), objective.gradient(models)
    numba.set_num_threads(1)
    try:
        one = objective.value(models), objective.gradient(models)
    finally:
        numba.set_num_threads(THREADS)
    assert one[0] == several[0]
    assert np.array_equal(one[1], several[1])
