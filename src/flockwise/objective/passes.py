"""One pass over all agents' packed samples: means of losses, their gradients and Hessian products.

Agents are shared out among threads, and each result belongs to one agent, so every number is
the same for any number of threads; sums over agents are left to NumPy, which adds in a fixed order.
Everything is accumulated in float64, whatever the data's type.

The passes that compile a loss are not cached on disk: numba would keep using the old machine code
after someone edits the loss.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from flockwise.code_cache import compiled
from flockwise.objective.compiled import sample_slopes, sample_value

# Lets the compiler add in several lanes. Nothing here is clipped or compared, so no guard is lost.
FREE_ORDER = {"reassoc", "contract", "nsz"}

# Central differences of a slope: the errors of truncation and of rounding balance near here.
_DIFFERENCE_STEP = 1e-5


@compiled(fastmath=FREE_ORDER)
def dot(left, right):
    total = 0.0
    for j in range(left.shape[0]):
        total += np.float64(left[j]) * np.float64(right[j])
    return total


@compiled(fastmath=FREE_ORDER)
def add_scaled(factor, source, target):
    for j in range(source.shape[0]):
        target[j] += factor * source[j]


# One agent. `features` and `targets` are its own samples; `model` has shape (outputs, features).


@compiled()
def score_sample(row, model, scores):
    for k in range(model.shape[0]):
        scores[k] = dot(row, model[k])


@compiled()
def mean_loss(loss, features, targets, model):
    """The data term of Eq. (1); 0 without samples."""
    scores = np.empty(model.shape[0])
    total = 0.0
    for row in range(targets.shape[0]):
        score_sample(features[row], model, scores)
        total += sample_value(loss, scores, targets[row])
    return total / max(targets.shape[0], 1)


@compiled()
def mean_loss_gradient(loss, features, targets, model, out):
    scores = np.empty(model.shape[0])
    slopes = np.empty(model.shape[0])
    out[:] = 0.0
    share = 1.0 / max(targets.shape[0], 1)
    for row in range(targets.shape[0]):
        score_sample(features[row], model, scores)
        sample_slopes(loss, scores, targets[row], slopes)
        for k in range(model.shape[0]):
            add_scaled(share * slopes[k], features[row], out[k])


@compiled()
def mean_gradient_size(loss, features, targets, outputs):
    """(1/m) Σ ‖∇ℓ(0; x, y)‖: as large as the data term's gradient at 0 if nothing in it canceled."""
    scores = np.zeros(outputs)
    slopes = np.empty(outputs)
    total = 0.0
    for row in range(targets.shape[0]):
        sample_slopes(loss, scores, targets[row], slopes)
        total += math.sqrt(dot(slopes, slopes) * dot(features[row], features[row]))
    return total / max(targets.shape[0], 1)


@compiled()
def sample_curvatures(loss, features, targets, model, out):
    """Second derivatives of φ in the scores, (outputs, outputs) per sample, by central differences.

    A loss so needs no second derivative of its own. They only steer Newton's steps; whether a
    minimum is reached is judged by the gradient, which is exact.
    """
    outputs = model.shape[0]
    scores = np.empty(outputs)
    ahead = np.empty(outputs)
    behind = np.empty(outputs)
    for row in range(targets.shape[0]):
        score_sample(features[row], model, scores)
        for k in range(outputs):
            middle = scores[k]
            step = _DIFFERENCE_STEP * (1.0 + abs(middle))
            scores[k] = middle + step
            sample_slopes(loss, scores, targets[row], ahead)
            scores[k] = middle - step
            sample_slopes(loss, scores, targets[row], behind)
            scores[k] = middle
            for other in range(outputs):
                out[row, k, other] = (ahead[other] - behind[other]) / (2.0 * step)
        for k in range(outputs):
            for other in range(k):
                mean = 0.5 * (out[row, k, other] + out[row, other, k])
                out[row, k, other] = mean
                out[row, other, k] = mean


@compiled()
def mean_hessian_product(features, curvatures, direction, out):
    outputs = direction.shape[0]
    scores = np.empty(outputs)
    out[:] = 0.0
    share = 1.0 / max(curvatures.shape[0], 1)
    for row in range(curvatures.shape[0]):
        score_sample(features[row], direction, scores)
        for k in range(outputs):
            add_scaled(share * dot(curvatures[row, k], scores), features[row], out[k])


@compiled()
def mean_hessian_diagonal(features, curvatures, out):
    out[:] = 0.0
    share = 1.0 / max(curvatures.shape[0], 1)
    for row in range(curvatures.shape[0]):
        for k in range(out.shape[0]):
            for j in range(features.shape[1]):
                out[k, j] += share * curvatures[row, k, k] * features[row, j] * features[row, j]


@compiled()
def hessian_sum(features, curvatures, out):
    """Adds up the samples' Hessians; `out` has outputs × features rows and columns."""
    n_features = features.shape[1]
    for row in range(curvatures.shape[0]):
        for k in range(curvatures.shape[1]):
            for other in range(curvatures.shape[2]):
                columns = slice(other * n_features, (other + 1) * n_features)
                for j in range(n_features):
                    factor = curvatures[row, k, other] * features[row, j]
                    add_scaled(factor, features[row], out[k * n_features + j, columns])


# Many agents. The k-th has its samples at rows starts[k], starts[k] + 1, … of the data; places[k] is
# where they begin, and places[k + 1] where they end, in arrays that hold the samples of these agents
# only. `models` has shape (agents, outputs, features).


@compiled()
def rows_of(k, starts, places):
    return slice(starts[k], starts[k] + places[k + 1] - places[k])


@compiled(parallel=True)
def all_scores(features, starts, places, models):
    """The scores of every sample under its agent's model, shape (samples, outputs)."""
    out = np.empty((places[-1], models.shape[1]))
    for k in prange(models.shape[0]):
        rows = features[rows_of(k, starts, places)]
        for row in range(rows.shape[0]):
            score_sample(rows[row], models[k], out[places[k] + row])
    return out


@compiled(parallel=True)
def mean_losses(loss, features, targets, starts, places, models):
    out = np.empty(models.shape[0])
    for k in prange(models.shape[0]):
        rows = rows_of(k, starts, places)
        out[k] = mean_loss(loss, features[rows], targets[rows], models[k])
    return out


@compiled(parallel=True)
def mean_loss_gradients(loss, features, targets, starts, places, models):
    out = np.empty(models.shape)
    for k in prange(models.shape[0]):
        rows = rows_of(k, starts, places)
        mean_loss_gradient(loss, features[rows], targets[rows], models[k], out[k])
    return out


@compiled(parallel=True)
def mean_gradient_sizes(loss, features, targets, starts, places, outputs):
    out = np.empty(starts.shape[0])
    for k in prange(starts.shape[0]):
        rows = rows_of(k, starts, places)
        out[k] = mean_gradient_size(loss, features[rows], targets[rows], outputs)
    return out


@compiled(parallel=True)
def all_curvatures(loss, features, targets, starts, places, models):
    outputs = models.shape[1]
    out = np.empty((places[-1], outputs, outputs))
    for k in prange(models.shape[0]):
        rows = rows_of(k, starts, places)
        own = out[places[k] : places[k + 1]]
        sample_curvatures(loss, features[rows], targets[rows], models[k], own)
    return out


@compiled(parallel=True)
def mean_hessian_products(features, starts, places, curvatures, directions):
    out = np.empty(directions.shape)
    for k in prange(directions.shape[0]):
        rows = rows_of(k, starts, places)
        mean_hessian_product(features[rows], curvatures[places[k] : places[k + 1]], directions[k], out[k])
    return out


@compiled(parallel=True)
def mean_hessian_diagonals(features, starts, places, curvatures):
    out = np.empty((starts.shape[0], curvatures.shape[1], features.shape[1]))
    for k in prange(starts.shape[0]):
        rows = rows_of(k, starts, places)
        mean_hessian_diagonal(features[rows], curvatures[places[k] : places[k + 1]], out[k])
    return out


@compiled(parallel=True)
def hessian_sums(features, starts, places, curvatures):
    """The Hessian of every agent's summed loss, shape (agents, dimension, dimension)."""
    dimension = curvatures.shape[1] * features.shape[1]
    out = np.zeros((starts.shape[0], dimension, dimension))
    for k in prange(starts.shape[0]):
        rows = rows_of(k, starts, places)
        hessian_sum(features[rows], curvatures[places[k] : places[k + 1]], out[k])
    return out


@compiled(parallel=True)
def neighbor_sums(offsets, neighbors, weights, models):
    """Σ_j W_ij Θ_j for every agent; `models` has shape (agents, dimension)."""
    out = np.zeros(models.shape)
    for agent in prange(models.shape[0]):
        for edge in range(offsets[agent], offsets[agent + 1]):
            add_scaled(weights[edge], models[neighbors[edge]], out[agent])
    return out


@compiled(parallel=True)
def disagreements(offsets, neighbors, weights, models):
    """Σ_j W_ij ‖Θ_i − Θ_j‖² for every agent, from differences, so nothing cancels."""
    out = np.zeros(models.shape[0])
    for agent in prange(models.shape[0]):
        own = models[agent]
        for edge in range(offsets[agent], offsets[agent + 1]):
            other = models[neighbors[edge]]
            distance = 0.0
            for j in range(own.shape[0]):
                distance += (own[j] - other[j]) ** 2
            out[agent] += weights[edge] * distance
    return out
