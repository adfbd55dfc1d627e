"""Eq. (2) and Eq. (3): what all agents minimise together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.objective.local_batch import LocalHessians, LocalObjectives
from flockwise.objective.passes import disagreements, neighbor_sums
from flockwise.objective.problem import Problem


class CollaborativeObjective:
    """Eq. (2): Q(Θ) = ½ Σ_{i<j} W_ij ‖Θ_i − Θ_j‖² + μ Σ_i D_ii c_i ℒ_i(Θ_i).

    An agent without neighbors has D_ii = 0: its model does not enter Q. Results do not depend on
    the number of threads.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.local_objectives = LocalObjectives(problem, population=problem.exchanged)
        # μ D_ii c_i
        self._data_weights = problem.neighbors.degrees * problem.pulls

    def value(self, models: NDArray[Any]) -> float:
        """Eq. (2)."""
        return float(self.agent_values(models).sum())

    def agent_values(self, models: NDArray[Any]) -> NDArray[np.float64]:
        """Each agent's part of Eq. (2), with half of each of its edges; the parts sum to Q."""
        models = self.local_objectives.checked(models)
        graph = self.problem.neighbors
        # An edge is seen from both of its ends, hence ¼ and not ½.
        smoothness = 0.25 * disagreements(graph.offsets, graph.neighbors, graph.weights, models)
        return smoothness + self._data_weights * self.local_objectives.values(models)

    def gradient(self, models: NDArray[Any]) -> NDArray[np.float64]:
        """Eq. (3) for all agents, shape (agents, dimension)."""
        models = self.local_objectives.checked(models)
        local = self.local_objectives.gradients(models)
        return self._laplacian_product(models) + self._data_weights[:, None] * local

    def hessian(self, models: NDArray[Any]) -> CollaborativeHessian:
        """∇²Q(models), for many products at the same models."""
        return CollaborativeHessian(self, self.local_objectives.hessians(models))

    def _laplacian_product(self, models: NDArray[np.float64]) -> NDArray[np.float64]:
        """(D − W) Θ."""
        graph = self.problem.neighbors
        sums = neighbor_sums(graph.offsets, graph.neighbors, graph.weights, models)
        return graph.degrees[:, None] * models - sums


class CollaborativeHessian:
    """∇²Q = (D − W) ⊗ I + blocks μ D_ii c_i ∇²ℒ_i, never formed."""

    def __init__(self, objective: CollaborativeObjective, local_hessians: LocalHessians) -> None:
        self._objective = objective
        self._local = local_hessians

    def product(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        objective = self._objective
        local = objective._data_weights[:, None] * self._local.products(direction)
        return objective._laplacian_product(direction) + local

    def diagonal(self) -> NDArray[np.float64]:
        objective = self._objective
        degrees = objective.problem.neighbors.degrees[:, None]
        return degrees + objective._data_weights[:, None] * self._local.diagonals()
