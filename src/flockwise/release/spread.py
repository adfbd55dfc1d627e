"""An agent's part of a sum that measures how far agents differ from a common model.

With u_k = basisᵀx_k·(y_k − prediction)/s for k = 1 … m, the mean product of two different samples,
Σ_{j≠k} u_j u_kᵀ/(m(m − 1)), is the agent's spread on average; the noise of single samples does not add to it.
Σ_{j≠k} u_j u_kᵀ = SSᵀ − Σ u_k u_kᵀ with S = Σ u_k.

Sensitivity. Every u is clipped to length C and S to length m·c. Replacing a sample moves S by at most 2C and
so SSᵀ by at most 2·mc·2C; Σuuᵀ moves by at most √2·C², its trace by at most C². An agent's weight is one
over the whole, so one replaced sample moves every agent's part by at most 1.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.grid import clip_rows
from flockwise.privacy.sums import SumSize
from flockwise.protocol.prior import Around, Spread

# A residual of variance 1 in k directions has length about √k; so much longer ones are clipped.
TAIL: Final = 1.2
# The largest spread that is expected, in units of s².
LARGEST_SPREAD: Final = 0.4
# A grid step: a sensitivity of 1 is 2³⁰ of them.
STEP: Final = 2.0**-30
# Coordinates of u are rounded to steps of this size.
ROW_STEP: Final = 2.0**-16


def sample_clip(directions: int) -> float:
    """C: the length at which one sample's u is clipped."""
    return math.sqrt(directions) + TAIL


def mean_clip(directions: int, counts: NDArray[Any]) -> NDArray[np.float64]:
    """c: the length at which the mean of an agent's u is clipped."""
    return (1 + 1 / math.sqrt(directions)) * np.sqrt(directions / np.maximum(counts, 1) + LARGEST_SPREAD)


def pair_weights(kind: Spread, directions: int, counts: NDArray[Any]) -> NDArray[np.float64]:
    """One over how far a sample moves an agent's mean product; 0 for agents with fewer than two samples."""
    pairs = counts * (counts - 1.0)
    clip = sample_clip(directions)
    own = clip**2 * (math.sqrt(2) if kind == "matrix" else 1.0)
    moved = 4 * clip * mean_clip(directions, counts) * counts + own
    return np.where(pairs > 0, pairs / moved, 0.0)


def spread_size(kind: Spread, n_features: int, least_weight: float) -> SumSize:
    """A number, or the upper triangle of a matrix.

    least_weight: of the agents. Rounding to steps, and rounding errors before it, move each coordinate of
    neighboring data sets apart by at most two steps, whatever the agent's weight.
    """
    size = n_features if kind == "matrix" else 1
    scales = np.where(np.eye(size, dtype=bool), 1.0, math.sqrt(0.5))[np.triu_indices(size)]
    rounding = 2 * math.sqrt(float((1 / scales**2).sum())) / least_weight
    return SumSize(1 / STEP + rounding, scales, STEP)


def spread_rows(
    around: Around, features: NDArray[np.float64], targets: NDArray[np.float64], two_classes: bool
) -> NDArray[np.float64]:
    """u of every sample with ‖x‖ ≤ 1 and |y| ≤ 1, clipped, and rounded toward zero to steps of 2⁻¹⁶.

    Sums of them are exact. A row does not depend on which others stand beside it.
    """
    scores = np.einsum("kj,j->k", features, around.mean)
    if two_classes:
        residuals = (targets - np.tanh(scores / 2)) / 2
    else:
        residuals = (targets - scores) / math.sqrt(around.residual)
    rows = np.einsum("kj,jd->kd", features, around.basis) * residuals[:, None]
    if not len(rows):
        return rows
    return np.trunc(clip_rows(rows, sample_clip(rows.shape[1]), "l2") / ROW_STEP) * ROW_STEP


def spread_part(kind: Spread, rows: NDArray[np.float64], weight: float) -> NDArray[np.int64]:
    """What one agent adds, in grid steps, from the rows of its samples; weight: at most 1."""
    count, directions = rows.shape
    size = directions if kind == "matrix" else 1
    if count < 2:
        return np.zeros(size * (size + 1) // 2, np.int64)
    counts = np.array([count])
    limit = float(mean_clip(directions, counts)[0]) * count
    total = clip_rows(rows.sum(axis=0)[None], limit, "l2")[0]
    scale = weight * float(pair_weights(kind, directions, counts)[0]) / (count * (count - 1.0))
    if kind == "matrix":
        products = (np.outer(total, total) - rows.T @ rows)[np.triu_indices(size)]
    else:
        products = np.array([total @ total - (rows**2).sum()])
    return np.rint(scale * products / STEP).astype(np.int64)
