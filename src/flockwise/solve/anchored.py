"""Exact local solves around an anchor: every agent's own data, and a pull toward what it received."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import ObjectiveError
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.passes import mean_loss_gradients, mean_losses
from flockwise.objective.problem import Problem
from flockwise.solve.local import minimize_each


class AnchoredLocalObjectives(LocalObjectives):
    """(1/m_i) Σ ℓ(θ; x, y) + strength_i·‖θ − anchor_i‖²: Eq. (1) with a penalty that is not centred at 0.

    The Hessians are those of Eq. (1) with λ_i = strength_i, so that nothing else changes.
    """

    def __init__(
        self,
        problem: Problem,
        anchors: NDArray[np.float64],
        strengths: NDArray[np.float64],
        agents: NDArray[np.integer] | None = None,
    ) -> None:
        super().__init__(problem, agents, strengths)
        self._all_anchors = anchors
        self.anchors = anchors[self.agents]

    def only(self, which: NDArray[np.integer] | slice) -> AnchoredLocalObjectives:
        return AnchoredLocalObjectives(
            self.problem, self._all_anchors, self._all_penalties, self.agents[which]
        )

    def values(self, models: NDArray[Any]) -> NDArray[np.float64]:
        models = self.checked(models)
        losses = mean_losses(*self._samples, self.starts, self.places, self._blocks(models))
        # From differences, so that nothing cancels close to the anchor.
        away = models - self.anchors
        return losses + self.l2_penalties * np.einsum("ij,ij->i", away, away)

    def gradients(self, models: NDArray[Any]) -> NDArray[np.float64]:
        models = self.checked(models)
        blocks = mean_loss_gradients(*self._samples, self.starts, self.places, self._blocks(models))
        return blocks.reshape(models.shape) + 2 * self.l2_penalties[:, None] * (models - self.anchors)


def solve_anchored_models(
    problem: Problem,
    anchors: NDArray[np.float64],
    strengths: NDArray[np.float64],
    *,
    tolerance: float = 1e-6,
) -> NDArray[np.float64]:
    """argmin_θ (1/m_i) Σ ℓ(θ; x, y) + strength_i·‖θ − anchor_i‖² for every agent, one row each.

    The l2 of the problem plays no part. tolerance: the gradient's norm is at most this times its norm
    at θ = 0. An agent without samples keeps its anchor.
    """
    _check_strengths(problem, strengths)
    objectives = AnchoredLocalObjectives(problem, np.asarray(anchors, np.float64), strengths)
    models = objectives.zeros()
    objectives.checked(objectives.anchors)
    shortfalls = minimize_each(objectives, models, tolerance)
    unsolved = np.flatnonzero(~(shortfalls <= tolerance))
    if unsolved.size:
        names = ", ".join(repr(problem.population.agent_names[agent]) for agent in unsolved[:5])
        raise ObjectiveError(
            f"{unsolved.size} anchored model(s) not within tolerance={tolerance:g}, of agent(s) {names}; "
            "scale the features, or relax the tolerance"
        )
    return models


def _check_strengths(problem: Problem, strengths: NDArray[np.float64]) -> None:
    if strengths.shape != (problem.n_agents,):
        raise ObjectiveError(
            f"strengths must have one entry per agent ({problem.n_agents}), got shape {strengths.shape}"
        )
    wrong = ~((strengths > 0) & np.isfinite(strengths))
    if wrong.any():
        agent = int(np.argmax(wrong))
        name = problem.population.agent_names[agent]
        raise ObjectiveError(f"agent {name!r}: strength must be positive and finite, got {strengths[agent]}")
