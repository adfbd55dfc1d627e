"""The posterior of a model θ that is seen as Mθ plus noise, where nobody knows beforehand how large θ is.

With one wide prior the noise that is left in a small θ would be as large as in a large one. So a few sizes
are tried, one for each group of coefficients, and each counts as much as it explains what was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

# Variances that are as likely as each other beforehand, as shares of the largest.
SIZES: Final = tuple(4.0**-power for power in range(7))
# Rounds in which a model and the noise that it meets are found together.
STEPS: Final = 3


class _Posterior(NamedTuple):
    """Of one size; log_evidence: up to a constant, how likely it makes what was seen."""

    mean: Vector
    covariance: Matrix
    log_evidence: float


def likely_model(
    moments: Matrix,
    seen: Vector,
    groups: NDArray[np.intp],
    largest: float,
    noise_variance: Callable[[Vector], float],
) -> tuple[Vector, Matrix]:
    """Mean and covariance of θ after seen = moments·θ + noise.

    groups: 0, 1, … for each coefficient. largest: the variance of a coefficient in the widest prior.
    noise_variance: of every entry of the noise that a model meets.
    """
    each = [
        _posterior(moments, seen, largest * np.array(sizes)[groups], noise_variance)
        for sizes in product(SIZES, repeat=int(groups.max()) + 1)
    ]
    logs = np.array([one.log_evidence for one in each])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    means = np.array([one.mean for one in each])
    mean = weights @ means
    apart = means - mean
    within = sum(weight * one.covariance for weight, one in zip(weights, each, strict=True))
    return mean, within + (apart.T * weights) @ apart


def _posterior(
    moments: Matrix, seen: Vector, prior: Vector, noise_variance: Callable[[Vector], float]
) -> _Posterior:
    """For coefficients of mean 0 and these variances."""
    squared, mean, variance = moments @ moments, np.zeros(len(prior)), 0.0
    covariance, log_volume = np.diag(prior), 0.0
    for _ in range(STEPS):
        variance = noise_variance(mean)
        precisions, axes = np.linalg.eigh(squared / variance + np.diag(1 / prior))
        covariance = (axes / precisions) @ axes.T
        mean = covariance @ (moments @ seen) / variance
        log_volume = float(np.log(precisions).sum() + np.log(prior).sum()) + len(prior) * np.log(variance)
    missed = float(((seen - moments @ mean) ** 2).sum()) / variance + float((mean**2 / prior).sum())
    return _Posterior(mean, covariance, -(missed + log_volume) / 2)
