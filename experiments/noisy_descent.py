"""Eq. (6) as published, in plain NumPy: Laplace noise of any scale, and nothing that bounds a gradient.

The library has no such run: without a bound on what one point can change, no noise guarantees anything.
It stands here to show which noise gives the published curves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flockwise.objective import LocalObjective, Problem
from flockwise.privacy.accounting import calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Laplace
from flockwise.protocol.descent import descent_update

Models = NDArray[np.float64]
NOT_PRIVATE = {"guarantee": "not differentially private"}


def theorem_1_scales(epsilon: float, delta: float, updates: int) -> NDArray[np.float64]:
    """Laplace scales for a sensitivity of 1: the budget spread evenly over the updates by Theorem 1."""
    events = calibrate(Budget(epsilon, delta), Laplace(1.0, 1.0), "theorem1", updates)
    return np.array([event.scale for event in events])


def weakened(
    problem: Problem, epsilon: float, delta: float, updates: int, divisor: float
) -> NDArray[np.float64]:
    """Scales 2L₀/(ε(t)·m_i) with L₀ = 1, as printed, divided by a constant."""
    counts = problem.population.sample_counts[:, None].astype(np.float64)
    return 2 / (counts * divisor) * theorem_1_scales(epsilon, delta, updates)


def divided_twice(problem: Problem, epsilon: float, delta: float, updates: int) -> NDArray[np.float64]:
    """Scales 2L₀/(ε(t)·m_i²) with L₀ = 1: noise for a mean, divided by m_i once more."""
    counts = problem.population.sample_counts[:, None].astype(np.float64)
    return 2 / counts**2 * theorem_1_scales(epsilon, delta, updates)


def noisy_descent(
    problem: Problem,
    start: Models,
    noise_scales: NDArray[np.float64],
    seed: int,
    watch: Callable[[int, Models], None] = lambda tick, models: None,
) -> Models:
    """T_i updates of every agent, each of a random one of those that are not done.

    noise_scales: one row per agent, one column per update. watch: called with the updates done by all and
    the models, at the start and after each update.
    """
    random = np.random.default_rng(seed)
    graph, (n_agents, n_updates) = problem.neighbors, noise_scales.shape
    shares = graph.to_scipy().toarray() / graph.degrees[:, None]
    locals_ = [LocalObjective.of_agent(problem, agent) for agent in range(n_agents)]
    models, done = start.copy(), np.zeros(n_agents, int)
    watch(0, models)
    for update in range(n_agents * n_updates):
        agent = random.choice(np.flatnonzero(done < n_updates))
        noise = random.laplace(0, noise_scales[agent, done[agent]], models.shape[1])
        gradient = locals_[agent].gradient(models[agent]) + noise
        pull, step_size = float(problem.pulls[agent]), float(problem.step_sizes[agent])
        mean = shares[agent] @ models
        models[agent] = descent_update(models[agent], mean, gradient, step_size, pull)
        done[agent] += 1
        watch(update + 1, models)
    return models
