"""Eq. (1): what one agent would minimize on its own, in plain NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data.samples import Samples
from flockwise.errors import ObjectiveError
from flockwise.objective.bounds import bounded_targets
from flockwise.objective.losses import Loss, sample_slopes, sample_value
from flockwise.objective.objective import Objective
from flockwise.objective.problem import Problem
from flockwise.privacy.grid import clip_rows


class LocalObjective:
    """Eq. (1): ℒ_i(θ) = (1/m) Σ ℓ(θ; x, y) + λ‖θ‖²; the data term is 0 without samples."""

    def __init__(self, loss: Loss, features: NDArray[Any], targets: NDArray[Any], l2_penalty: float) -> None:
        self.loss = loss
        self.features = np.asarray(features, dtype=np.float64)
        self.targets = np.asarray(targets, dtype=np.float64)
        self.l2_penalty = float(l2_penalty)
        if self.features.ndim != 2 or self.targets.shape != (len(self.features),):
            raise ObjectiveError(
                "features must have shape (samples, features) and targets (samples,), "
                f"got {self.features.shape} and {self.targets.shape}"
            )

    @classmethod
    def of_agent(cls, problem: Problem, agent: int) -> LocalObjective:
        """The local objective of the agent at this position, on the samples as agents exchange them."""
        features, targets = problem.exchanged.samples(agent)
        return cls(problem.loss, features, targets, problem.l2_penalties[agent])

    @property
    def dimension(self) -> int:
        return self.loss.outputs * self.features.shape[1]

    @property
    def samples(self) -> int:
        return len(self.targets)

    def value(self, model: NDArray[Any]) -> float:
        """ℒ_i(θ)."""
        scores = self._scores(model)
        values = [sample_value(self.loss, s, y) for s, y in zip(scores, self.targets, strict=True)]
        return sum(values) / max(len(values), 1) + self.l2_penalty * float(model @ model)

    def gradient(self, model: NDArray[Any]) -> Floats:
        """∇ℒ_i(θ)."""
        slopes = self._slopes(model)
        data_term = slopes.T @ self.features / max(len(slopes), 1)
        return data_term.ravel() + self.penalty_gradient(model)

    def penalty_gradient(self, model: NDArray[Any]) -> Floats:
        """The part of ∇ℒ_i(θ) that no data is in: 2λθ."""
        return 2 * self.l2_penalty * model

    def sample_gradients(self, model: NDArray[Any]) -> Floats:
        """∇ℓ(θ; x_k, y_k), one row per sample."""
        slopes = self._slopes(model)
        return (slopes[:, :, None] * self.features[:, None, :]).reshape(len(slopes), -1)

    @property
    def smoothness(self) -> float:
        """L_i^loc = curvature·λ_max(XᵀX/m) + 2λ."""
        samples = len(self.features)
        largest = np.linalg.norm(self.features, ord=2) ** 2 / samples if samples else 0.0
        return float(self.loss.curvature * largest + 2 * self.l2_penalty)

    def _slopes(self, model: NDArray[Any]) -> Floats:
        scores = self._scores(model)
        slopes = np.empty_like(scores)
        for score, target, out in zip(scores, self.targets, slopes, strict=True):
            sample_slopes(self.loss, score, target, out)
        return slopes

    def _scores(self, model: NDArray[Any]) -> Floats:
        return self.features @ np.asarray(model, dtype=np.float64).reshape(self.loss.outputs, -1).T


class AnchoredObjective:
    """Supplement C: ℒ_i(θ) = ½‖θ − anchor‖², which stands for the data in model propagation."""

    smoothness = 1.0

    def __init__(self, anchor: NDArray[Any]) -> None:
        self.anchor = np.asarray(anchor, dtype=np.float64)

    @property
    def dimension(self) -> int:
        return self.anchor.size

    def value(self, model: NDArray[Any]) -> float:
        """ℒ_i(θ)."""
        difference = model - self.anchor
        return 0.5 * float(difference @ difference)

    def gradient(self, model: NDArray[Any]) -> Floats:
        """∇ℒ_i(θ)."""
        return model - self.anchor


@dataclass(frozen=True)
class LocalUpdate:
    """An agent's update: its local objective, its step size α and its pull μc, Eq. (4)."""

    objective: Any
    step_size: float
    pull: float

    @classmethod
    def of(cls, settings: Objective, samples: Samples) -> LocalUpdate:
        """For an agent that knows its own samples and the public settings, and no other agent.

        Samples longer than the feature bound are scaled down to it, targets are moved into their range and
        scaled with their samples, and with a bound the step size looks at none of them.
        """
        if settings.max_samples is None:
            raise ObjectiveError("max_samples: missing; agents on their own know no other cap on m_i")
        features, bound = np.asarray(samples.features, np.float64), settings.feature_bound
        targets = settings.in_range(np.asarray(samples.targets, np.float64))
        targets = bounded_targets(features, targets, settings)
        if bound is not None and len(features):
            features = clip_rows(features, bound, "l2")
        count = np.array([len(samples.targets)])
        penalty = float(settings.penalties(count)[0])
        local = LocalObjective(settings.loss, features, targets, penalty)
        pull = settings.tradeoff * float(settings.confidences(count, settings.max_samples)[0])
        public = settings.public_curvature
        smoothness = local.smoothness if public is None else public + 2 * penalty
        return cls(local, 1 / (1 + pull * smoothness), pull)
