"""What a release counts for, and how much of the mean of all releases is more than noise.

Nothing here receives a population: released vectors and their public variances are enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Below this share of the best release's precision a release does not count for less.
LEAST_CONFIDENCE = 1e-6


class ShrunkenMean(NamedTuple):
    """The precision-weighted mean of all releases, and the share of it that stands out of its noise."""

    mean: NDArray[np.float64]
    shares: NDArray[np.float64]
    kept: float

    def replace_in(self, vectors: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
        """v_i − (1 − kept)·mean, for an agent that released nothing kept·mean."""
        has_released = np.isfinite(variances)[:, None]
        return np.where(has_released, vectors, self.mean) - (1 - self.kept) * self.mean

    def replace_in_noise(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same done to noise, whose mean is its own."""
        return noise - (1 - self.kept) * (self.shares @ noise)


def shrunken_mean(vectors: NDArray[np.float64], variances: NDArray[np.float64]) -> ShrunkenMean:
    """Σ(v_i/s_i²)/Σ(1/s_i²), kept by the positive part of James and Stein's factor 1 − p/(‖mean‖²·Σ1/s_i²).

    Agents who resemble nobody far away share little, and then the mean is mostly noise that no
    smoothing removes; where all agents have much in common it is kept.
    """
    precisions = 1 / variances
    shares = precisions / precisions.sum()
    mean = shares @ vectors
    return ShrunkenMean(mean, shares, kept_share(mean, float(precisions.sum())))


def kept_share(mean: NDArray[np.float64], precision: float) -> float:
    """The positive part of James and Stein's factor; `precision` is that of the mean, Σ1/s_i²."""
    square = float(mean @ mean)
    return max(0.0, 1 - len(mean) / precision / square) if square > 0 else 0.0


def precision_confidences(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """c_i = min_j s_j² / s_i²: an agent counts as much as its release is precise, at most 1."""
    return np.maximum(variances.min() / variances, LEAST_CONFIDENCE)
