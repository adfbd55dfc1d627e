"""Public post-processing of releases: what to smooth, how strongly, and how good the result is.

Nothing here receives a population: all of it is computed from released vectors, their public
variances and the graph, so that it costs no privacy, however often it is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.graph import SimilarityGraph
from flockwise.objective.passes import neighbor_sums

# Columns of public noise that measure how much noise the smoothing lets through: to about 10 %.
NOISE_COLUMNS = 200
# Sweeps end when no variance changes by more than this share: even a slow rest is then a few percent.
SWEEP_TOLERANCE = 1e-4
MAX_SWEEPS = 1000


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
