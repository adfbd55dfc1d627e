"""Eq. (4) for loops of your own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.objective import LocalObjective, Problem
from flockwise.protocol.descent import descent_update


def step(problem: Problem, models: NDArray[Any], agent: int) -> NDArray[Any]:
    """The model of one agent after one update of Eq. (4), given everyone's models."""
    neighbors, weights = problem.neighbors.neighbors_of(agent)
    own = np.asarray(models[agent])
    mean = weights @ np.asarray(models)[neighbors] / weights.sum() if len(neighbors) else own
    gradient = LocalObjective.of_agent(problem, agent).gradient(own)
    return descent_update(own, mean, gradient, problem.step_sizes[agent], problem.pulls[agent])
