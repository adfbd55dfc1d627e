"""The mean of its neighbors' models, as an agent takes it.

It looks at released models and public weights, never at the agent's data or its own model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

# From the models of the neighbors, one per row, and their weights.
NeighborMean: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
Neighbors: TypeAlias = Literal["mean", "clipped"]

# Sums of shares that are meant to be a half may differ from it by so much.
ROUNDING: Final = 1e-9


def weighted_mean(models: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Σ_j W_ij/D_ii·Θ_j."""
    return weights @ models / weights.sum()


def clipped_mean(models: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Their mean, in which none is farther from their median than the median distance from it.

    Both medians go by weight. One that is farther counts as if it were that far, in its direction. So
    neighbors that lie, and have less than half of the weight, move the mean no farther than the others are
    apart.
    """
    center = weighted_median(models, weights)
    ways = models - center
    distances = np.sqrt((ways**2).sum(axis=1))
    reach = weighted_median(distances[:, None], weights)[0]
    shares = np.divide(reach, distances, out=np.ones_like(distances), where=distances > reach)
    return center + weighted_mean(shares[:, None] * ways, weights)


def weighted_median(values: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Of each column. Where half of the weight lies on either side of a gap, its middle."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    below = np.cumsum(weights[order], axis=0) / weights.sum()
    lower, upper = (np.argmax(below >= 0.5 + slack, axis=0)[None] for slack in (-ROUNDING, ROUNDING))
    return (np.take_along_axis(ordered, lower, 0)[0] + np.take_along_axis(ordered, upper, 0)[0]) / 2


NEIGHBOR_MEANS: Final[Mapping[Neighbors, NeighborMean]] = {"mean": weighted_mean, "clipped": clipped_mean}
