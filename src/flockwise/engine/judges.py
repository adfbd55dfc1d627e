"""What records evaluate, for all agents at once or for a part of them, where these are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.engine.base import PartJudge
from flockwise.method.base import Evaluator
from flockwise.method.rules import Descent, LocalAnchors, LocalData
from flockwise.objective import Loss
from flockwise.objective.passes import disagreements, mean_losses
from flockwise.results.metrics import agent_metrics


@dataclass(frozen=True, eq=False)
class Score:
    """Accuracy or RMSE on samples of the agents that none has learned from."""

    loss: Loss
    test: Population

    def __call__(self, models: NDArray[Any]) -> NDArray[np.float64]:
        return agent_metrics(self.loss, self.test, models)

    def part(self, agents: NDArray[np.int64]) -> PartJudge:
        return Score(self.loss, self.test.select(agents)).of_part

    def of_part(self, rule: Descent, models: NDArray[Any]) -> NDArray[np.float64]:
        return self(models[: self.test.n_agents])


@dataclass(frozen=True, eq=False)
class DescentObjective:
    """Eq. (2), or supplement C, of a descent: by its own evaluator, or of a part, from the part's rule."""

    evaluator: Evaluator

    def __call__(self, models: NDArray[Any]) -> NDArray[np.float64]:
        return self.evaluator.agent_values(models)

    def part(self, agents: NDArray[np.int64]) -> PartJudge:
        return descent_values


def descent_values(rule: Descent, models: NDArray[Any]) -> NDArray[np.float64]:
    """¼ Σ_j W_ij‖Θ_i − Θ_j‖² + μ D_ii c_i ℒ_i(Θ_i) of every agent that has a row of edges."""
    models, edges = np.ascontiguousarray(models, np.float64), rule.edges
    n_own = len(edges.counts)
    apart = disagreements(edges.offsets_for(len(models)), edges.neighbors, edges.weights, models)[:n_own]
    return 0.25 * apart + edges.degrees * rule.pulls * local_values(rule, models[:n_own])


def local_values(rule: Descent, models: NDArray[np.float64]) -> NDArray[np.float64]:
    """ℒ_i(Θ_i)."""
    local = rule.local
    if isinstance(local, LocalAnchors):
        return 0.5 * ((models - local.anchors) ** 2).sum(axis=1)
    assert isinstance(local, LocalData)
    blocks = models.reshape(len(models), local.loss.outputs, -1)
    losses = mean_losses(local.loss, local.features, local.targets, local.offsets[:-1], local.offsets, blocks)
    return losses + local.l2_penalties * np.einsum("ij,ij->i", models, models)
