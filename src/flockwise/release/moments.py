"""An agent's part of a sum of second moments: integers, from samples within their public bounds."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flockwise.objective import Objective
from flockwise.privacy.grid import clip_rows
from flockwise.privacy.sums import SumSize
from flockwise.protocol.prior import TARGET_SHARE

# Every coordinate of v is rounded toward zero to so many bits; their products are integers of twice as many.
BITS: Final = 16
INSIDE: Final = 1 - 2.0**-40
# A block of rows whose integer products are exact as floating-point numbers.
ROWS_AT_ONCE: Final = 2 ** (52 - 2 * BITS)


class TargetScale:
    """Targets within ±1: (y − center)/half, where a regression has an intercept to take the center."""

    def __init__(self, objective: Objective, has_intercept: bool) -> None:
        if objective.loss.metric == "accuracy":
            self.center, self.half = 0.0, 1.0
            return
        assert objective.target_range is not None
        low, high = objective.target_range
        self.center = (low + high) / 2 if has_intercept else 0.0
        self.half = max(high - self.center, self.center - low)

    def __call__(self, targets: NDArray[Any]) -> NDArray[np.float64]:
        return np.clip((targets.astype(np.float64) - self.center) / self.half, -1.0, 1.0)


def unit_features(features: NDArray[Any], bound: float) -> NDArray[np.float64]:
    """Features divided by their public bound, those beyond it scaled down to it: ‖x‖ ≤ 1."""
    if not len(features):
        return features.astype(np.float64)
    return clip_rows(features.astype(np.float64) / bound, 1.0, "l2")


def moment_size(n_features: int) -> SumSize:
    """The upper triangle of Σ vvᵀ for vectors of length at most 1.

    ‖vvᵀ − wwᵀ‖² = ‖v‖⁴ + ‖w‖⁴ − 2(vᵀw)² ≤ 2 in Frobenius norm, which counts each entry off the diagonal
    twice: there the noise is smaller by √2. Rounding toward zero shortens vectors, so the bound holds for
    the integers as well.
    """
    size = n_features + 1
    scales = np.where(np.eye(size, dtype=bool), 1.0, math.sqrt(0.5))[np.triu_indices(size)]
    step = 2.0 ** (-2 * BITS)
    return SumSize(math.sqrt(2) / step, scales, step)


def moment_sum(
    features: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Σ vvᵀ·weight in grid steps, of samples with ‖x‖ ≤ 1 and |y| ≤ 1: the upper triangle.

    Each v is rounded first, and then integers are multiplied: the sum over all agents is so the same, digit
    by digit, as the sum of what each of them adds. weights: at most 1, one per sample.
    """
    rows = _integer_rows(features, targets, weights)
    size = rows.shape[1]
    total = np.zeros((size, size), np.int64)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[first : first + ROWS_AT_ONCE]
        total += (part.T @ part).astype(np.int64)
    return total[np.triu_indices(size)]


def _integer_rows(
    features: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """v = (x, t·y)/√(‖x‖² + t²), times the root of the weight, in steps of 2⁻¹⁶.

    No v is longer than 1, however long x is, because |y| ≤ 1. It is made shorter by more than the rounding
    errors of its length.
    """
    if not len(features):
        return np.zeros((0, features.shape[1] + 1))
    lengths = np.sqrt(np.einsum("kj,kj->k", features, features) + TARGET_SHARE)
    rows = np.column_stack([features, math.sqrt(TARGET_SHARE) * targets]) / lengths[:, None]
    return np.trunc(rows * (INSIDE * np.sqrt(weights))[:, None] * 2.0**BITS)
