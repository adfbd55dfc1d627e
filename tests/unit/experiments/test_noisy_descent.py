"""Eq. (6) as published: without noise it is the library's descent, and its noise is what Theorem 1 says."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from experiments.noisy_descent import divided_twice, noisy_descent, theorem_1_scales, weakened
from tests.support import random_problem

from flockwise.data import linear_classification
from flockwise.graph import angular_graph
from flockwise.objective import Problem
from flockwise.solve import solve_optimum


def test_without_noise_it_descends_to_the_optimum():
    problem = random_problem(0, n_agents=8, density=0.8, max_samples=6)
    start = np.zeros((problem.n_agents, problem.dimension))
    models = noisy_descent(problem, start, np.zeros((problem.n_agents, 400)), seed=0)
    linked = problem.neighbors.degrees > 0
    np.testing.assert_allclose(models[linked], solve_optimum(problem).models[linked], atol=1e-3)
    assert (start == 0).all()


def test_every_agent_makes_its_updates_and_is_silent_then():
    problem = random_problem(0, n_agents=6, density=0.9)
    seen = []
    start = np.zeros((6, problem.dimension))
    noisy_descent(problem, start, np.ones((6, 2)), seed=0, watch=lambda tick, now: seen.append(now.copy()))
    changes = np.sum([(after != before).any(axis=1) for before, after in pairwise(seen)], axis=0)
    assert len(seen) == 6 * 2 + 1
    assert (changes == 2).all()


def test_theorem_1_gives_the_papers_steps():
    """ε(t) = .106 for 10 updates within (1, e⁻⁵)."""
    np.testing.assert_allclose(1 / theorem_1_scales(1.0, math.exp(-5), 10), 0.106, atol=0.001)


def test_the_noise_without_a_guarantee_is_a_fraction_of_the_printed_one():
    task = linear_classification(5, 3, seed=0, test_samples=1)
    problem = Problem(task.train, angular_graph(task.targets, threshold=0.0, source="targets"))
    scales = divided_twice(problem, 1.0, math.exp(-5), 1)[:, 0]
    # One update has the whole ε = 1.
    np.testing.assert_allclose(scales, 2 / problem.population.sample_counts**2, rtol=1e-6)
    tenth = weakened(problem, 1.0, math.exp(-5), 1, 10)[:, 0]
    np.testing.assert_allclose(tenth, 0.2 / problem.population.sample_counts, rtol=1e-6)
