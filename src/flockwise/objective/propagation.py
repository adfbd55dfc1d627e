"""Supplement C: the objective of model propagation, Eq. (2) with ½‖Θ_i − anchor_i‖² as local objective."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from flockwise.errors import ObjectiveError
from flockwise.graph.similarity import SimilarityGraph
from flockwise.objective.passes import disagreements


class PropagationObjective:
    """Q_MP(Θ) = ½ (Σ_{i<j} W_ij ‖Θ_i − Θ_j‖² + μ Σ_i D_ii c_i ‖Θ_i − anchor_i‖²).

    It sees no data: anchors are models that were trained before.
    """

    def __init__(
        self, graph: SimilarityGraph, anchors: ArrayLike, confidences: ArrayLike, tradeoff: float
    ) -> None:
        self.graph = graph
        self.anchors = np.ascontiguousarray(anchors, dtype=np.float64)
        self.confidences = np.asarray(confidences, dtype=np.float64)
        self.tradeoff = tradeoff
        self._check()
        # μ D_ii c_i
        self._data_weights = tradeoff * graph.degrees * self.confidences

    def value(self, models: NDArray[Any]) -> float:
        return float(self.agent_values(models).sum())

    def agent_values(self, models: NDArray[Any]) -> NDArray[np.float64]:
        """Each agent's part, with half of each of its edges."""
        models = self._checked(models)
        # An edge is seen from both of its ends, hence ¼ and not ½.
        graph = self.graph
        smoothness = 0.25 * disagreements(graph.offsets, graph.neighbors, graph.weights, models)
        distances = ((models - self.anchors) ** 2).sum(axis=1)
        return smoothness + 0.5 * self._data_weights * distances

    def gradient(self, models: NDArray[Any]) -> NDArray[np.float64]:
        models = self._checked(models)
        return self.graph.laplacian() @ models + self._data_weights[:, None] * (models - self.anchors)

    def optimum(self) -> NDArray[np.float64]:
        """The minimum, from one sparse factorisation; an agent without neighbors keeps its anchor."""
        linked = np.flatnonzero(self.graph.neighbor_counts)
        models = self.anchors.copy()
        if linked.size:
            system = self.graph.laplacian() + sparse.diags_array(self._data_weights)
            pulled = self._data_weights[linked, None] * self.anchors[linked]
            models[linked] = splu(sparse.csc_array(system[linked][:, linked])).solve(pulled)
        return models

    def _check(self) -> None:
        n_agents = self.graph.n_agents
        if self.anchors.ndim != 2 or len(self.anchors) != n_agents:
            raise ObjectiveError(
                f"anchors must hold one model for each of {n_agents} agents, got shape {self.anchors.shape}"
            )
        if not np.isfinite(self.anchors).all():
            agent = int(np.argmin(np.isfinite(self.anchors).all(axis=1)))
            raise ObjectiveError(f"agent {agent}: its anchor has an entry that is not finite")
        if self.confidences.shape != (n_agents,):
            shape = self.confidences.shape
            raise ObjectiveError(f"confidences must have one entry per agent ({n_agents}), got shape {shape}")
        wrong = ~((self.confidences > 0) & np.isfinite(self.confidences))
        if wrong.any():
            agent = int(np.argmax(wrong))
            raise ObjectiveError(f"agent {agent}: confidence must be positive, got {self.confidences[agent]}")
        if not (np.isfinite(self.tradeoff) and self.tradeoff > 0):
            raise ObjectiveError(f"tradeoff must be positive and finite, got tradeoff={self.tradeoff!r}")

    def _checked(self, models: NDArray[Any]) -> NDArray[np.float64]:
        if np.shape(models) != self.anchors.shape:
            raise ObjectiveError(f"models must have shape {self.anchors.shape}, got {np.shape(models)}")
        return np.ascontiguousarray(models, dtype=np.float64)
