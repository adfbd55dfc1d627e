"""Newton's directions for many agents: conjugate gradients per agent, agents in parallel.

Conjugate gradients multiply with the data and never form a Hessian, so one method serves few or
many features and fewer samples than features alike; started at 0 they stay in the span of the data
where λ = 0, which leads to the minimum of least norm for the quadratic loss.

Nothing here depends on the loss, and vectors are updated by small loops and not by array
expressions: both spare numba seconds of compilation.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from flockwise.arrays import Floats
from flockwise.code_cache import compiled
from flockwise.objective.local_batch import LocalHessians
from flockwise.objective.passes import (
    add_scaled,
    dot,
    mean_hessian_diagonal,
    mean_hessian_product,
    rows_of,
)

# Of the largest mean square of a feature: without penalty, keeps steps finite where the loss is
# flat, as Huber's is far out.
_RIDGE = 1e-9


def newton_directions_of(hessians: LocalHessians, gradients: Floats, goals: Floats) -> Floats:
    """−(∇²ℒ_k)⁻¹ gradient_k, until the k-th residual's norm is at most goals[k]."""
    return newton_directions(
        hessians.features,
        hessians.starts,
        hessians.places,
        hessians.curvatures,
        hessians.penalties,
        hessians.blocks(gradients),
        goals,
    ).reshape(gradients.shape)


@compiled(parallel=True)
def newton_directions(features, starts, places, curvatures, penalties, gradients, goals):
    """Solves (∇²ℒ_k) direction_k = −gradient_k until the residual's norm is at most goals[k]."""
    out = np.empty(gradients.shape)
    for k in prange(gradients.shape[0]):
        own = curvatures[places[k] : places[k + 1]]
        rows = features[rows_of(k, starts, places)]
        _newton_direction(rows, own, penalties[k], gradients[k], goals[k], out[k])
    return out


@njit
def _newton_direction(features, curvatures, penalty, gradient, goal, direction):
    ridge, scales = _preconditioner(features, curvatures, penalty, gradient.shape)
    direction[:] = 0.0
    residual = np.zeros(gradient.shape)
    _add(-1.0, gradient, residual)
    search = np.zeros(gradient.shape)
    image = np.empty(gradient.shape)
    progress = _search_along(residual, scales, 1.0, search)
    for _ in range(10 * gradient.size):
        if _norm(residual) <= goal:
            break
        mean_hessian_product(features, curvatures, search, image)
        _add(ridge, search, image)
        curvature = _inner(search, image)
        if curvature <= 0.0:
            break
        _add(progress / curvature, search, direction)
        _add(-progress / curvature, image, residual)
        progress = _search_along(residual, scales, progress, search)
    if _norm(direction) == 0.0:
        _add(-1.0, gradient, direction)


@njit
def _preconditioner(features, curvatures, penalty, shape):
    """The number to add to the Hessian's diagonal, and the diagonal with it."""
    scales = np.ones(shape)
    if penalty == 0.0:
        # Other scales would leave the span of the data, and with it the minimum of least norm.
        return _RIDGE * _largest_mean_square(features), scales
    mean_hessian_diagonal(features, curvatures, scales)
    for k in range(shape[0]):
        for j in range(shape[1]):
            scales[k, j] += 2.0 * penalty
    return 2.0 * penalty, scales


@njit
def _largest_mean_square(features):
    largest = 0.0
    for j in range(features.shape[1]):
        largest = max(largest, dot(features[:, j], features[:, j]) / features.shape[0])
    return largest


@njit
def _search_along(residual, scales, previous, search):
    """The next conjugate direction, in place, and the progress residualᵀ(residual/scales) behind it."""
    progress = 0.0
    for k in range(residual.shape[0]):
        for j in range(residual.shape[1]):
            progress += residual[k, j] ** 2 / scales[k, j]
    for k in range(residual.shape[0]):
        for j in range(residual.shape[1]):
            search[k, j] = residual[k, j] / scales[k, j] + progress / previous * search[k, j]
    return progress


@njit
def _add(factor, source, target):
    for k in range(source.shape[0]):
        add_scaled(factor, source[k], target[k])


@njit
def _inner(left, right):
    total = 0.0
    for k in range(left.shape[0]):
        total += dot(left[k], right[k])
    return total


@njit
def _norm(vector):
    return math.sqrt(_inner(vector, vector))
