"""Eq. (1) for many agents: a truncated Newton method per agent, agents in parallel.

The Newton system is solved by conjugate gradients on products with the data, so that one method
serves few or many features and fewer samples than features alike; started at 0 it stays in the
span of the data where λ = 0, which gives the minimum of least norm for the quadratic loss.

Vectors are updated by small loops of their own and not by array expressions: numba takes half a
minute to compile the latter here.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from murmura.objective.passes import (
    add_scaled,
    dot,
    mean_hessian_diagonal,
    mean_hessian_product,
    mean_loss,
    mean_loss_gradient,
    sample_curvatures,
)

MAX_ITERATIONS = 200
_MAX_HALVINGS = 40
_SUFFICIENT_DECREASE = 1e-4
# A decrease below this share of the value is lost in its rounding, and no reason to shorten a step.
_ROUNDING = 1e-15
# Of the largest curvature: keeps steps finite where the loss is flat, as Huber's is far out.
_RIDGE = 1e-9


@njit(parallel=True)
def minimize_each(loss, features, targets, offsets, penalties, agents, outputs, tolerance):
    """Models (agents, outputs, features), and for each the gradient's norm relative to that at 0."""
    models = np.zeros((agents.shape[0], outputs, features.shape[1]))
    shortfalls = np.zeros(agents.shape[0])
    for k in prange(agents.shape[0]):
        first, last = offsets[agents[k]], offsets[agents[k] + 1]
        if first < last:
            shortfalls[k] = _minimize(
                loss, features[first:last], targets[first:last], penalties[agents[k]], tolerance, models[k]
            )
    return models, shortfalls


@njit
def _minimize(loss, features, targets, penalty, tolerance, model):
    """Moves `model` from 0 to the minimum; returns the norm of its gradient relative to the first."""
    outputs = model.shape[0]
    gradient = np.empty(model.shape)
    curvatures = np.empty((targets.shape[0], outputs, outputs))
    _gradient(loss, features, targets, penalty, model, gradient)
    first = _norm(gradient)
    norm = first
    for _ in range(MAX_ITERATIONS):
        if norm <= tolerance * first:
            break
        sample_curvatures(loss, features, targets, model, curvatures)
        # Solve the Newton system only as well as the distance from the minimum deserves.
        share = max(min(0.1, math.sqrt(norm / first)), 0.3 * tolerance * first / norm)
        direction = _newton_direction(features, curvatures, penalty, gradient, share * norm)
        if not _step(loss, features, targets, penalty, gradient, direction, model):
            break
        _gradient(loss, features, targets, penalty, model, gradient)
        norm = _norm(gradient)
    return norm / first if first > 0.0 else 0.0


@njit
def _gradient(loss, features, targets, penalty, model, out):
    mean_loss_gradient(loss, features, targets, model, out)
    _add(2.0 * penalty, model, out)


@njit
def _value(loss, features, targets, penalty, model):
    return mean_loss(loss, features, targets, model) + penalty * _inner(model, model)


@njit
def _step(loss, features, targets, penalty, gradient, direction, model):
    """Goes along the direction, halving the step until the value decreases enough; False if it never does."""
    before = _value(loss, features, targets, penalty, model)
    slope = _inner(gradient, direction)
    length = 1.0
    _add(length, direction, model)
    for _ in range(_MAX_HALVINGS):
        allowed = before + _SUFFICIENT_DECREASE * length * slope + _ROUNDING * abs(before)
        if _value(loss, features, targets, penalty, model) <= allowed:
            return True
        length *= 0.5
        _add(-length, direction, model)
    _add(-length, direction, model)
    return False


@njit(cache=True)
def _newton_direction(features, curvatures, penalty, gradient, goal):
    """Conjugate gradients for H·direction = −gradient, until the residual's norm is at most `goal`."""
    scales = np.empty(gradient.shape)
    mean_hessian_diagonal(features, curvatures, scales)
    ridge = 2.0 * penalty + _RIDGE * (scales.max() + 2.0 * penalty)
    # Without a penalty, scaling would leave the span of the data, and with it the minimum of least norm.
    for k in range(scales.size):
        scales.flat[k] = scales.flat[k] + ridge if penalty > 0.0 else 1.0
    direction = np.zeros(gradient.shape)
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
    return direction


@njit(cache=True)
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


@njit(cache=True)
def _add(factor, source, target):
    for k in range(source.shape[0]):
        add_scaled(factor, source[k], target[k])


@njit(cache=True)
def _inner(left, right):
    total = 0.0
    for k in range(left.shape[0]):
        total += dot(left[k], right[k])
    return total


@njit(cache=True)
def _norm(vector):
    return math.sqrt(_inner(vector, vector))
