"""The rows of a fit as the library wants them: packed agent after agent, scaled, with weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data import Population
from flockwise.data.labels import packing_order
from flockwise.graph import SimilarityGraph
from flockwise.objective import Objective, Problem
from flockwise.objective.losses import Loss
from flockwise.objective.weighted import WeightedLogistic, WeightedSoftmax
from flockwise.results.metrics import log_losses


@dataclass(frozen=True, eq=False)
class FitRows:
    """Agent i's rows are offsets[i]:offsets[i + 1]; features have no intercept yet.

    loss: without weights. public: the bounds of the objective that a private fit needs.
    """

    features: Floats
    targets: Floats
    weights: Floats
    offsets: NDArray[np.int64]
    agents: tuple[str, ...]
    feature_names: tuple[str, ...]
    loss: Loss

    @classmethod
    def packed(
        cls,
        features: Floats,
        targets: Floats,
        weights: Floats,
        codes: NDArray[np.int64],
        agents: tuple[str, ...],
        feature_names: tuple[str, ...],
        loss: Loss,
    ) -> FitRows:
        """From rows in any order, `codes` giving the agent of each."""
        order, offsets = packing_order(codes, len(agents))
        features, targets, weights = (
            np.ascontiguousarray(array[order]) for array in (features, targets, weights)
        )
        return cls(features, targets, weights, offsets, agents, feature_names, loss)

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The agent of each row."""
        return np.repeat(np.arange(len(self.agents)), self.counts)

    def only(self, chosen: NDArray[np.bool_]) -> FitRows:
        """The same agents with some of their rows."""
        before = np.concatenate(([0], np.cumsum(chosen, dtype=np.int64)))
        return replace(
            self,
            features=self.features[chosen],
            targets=self.targets[chosen],
            weights=self.weights[chosen],
            offsets=before[self.offsets],
        )

    def problem(self, graph: SimilarityGraph | None = None, **settings: Any) -> Problem:
        """The problem for the solvers. settings: of the objective."""
        loss, weigh = weighted(self.loss, self.weights)
        root = np.sqrt(self.weights) if loss is self.loss and weigh else None
        targets = self.targets
        if root is not None:
            targets = root * targets
        elif weigh:
            targets = loss.targets(targets, self.weights)
        population = Population.packed(
            self.features,
            targets,
            self.offsets,
            agent_names=self.agents,
            feature_names=self.feature_names,
        ).with_intercept()
        if root is not None:
            population = replace(population, features=root[:, None] * population.features)
        return Problem(population, graph, Objective(loss, **settings))

    def scores(self, models: Floats) -> Floats:
        """Of each row under its agent's model, shape (rows, outputs)."""
        return scores_of(self.features, models, self.owners)

    def losses(self, models: Floats) -> Floats:
        """Squared errors, or −log probabilities of what happened, one per row."""
        scores = self.scores(models)
        if self.loss.metric == "rmse":
            return (scores[:, 0] - self.targets) ** 2
        return log_losses(self.loss, scores, self.targets)

    def errors(self, models: Floats) -> Floats:
        """Squared errors, or 1 for a wrong class and 0 for the right one."""
        if self.loss.metric == "rmse":
            return self.losses(models)
        return (self.loss.predict(self.scores(models)) != self.targets).astype(np.float64)


def scores_of(features: Floats, models: Floats, owners: NDArray[np.int64]) -> Floats:
    """Of each row under its owner's model, whose blocks, one per score, end with the intercept."""
    blocks = models.reshape(len(models), -1, features.shape[1] + 1)[owners]
    return np.einsum("rf,rof->ro", features, blocks[..., :-1]) + blocks[..., -1]


def weighted(loss: Any, weights: Floats) -> tuple[Any, bool]:
    """The loss that counts with these weights, and whether they say anything.

    The quadratic loss stays as it is: there the rows themselves are multiplied.
    """
    if (weights == 1).all():
        return loss, False
    if hasattr(loss, "constant_curvature"):
        return loss, True
    largest = float(weights.max())
    return (WeightedLogistic(largest) if loss.outputs == 1 else WeightedSoftmax(loss.outputs, largest)), True
