"""Eq. (4): what an agent does when it wakes, as a pure function of its state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.objective import LocalObjective, Problem


def descent_update(
    model: NDArray[Any],
    neighbor_mean: NDArray[Any],
    local_gradient: NDArray[Any],
    step_size: float,
    pull: float,
) -> NDArray[Any]:
    """Eq. (4): (1 − α)·Θ_i + α·(Σ_j W_ij/D_ii·Θ_j − μc_i·∇ℒ_i(Θ_i))."""
    return (1 - step_size) * model + step_size * (neighbor_mean - pull * local_gradient)


def step(problem: Problem, models: NDArray[Any], agent: int) -> NDArray[Any]:
    """The model of one agent after one update of Eq. (4), given everyone's models: for loops of your own."""
    neighbors, weights = problem.neighbors.neighbors_of(agent)
    own = np.asarray(models[agent])
    mean = weights @ np.asarray(models)[neighbors] / weights.sum() if len(neighbors) else own
    gradient = LocalObjective.of_agent(problem, agent).gradient(own)
    return descent_update(own, mean, gradient, problem.step_sizes[agent], problem.pulls[agent])
