"""Block coordinate descent on Eq. (2), made ready to run: what each agent does when it wakes.

Coordinate descent and model propagation are the same rule on two kinds of local term, so both
methods prepare a `Descent`, and every engine runs just that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import SimulationError
from flockwise.objective import (
    AnchoredObjective,
    CollaborativeObjective,
    LocalObjective,
    Problem,
    PropagationObjective,
    solve_local_models,
)
from flockwise.objective.clipping import slope_bounds
from flockwise.objective.kernels import AnchorTerm, ClippedTerm, DataTerm, data_term
from flockwise.privacy.noise_plan import NoisePlan

Vector = NDArray[Any]
Start = str | NDArray[Any]


def descent_update(
    model: Vector, neighbor_mean: Vector, local_gradient: Vector, step_size: float, pull: float
) -> Vector:
    """Eq. (4): (1 − α)·Θ_i + α·(Σ_j W_ij/D_ii·Θ_j − μc_i·∇ℒ_i(Θ_i))."""
    return (1 - step_size) * model + step_size * (neighbor_mean - pull * local_gradient)


@dataclass(frozen=True)
class Descent:
    """One row per agent: where it starts, how far it steps, how strongly its own data pull.

    `start_is_public` says that everyone knows where everyone starts without a message; otherwise
    each agent broadcasts its start first. With `anchors` the local terms are distances to them. With
    `noise` every sample's gradient is clipped and every update adds what the plan says: Eq. (6).
    """

    problem: Problem
    start: NDArray[Any]
    start_is_public: bool
    step_sizes: NDArray[np.float64]
    pulls: NDArray[np.float64]
    anchors: NDArray[Any] | None = None
    noise: NoisePlan | None = None

    def local_objective(self, agent: int) -> LocalObjective | AnchoredObjective:
        """ℒ_i of one agent."""
        if self.anchors is not None:
            return AnchoredObjective(self.anchors[agent])
        return LocalObjective.of_agent(self.problem, agent)

    def kernel_term(self) -> DataTerm | ClippedTerm | AnchorTerm:
        """ℒ_i of all agents, for the compiled engines."""
        if self.anchors is not None:
            return AnchorTerm(self.anchors)
        term = data_term(self.problem)
        if self.noise is None:
            return term
        norm = self.noise.mechanism.norm
        bounds = slope_bounds(term.features, self.noise.clip, norm)
        return ClippedTerm(*term, bounds, norm == "l1")

    def objective(self) -> CollaborativeObjective | PropagationObjective:
        """What the descent minimises."""
        problem = self.problem
        if self.anchors is not None:
            return PropagationObjective(problem.graph, self.anchors, self.pulls, 1.0)
        return CollaborativeObjective(problem)


def starting_models(problem: Problem, start: Start) -> tuple[NDArray[Any], bool]:
    """Θ(0), and whether it is known to all without a message."""
    shape, dtype = (problem.n_agents, problem.dimension), problem.population.dtype
    if isinstance(start, str):
        if start == "zeros":
            return np.zeros(shape, dtype), True
        if start == "local":
            return solve_local_models(problem).astype(dtype), False
        raise SimulationError(f"start must be 'zeros', 'local' or an array of models, got start={start!r}")
    models = np.array(start, dtype)
    if models.shape != shape:
        raise SimulationError(f"start must have one row per agent, shape {shape}, got shape {models.shape}")
    if not np.isfinite(models).all():
        agent = int(np.flatnonzero(~np.isfinite(models).all(axis=1))[0])
        raise SimulationError(f"start of agent {agent} has a value that is not finite")
    return models, False
