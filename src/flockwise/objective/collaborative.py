"""Eq. (2), Eq. (3) and supplement C: what all agents minimize together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from flockwise.arrays import Floats
from flockwise.errors import ObjectiveError
from flockwise.graph.similarity import SimilarityGraph
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.passes import disagreements, neighbor_sums
from flockwise.objective.problem import Problem


class CollaborativeObjective:
    """Eq. (2): Q(Θ) = ½ Σ_{i<j} W_ij ‖Θ_i − Θ_j‖² + μ Σ_i D_ii c_i ℒ_i(Θ_i).

    An agent without neighbors has D_ii = 0: its model does not enter Q. Results do not depend on
    the number of threads. anchors: one per agent, if λ_i is to weigh ‖Θ_i − anchor_i‖² in place of ‖Θ_i‖².
    """

    def __init__(self, problem: Problem, *, anchors: Floats | None = None) -> None:
        # A descent of this problem holds all that it takes (flockwise.engine.judges).
        self.is_of_descent = anchors is None
        self.problem = problem
        self._anchors = anchors
        # μ D_ii c_i
        self._data_weights = problem.neighbors.degrees * problem.pulls

    @cached_property
    def local_objectives(self) -> LocalObjectives:
        """Eq. (1) on what agents exchange; samples that are in files are read for it."""
        return LocalObjectives(self.problem, population=self.problem.exchanged, anchors=self._anchors)

    def value(self, models: NDArray[Any]) -> float:
        """Eq. (2)."""
        return float(self.agent_values(models).sum())

    def agent_values(self, models: NDArray[Any]) -> Floats:
        """Each agent's part of Eq. (2), with half of each of its edges; the parts sum to Q."""
        models = self.local_objectives.checked(models)
        data_terms = self._data_weights * self.local_objectives.values(models)
        return _halves_of_edges(self.problem.neighbors, models) + data_terms

    def gradient(self, models: NDArray[Any]) -> Floats:
        """Eq. (3) for all agents, shape (agents, dimension)."""
        models = self.local_objectives.checked(models)
        local = self.local_objectives.gradients(models)
        return self._laplacian_product(models) + self._data_weights[:, None] * local

    def hessian(self, models: NDArray[Any]) -> tuple[Callable[[Any], Any], Floats]:
        """∇²Q = (D − W) ⊗ I + blocks μ D_ii c_i ∇²ℒ_i at these models: its product, and its diagonal."""
        weights, local = self._data_weights[:, None], self.local_objectives.hessians(models)

        def product(direction: Floats) -> Floats:
            return self._laplacian_product(direction) + weights * local.products(direction)

        return product, self.problem.neighbors.degrees[:, None] + weights * local.diagonals()

    def _laplacian_product(self, models: Floats) -> Floats:
        """(D − W) Θ."""
        graph = self.problem.neighbors
        sums = neighbor_sums(graph.offsets, graph.neighbors, graph.weights, models)
        return graph.degrees[:, None] * models - sums


class PropagationObjective:
    """Supplement C: Q_MP(Θ) = ½ (Σ_{i<j} W_ij ‖Θ_i − Θ_j‖² + μ Σ_i D_ii c_i ‖Θ_i − anchor_i‖²).

    It sees no data: anchors are models that were trained before. pulls: μ c_i.
    """

    is_of_descent: ClassVar[bool] = True

    def __init__(self, graph: SimilarityGraph, anchors: ArrayLike, pulls: ArrayLike) -> None:
        self.graph = graph
        self.anchors = np.ascontiguousarray(anchors, dtype=np.float64)
        pulls = np.asarray(pulls, dtype=np.float64)
        if self.anchors.ndim != 2 or len(self.anchors) != graph.n_agents:
            raise ObjectiveError(
                f"anchors must hold one model for each of {graph.n_agents} agents, "
                f"got shape {self.anchors.shape}"
            )
        if pulls.shape != (graph.n_agents,):
            raise ObjectiveError(
                f"pulls must have one entry per agent ({graph.n_agents}), got shape {pulls.shape}"
            )
        for agent in np.flatnonzero(~np.isfinite(self.anchors).all(axis=1)):
            raise ObjectiveError(f"agent {agent}: its anchor has an entry that is not finite")
        for agent in np.flatnonzero(~((pulls > 0) & np.isfinite(pulls))):
            raise ObjectiveError(f"agent {agent}: its pull must be positive and finite, got {pulls[agent]}")
        # μ D_ii c_i
        self._data_weights = graph.degrees * pulls

    def value(self, models: NDArray[Any]) -> float:
        return float(self.agent_values(models).sum())

    def agent_values(self, models: NDArray[Any]) -> Floats:
        """Each agent's part, with half of each of its edges."""
        models = self._checked(models)
        distances = ((models - self.anchors) ** 2).sum(axis=1)
        return _halves_of_edges(self.graph, models) + 0.5 * self._data_weights * distances

    def gradient(self, models: NDArray[Any]) -> Floats:
        models = self._checked(models)
        return self.graph.laplacian() @ models + self._data_weights[:, None] * (models - self.anchors)

    def optimum(self) -> Floats:
        """The minimum, from one sparse factorization; an agent without neighbors keeps its anchor."""
        linked = np.flatnonzero(self.graph.neighbor_counts)
        models = self.anchors.copy()
        if linked.size:
            system = self.graph.laplacian() + sparse.diags_array(self._data_weights)
            pulled = self._data_weights[linked, None] * self.anchors[linked]
            models[linked] = splu(sparse.csc_array(system[linked][:, linked])).solve(pulled)
        return models

    def _checked(self, models: NDArray[Any]) -> Floats:
        if np.shape(models) != self.anchors.shape:
            raise ObjectiveError(f"models must have shape {self.anchors.shape}, got {np.shape(models)}")
        return np.ascontiguousarray(models, dtype=np.float64)


def _halves_of_edges(graph: SimilarityGraph, models: Floats) -> Floats:
    """¼ Σ_j W_ij ‖Θ_i − Θ_j‖² of each agent: an edge is seen from both of its ends, hence ¼ and not ½."""
    return 0.25 * disagreements(graph.offsets, graph.neighbors, graph.weights, models)
