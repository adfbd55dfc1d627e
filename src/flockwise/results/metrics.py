"""How good models are on given samples: accuracy or RMSE, per agent, on average and by data-set size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.data.population import Population
from flockwise.errors import DataError, ObjectiveError
from flockwise.objective.losses import Loss
from flockwise.objective.passes import all_scores
from flockwise.objective.problem import target_misfit


def agent_predictions(loss: Loss, population: Population, models: NDArray[Any]) -> NDArray[np.float64]:
    """Each agent's own model on its own samples, one prediction per sample, in the population's order."""
    expected = (population.n_agents, loss.outputs * population.n_features)
    if np.shape(models) != expected:
        shape = np.shape(models)
        raise ObjectiveError(f"models must have shape (agents, dimension) = {expected}, got {shape}")
    blocks = np.ascontiguousarray(models, dtype=np.float64).reshape(len(models), loss.outputs, -1)
    return loss.predict(all_scores(population.features, population.offsets[:-1], population.offsets, blocks))


def agent_metrics(loss: Loss, population: Population, models: NDArray[Any]) -> NDArray[np.float64]:
    """Each agent's accuracy or RMSE (whichever judges the loss) on its samples; NaN where it has none."""
    misfit = target_misfit(population, loss, "held-out")
    if misfit is not None:
        raise DataError(misfit)
    predictions = agent_predictions(loss, population, models)
    if loss.metric == "accuracy":
        return _agent_means(population, (predictions == population.targets).astype(np.float64))
    return np.sqrt(_agent_means(population, (predictions - population.targets) ** 2))


def mean_metric(metrics: NDArray[np.float64]) -> float:
    """The mean over the agents that have a metric; NaN if none has."""
    known = metrics[~np.isnan(metrics)]
    return float(known.mean()) if known.size else float("nan")


class SizeBin(NamedTuple):
    """The agents with lowest ≤ samples ≤ highest, and the metric of those that have one."""

    lowest: int
    highest: int
    n_agents: int
    mean: float
    sd: float


def metrics_by_sample_count(
    sample_counts: NDArray[np.integer],
    metrics: NDArray[np.float64],
    *,
    bins: int | Sequence[int] = 5,
) -> list[SizeBin]:
    """The metric by the agent's number of training samples; bins without a metric are left out.

    bins: how many bins of equal width, or the lowest count of each bin in ascending order, with
        one past the highest count at the end.
    """
    edges = _bin_edges(sample_counts, bins)
    rows = []
    for lowest, end in pairwise(edges.tolist()):
        inside = metrics[(sample_counts >= lowest) & (sample_counts < end) & ~np.isnan(metrics)]
        if inside.size:
            rows.append(SizeBin(lowest, end - 1, inside.size, float(inside.mean()), float(inside.std())))
    return rows


def _bin_edges(sample_counts: NDArray[np.integer], bins: int | Sequence[int]) -> NDArray[np.int64]:
    if not isinstance(bins, int):
        edges = np.asarray(bins, dtype=np.int64)
        if edges.size < 2 or (np.diff(edges) <= 0).any():
            raise ObjectiveError(f"bins must be at least two ascending counts, got {list(bins)}")
        return edges
    if bins < 1:
        raise ObjectiveError(f"bins must be at least 1, got bins={bins}")
    spread = np.linspace(sample_counts.min(), sample_counts.max() + 1, bins + 1)
    return np.unique(np.ceil(spread).astype(np.int64))


def _agent_means(population: Population, values: NDArray[np.float64]) -> NDArray[np.float64]:
    counts = population.sample_counts
    means = np.full(population.n_agents, np.nan)
    occupied = np.flatnonzero(counts)
    if occupied.size:
        means[occupied] = np.add.reduceat(values, population.offsets[occupied]) / counts[occupied]
    return means
