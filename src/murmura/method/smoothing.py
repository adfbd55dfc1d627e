"""Public post-processing of releases: what to smooth, how strongly, and how good the result is.

Nothing here receives a population: all of it is computed from released vectors, their public
variances and the graph, so that it costs no privacy, however often it is done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmura.graph import SimilarityGraph
from murmura.objective.passes import neighbor_sums

# Columns of public noise that measure how much noise the smoothing lets through: to about 10 %.
NOISE_COLUMNS = 200
# Sweeps end when no variance changes by more than this share: even a slow rest is then a few percent.
SWEEP_TOLERANCE = 1e-4
MAX_SWEEPS = 1000
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
    square = float(mean @ mean)
    noise = len(mean) / precisions.sum()
    return ShrunkenMean(mean, shares, max(0.0, 1 - noise / square) if square > 0 else 0.0)


def precision_confidences(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """c_i = min_j s_j² / s_i²: an agent counts as much as its release is precise, at most 1."""
    return np.maximum(variances.min() / variances, LEAST_CONFIDENCE)


def propagate(
    graph: SimilarityGraph, anchors: NDArray[np.float64], pulls: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Supplement C for all agents at once until it settles: (neighbors' mean + μc_i·anchor_i)/(1 + μc_i).

    Settled to what the mean square of a row is needed for, the public quality, and no further.
    """
    degrees = np.where(graph.degrees > 0, graph.degrees, 1.0)[:, None]
    own = np.where(graph.degrees > 0, pulls / (1 + pulls), 1.0)[:, None]
    models, before = anchors, _mean_squares(anchors)
    for _ in range(MAX_SWEEPS):
        means = neighbor_sums(graph.offsets, graph.neighbors, graph.weights, np.ascontiguousarray(models))
        models = (1 - own) * (means / degrees) + own * anchors
        after = _mean_squares(models)
        if (np.abs(after - before) <= SWEEP_TOLERANCE * after).all():
            break
        before = after
    return models


def public_noise(variances: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Noise as everyone's release has it, one row per agent, from a seed that everyone knows."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    return np.sqrt(variances)[:, None] * generator.standard_normal((len(variances), NOISE_COLUMNS))


def variances_of(noise: NDArray[Any]) -> NDArray[np.float64]:
    """Each agent's variance per coordinate, from its row of independent columns."""
    return _mean_squares(noise)


def _mean_squares(rows: NDArray[Any]) -> NDArray[np.float64]:
    return np.einsum("ij,ij->i", rows, rows) / rows.shape[1]
