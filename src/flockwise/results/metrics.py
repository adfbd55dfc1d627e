"""How good models are on given samples: one number for some rows, per agent, and by data-set size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data.population import Population
from flockwise.errors import DataError, ObjectiveError
from flockwise.objective.losses import Loss, has_two_classes, loss_name
from flockwise.objective.passes import all_scores, mean_losses
from flockwise.objective.problem import target_misfit

ScoreName: TypeAlias = Literal["accuracy", "auc", "log_loss", "rmse", "r2"]

# A probability of 0 for what happened would make one sample's log loss infinite.
LEAST_PROBABILITY = 1e-15


def agent_predictions(loss: Loss, population: Population, models: NDArray[Any]) -> Floats:
    """Each agent's own model on its own samples, one prediction per sample, in the population's order."""
    expected = (population.n_agents, loss.outputs * population.n_features)
    if np.shape(models) != expected:
        shape = np.shape(models)
        raise ObjectiveError(f"models must have shape (agents, dimension) = {expected}, got {shape}")
    blocks = np.ascontiguousarray(models, dtype=np.float64).reshape(len(models), loss.outputs, -1)
    return loss.predict(all_scores(population.features, population.offsets[:-1], population.offsets, blocks))


def agent_metrics(loss: Loss, population: Population, models: NDArray[Any]) -> Floats:
    """Each agent's accuracy or RMSE (whichever judges the loss) on its samples; NaN where it has none.

    Row i of the models is that of agent i; `Trajectory.score` finds agents by name.
    """
    misfit = target_misfit(population, loss, "held-out")
    if misfit is not None:
        raise DataError(misfit)
    predictions = agent_predictions(loss, population, models)
    if loss.metric == "accuracy":
        return _agent_means(population, (predictions == population.targets).astype(np.float64))
    return np.sqrt(_agent_means(population, (predictions - population.targets) ** 2))


def agent_losses(loss: Loss, population: Population, models: NDArray[Any]) -> Floats:
    """Each agent's mean loss on its samples, without a penalty; NaN where it has none."""
    blocks = np.ascontiguousarray(models, dtype=np.float64).reshape(len(models), loss.outputs, -1)
    offsets = population.offsets
    losses = mean_losses(loss, population.features, population.targets, offsets[:-1], offsets, blocks)
    return np.where(population.sample_counts > 0, losses, np.nan)


def mean_metric(metrics: Floats) -> float:
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
    sample_counts: NDArray[np.integer], metrics: Floats, *, bins: int | Sequence[int] = 5
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


def size_bins(sample_counts: NDArray[np.integer]) -> list[int]:
    """Bins for five groups of about as many agents each: most people have little data."""
    lowest = np.quantile(sample_counts, (0, 0.2, 0.4, 0.6, 0.8), method="higher")
    return np.unique([*lowest, sample_counts.max() + 1]).tolist()


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


def _agent_means(population: Population, values: Floats) -> Floats:
    counts = population.sample_counts
    means = np.full(population.n_agents, np.nan)
    occupied = np.flatnonzero(counts)
    if occupied.size:
        means[occupied] = np.add.reduceat(values, population.offsets[occupied]) / counts[occupied]
    return means


def score(name: str | None, loss: Loss, scores: Floats, targets: Floats) -> float:
    """One number for these rows; NaN where it is undefined, such as AUC with one class alone."""
    name = loss.metric if name is None else name
    if name not in get_args(ScoreName):
        raise DataError(f"metric must be one of {', '.join(get_args(ScoreName))}, got metric={name!r}")
    needs_classes, judge = _SCORES[name]
    if needs_classes != (loss.metric == "accuracy"):
        raise DataError(f"metric={name!r} does not fit loss {loss_name(loss)!r}")
    if not len(targets):
        return float("nan")
    return judge(loss, scores, targets)


def probabilities(loss: Any, scores: Floats) -> Floats:
    """One column per class; refused for losses that predict numbers."""
    made = getattr(loss, "probabilities", None)
    if made is None:
        raise DataError(f"loss {loss_name(loss)!r} gives no probabilities")
    return made(scores)


def log_losses(loss: Loss, scores: Floats, targets: Floats) -> Floats:
    """−log probability of the class that each sample has."""
    classes = ((targets > 0) if has_two_classes(loss) else targets).astype(np.int64)
    of_truth = probabilities(loss, scores)[np.arange(len(targets)), classes]
    return -np.log(np.maximum(of_truth, LEAST_PROBABILITY))


def _accuracy(loss: Loss, scores: Floats, targets: Floats) -> float:
    return float((loss.predict(scores) == targets).mean())


def _auc(loss: Loss, scores: Floats, targets: Floats) -> float:
    """The share of pairs of both classes that the score orders rightly; ties count half (Mann, Whitney)."""
    if not has_two_classes(loss):
        raise DataError("metric='auc' is for two classes")
    from scipy.stats import rankdata  # slow to import

    positive = targets > 0
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return float("nan")
    ranks = rankdata(scores[:, 0])
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def _log_loss(loss: Loss, scores: Floats, targets: Floats) -> float:
    return float(log_losses(loss, scores, targets).mean())


def _rmse(loss: Loss, scores: Floats, targets: Floats) -> float:
    return float(np.sqrt(((loss.predict(scores) - targets) ** 2).mean()))


def _r2(loss: Loss, scores: Floats, targets: Floats) -> float:
    spread = ((targets - targets.mean()) ** 2).sum()
    if spread == 0:
        return float("nan")
    return float(1 - ((loss.predict(scores) - targets) ** 2).sum() / spread)


# Whether it judges classes, and how.
_SCORES: dict[str, tuple[bool, Callable[[Loss, Floats, Floats], float]]] = {
    "accuracy": (True, _accuracy),
    "auc": (True, _auc),
    "log_loss": (True, _log_loss),
    "rmse": (False, _rmse),
    "r2": (False, _r2),
}
