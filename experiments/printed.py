"""Eq. (6) as printed, in the compiled engine: the noise of Theorem 1, steps from the data, the last iterate.

The library has no such run. A gradient is not bounded, or in the norm of another noise, and the steps depend
on the data: what is printed as its ε guarantees nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flockwise.engine import ENGINES, RunSettings
from flockwise.method import WarmStart
from flockwise.method.rules import Descent, DescentNoise, Edges, LocalData
from flockwise.objective import Problem
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Norm
from flockwise.privacy.schedule import Schedule
from flockwise.randomness.clocks import NEVER

Models = NDArray[np.float64]
# Larger than any gradient here.
NO_CLIP: Final = 1e12


@dataclass(frozen=True, eq=False)
class PrintedNoise(DescentNoise):
    """Laplace noise on gradients that are clipped in L2, if at all."""

    @property
    def norm(self) -> Norm:
        return "l2"


def descend_as_printed(
    problem: Problem,
    start: Models,
    budget: Budget,
    updates: int,
    seed: int,
    *,
    lipschitz: float = 1.0,
    clip: float = NO_CLIP,
) -> Models:
    """Everyone's last model after so many updates, with Laplace noise of scale 2L₀/(ε(t)·m_i)."""
    counts = problem.population.sample_counts
    noise = PrintedNoise(
        Schedule.fitting(budget, problem.n_agents, "laplace", updates, accountant="theorem1"),
        clip,
        problem.dimension,
        np.where(counts > 0, 2 * lipschitz / np.maximum(counts, 1), 0.0),
    )
    rule = Descent(
        np.arange(problem.n_agents),
        Edges.of(problem.neighbors),
        LocalData.of(problem),
        start.astype(problem.population.dtype),
        True,
        problem.step_sizes,
        problem.pulls,
        noise,
    )
    return last_models(rule, updates, seed)


def last_models(rule: Descent, updates: int, seed: int) -> Models:
    """What every agent sent last."""
    run = ENGINES["cpu"].start(rule, RunSettings(seed=seed, limit=updates, threads=1))
    run.advance(NEVER - 1)
    return run.state()["models"].copy()


def private_start(bounded: Problem, epsilon: float, delta: float, seed: int) -> Models:
    """The start of supplement C with a guarantee: local models, released and propagated.

    bounded: a problem with a public bound on the features.
    """
    schedule = Schedule.fitting(Budget(epsilon, delta), bounded.n_agents, "gaussian", 1)
    return WarmStart().models(bounded, schedule, seed)
