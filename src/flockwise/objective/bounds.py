"""Samples within a public bound on their length, each whatever the others are.

A row x that is too long is scaled down to s·x. Where the loss compares θᵀx with y, the target becomes s·y: a
relation θᵀx = y holds for (s·x, s·y) as it did, while (s·x, y) would teach coefficients that are too large by
1/s. No target grows, and each depends on its own row alone. A label stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.objective.losses import Huber, Quadratic
from flockwise.objective.objective import Objective
from flockwise.privacy.grid import clip_rows

ROWS_AT_ONCE = 1 << 14


def bounded_features(features: NDArray[Any], bound: float) -> NDArray[Any]:
    """Rows that are too long, scaled down; the same array if there are none."""
    long = _too_long(features, bound)
    if not long.size:
        return features
    bounded = features.copy()
    bounded[long] = clip_rows(features[long], bound, "l2")
    return bounded


def bounded_targets(features: NDArray[Any], targets: NDArray[Any], objective: Objective) -> NDArray[Any]:
    """Targets as they belong to rows within the bound; the same array if none changes."""
    bound = objective.feature_bound
    if bound is None or not isinstance(objective.loss, Quadratic | Huber):
        return targets
    long = _too_long(features, bound)
    if not long.size:
        return targets
    bounded = targets.copy()
    bounded[long] *= bound / _lengths(features[long])
    return bounded


def _too_long(features: NDArray[Any], bound: float) -> NDArray[np.intp]:
    # A row scaled to the bound in the data's own precision may exceed it by rounding.
    allowed = bound * (1 + 4 * features.shape[1] ** 0.5 * np.finfo(features.dtype).eps)
    # Some rows at a time: room for the lengths of all takes longer than they do.
    starts = range(0, len(features), ROWS_AT_ONCE)
    pieces = ((start, features[start : start + ROWS_AT_ONCE]) for start in starts)
    found = [start + np.flatnonzero(_lengths(rows) > allowed) for start, rows in pieces]
    return np.concatenate([np.zeros(0, np.intp), *found])


def _lengths(rows: NDArray[Any]) -> NDArray[Any]:
    return np.sqrt(np.einsum("kj,kj->k", rows, rows))
