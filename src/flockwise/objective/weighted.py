"""Losses of classes whose samples count with weights. The weight of a sample is part of its target.

numba compiles them as it compiles the others. They are not registered: no configuration names them, and no
private method takes them. For the quadratic loss rows and targets times the root of the weight do the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.objective.losses import Logistic, Softmax, sample_slopes, sample_value, sigmoid
from flockwise.privacy.mechanisms import Norm


class WeightedLogistic(NamedTuple):
    """w·log(1 + exp(−y·s)) for the target w·y, with y in {−1, +1} and weights from above 0 to `largest`."""

    largest: float
    outputs = 1
    metric = "accuracy"
    expects = "-1 or +1, times a weight"
    predict = Logistic.predict
    probabilities = Logistic.probabilities

    def value(self, score: float, target: float) -> float:
        weight = abs(target)
        margin = target / weight * score
        return weight * (math.log1p(math.exp(-abs(margin))) - min(margin, 0.0))

    def slope(self, score: float, target: float) -> float:
        return -target * sigmoid(-target / abs(target) * score)

    @property
    def curvature(self) -> float:
        return 0.25 * self.largest

    def slope_bound(self, norm: Norm) -> float:
        return self.largest

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        return (targets != 0) & (np.abs(targets) <= self.largest)

    def targets(self, targets: NDArray[Any], weights: NDArray[Any]) -> Floats:
        """Classes −1 and +1 with their weights."""
        return targets * weights


class WeightedSoftmax(NamedTuple):
    """w times the cross-entropy for the target k + w/(2·largest), with k the class."""

    classes: int
    largest: float
    metric = "accuracy"
    expects = "a class, plus a weight over twice the largest"
    predict = Softmax.predict
    probabilities = Softmax.probabilities

    def value_of_scores(self, scores: NDArray[Any], target: float) -> float:
        label = math.floor(target)
        return 2.0 * self.largest * (target - label) * sample_value(Softmax(self.classes), scores, label)

    def slopes(self, scores: NDArray[Any], target: float, out: NDArray[Any]) -> None:
        label = math.floor(target)
        sample_slopes(Softmax(self.classes), scores, label, out)
        for k in range(scores.shape[0]):
            out[k] *= 2.0 * self.largest * (target - label)

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def curvature(self) -> float:
        return 0.5 * self.largest

    def slope_bound(self, norm: Norm) -> float:
        return self.largest * Softmax(self.classes).slope_bound(norm)

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        shares = targets - np.floor(targets)
        return (targets >= 0) & (targets < self.classes) & (shares > 0) & (shares <= 0.5)

    def targets(self, targets: NDArray[Any], weights: NDArray[Any]) -> Floats:
        """Classes 0, 1, … with their weights."""
        return targets + weights / (2.0 * self.largest)
