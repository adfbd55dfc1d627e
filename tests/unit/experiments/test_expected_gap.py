"""The exact expectation in the ring, against a simulation of the same descent."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.expected_gap import expected_gaps, optimum, ring_problem

from flockwise.objective import CollaborativeObjective, LocalObjective
from flockwise.protocol.descent import descent_update
from flockwise.solve import solve_optimum

TICKS = 12


def simulated_gaps(problem, std, runs):
    """Gaps in the end of runs from zero models, with normal noise."""
    random = np.random.default_rng(1)
    value, best = CollaborativeObjective(problem).value, solve_optimum(problem).value
    shares = problem.neighbors.to_scipy().toarray() / problem.neighbors.degrees[:, None]
    gaps = []
    for _ in range(runs):
        models = np.zeros((problem.n_agents, problem.dimension))
        for agent in random.integers(problem.n_agents, size=TICKS):
            noise = random.normal(0, std, problem.dimension)
            gradient = LocalObjective.of_agent(problem, agent).gradient(models[agent]) + noise
            mean, step = shares[agent] @ models, float(problem.step_sizes[agent])
            models[agent] = descent_update(models[agent], mean, gradient, step, float(problem.pulls[agent]))
        gaps.append(value(models) - best)
    return np.array(gaps)


def test_the_optimum_is_that_of_the_solver():
    problem = ring_problem(5, 3)
    np.testing.assert_allclose(optimum(problem), solve_optimum(problem).models, atol=1e-6)


def test_the_expected_gap_is_the_mean_over_many_runs():
    """The mean of 400 runs is within four standard errors, which fails with probability below 1e-4."""
    problem = ring_problem(5, 3)
    exact = expected_gaps(problem, np.full((5, TICKS), 0.5))
    found = simulated_gaps(problem, 0.5, 400)
    value = CollaborativeObjective(problem).value
    assert exact[0] == pytest.approx(value(np.zeros((5, 3))) - solve_optimum(problem).value)
    assert abs(found.mean() - exact[-1]) < 4 * found.std(ddof=1) / np.sqrt(len(found))


def test_without_noise_the_optimum_is_kept():
    problem = ring_problem(6, 2)
    gaps = expected_gaps(problem, np.zeros((6, 8)), from_optimum=True)
    np.testing.assert_array_equal(gaps, 0)
