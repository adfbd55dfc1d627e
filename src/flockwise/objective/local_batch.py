"""Eq. (1) for many agents at once: values, gradients and Hessians, entry k at the k-th agent's own model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data.population import Population
from flockwise.errors import ObjectiveError
from flockwise.objective.passes import (
    all_curvatures,
    mean_gradient_sizes,
    mean_hessian_diagonals,
    mean_hessian_products,
    mean_loss_gradients,
    mean_losses,
)
from flockwise.objective.problem import Problem


class LocalObjectives:
    """Eq. (1) for all agents of a problem, or for the `agents` listed; none of it copies the data.

    l2_penalties, population: those of the problem, unless others of all agents are given.
    anchors: of all agents; λ_i then weighs ‖θ − anchor_i‖² in place of ‖θ‖².
    """

    def __init__(
        self,
        problem: Problem,
        agents: NDArray[np.integer] | None = None,
        *,
        l2_penalties: Floats | None = None,
        population: Population | None = None,
        anchors: Floats | None = None,
    ) -> None:
        self.problem = problem
        self.population = problem.population if population is None else population
        self.agents = np.arange(problem.n_agents) if agents is None else agents
        self._all_penalties = problem.l2_penalties if l2_penalties is None else l2_penalties
        self._all_anchors = anchors
        self.l2_penalties = self._all_penalties[self.agents]
        # Where these agents' samples begin in the data, and in arrays of their samples alone.
        self.starts = self.population.offsets[self.agents]
        counts = self.population.sample_counts[self.agents]
        self.places = np.concatenate(([0], np.cumsum(counts)))

    def only(self, which: NDArray[np.integer] | slice) -> LocalObjectives:
        """The same for some of these agents, by their positions here."""
        return LocalObjectives(
            self.problem,
            self.agents[which],
            l2_penalties=self._all_penalties,
            population=self.population,
            anchors=self._all_anchors,
        )

    def zeros(self) -> Floats:
        """A model of zeros for each agent."""
        return np.zeros((len(self.agents), self.problem.dimension))

    def values(self, models: NDArray[Any]) -> Floats:
        """ℒ_k(Θ_k), shape (agents,)."""
        models = self.checked(models)
        away = self._away(models)
        penalties = self.l2_penalties * np.einsum("ij,ij->i", away, away)
        return mean_losses(*self._samples, self.starts, self.places, self._blocks(models)) + penalties

    def gradients(self, models: NDArray[Any]) -> Floats:
        """∇ℒ_k(Θ_k), shape (agents, dimension)."""
        models = self.checked(models)
        blocks = mean_loss_gradients(*self._samples, self.starts, self.places, self._blocks(models))
        gradients = blocks.reshape(models.shape)
        gradients += 2 * self.l2_penalties[:, None] * self._away(models)
        return gradients

    def gradient_rounding(self) -> Floats:
        """What rounding may leave of ∇ℒ_k(0) when its terms cancel: no smaller gradient can be asked for."""
        sizes = mean_gradient_sizes(*self._samples, self.starts, self.places, self.problem.loss.outputs)
        sizes += 2 * self.l2_penalties * np.linalg.norm(self._away(self.zeros()), axis=1)
        terms = np.diff(self.places) + self.problem.dimension
        return np.finfo(np.float64).eps * terms * sizes

    def hessians(self, models: NDArray[Any]) -> LocalHessians:
        """∇²ℒ_k(Θ_k), ready to be multiplied with directions."""
        blocks = self._blocks(self.checked(models))
        return LocalHessians(self, all_curvatures(*self._samples, self.starts, self.places, blocks))

    def checked(self, models: NDArray[Any]) -> Floats:
        """The models as contiguous float64, refused if there is not one of the right size per agent."""
        expected = (len(self.agents), self.problem.dimension)
        if np.shape(models) != expected:
            shape = np.shape(models)
            raise ObjectiveError(f"models must have shape (agents, dimension) = {expected}, got {shape}")
        return np.ascontiguousarray(models, dtype=np.float64)

    def _away(self, models: Floats) -> Floats:
        """From what the penalty pulls to; differences first, so nothing cancels close to an anchor."""
        return models if self._all_anchors is None else models - self._all_anchors[self.agents]

    @property
    def _samples(self) -> tuple[Any, Any, Any]:
        return self.problem.loss, self.population.features, self.population.targets

    def _blocks(self, models: Floats) -> Floats:
        return models.reshape(len(models), self.problem.loss.outputs, -1)


class LocalHessians:
    """The Hessians of the ℒ_k at given models, never formed: one small matrix per sample is kept."""

    def __init__(self, objectives: LocalObjectives, curvatures: Floats) -> None:
        self.features = objectives.population.features
        self.starts = objectives.starts
        self.places = objectives.places
        self.curvatures = curvatures
        self.penalties = objectives.l2_penalties

    def products(self, directions: Floats) -> Floats:
        """∇²ℒ_k · direction_k, shape (agents, dimension)."""
        blocks = self.blocks(directions)
        products = mean_hessian_products(self.features, self.starts, self.places, self.curvatures, blocks)
        return products.reshape(directions.shape) + 2 * self.penalties[:, None] * directions

    def diagonals(self) -> Floats:
        """The diagonals of ∇²ℒ_k, shape (agents, dimension)."""
        blocks = mean_hessian_diagonals(self.features, self.starts, self.places, self.curvatures)
        return blocks.reshape(len(blocks), -1) + 2 * self.penalties[:, None]

    def blocks(self, vectors: Floats) -> Floats:
        return np.ascontiguousarray(vectors).reshape(len(vectors), self.curvatures.shape[1], -1)
