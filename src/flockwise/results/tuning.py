"""Choice of the trade-off μ on validation data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flockwise.data.population import Population
from flockwise.errors import ObjectiveError
from flockwise.objective.problem import Problem
from flockwise.results.frames import in_order_of
from flockwise.results.metrics import agent_metrics, mean_metric
from flockwise.solve.optimum import solve_optimum


@dataclass(frozen=True)
class TradeoffScore:
    """What one trade-off reaches: the mean over problems, and each problem's mean over agents."""

    tradeoff: float
    score: float
    problem_scores: tuple[float, ...]


@dataclass(frozen=True)
class TradeoffChoice:
    """The best trade-off, and the whole table in ascending order of the trade-off."""

    best: float
    metric: str
    table: tuple[TradeoffScore, ...]


def choose_tradeoff(
    trials: Sequence[tuple[Problem, Population]], grid: Iterable[float], *, tolerance: float = 1e-6
) -> TradeoffChoice:
    """The μ of the grid whose optimum of Eq. (2) is best on validation data, on average over trials.

    trials: problems with the validation samples of their agents, found by name; each problem's own μ is
        ignored.
    tolerance: how exactly each optimum is solved (relative gap); accuracy needs little.
    Of trade-offs with the same score the smallest is taken.
    """
    values = sorted({float(value) for value in grid})
    metric = _checked_metric(trials, values)
    trials = [(problem, _same_agents(problem.population, held_out)) for problem, held_out in trials]
    # One row per problem, one column per trade-off.
    scores = np.array([_scores_along(problem, held_out, values, tolerance) for problem, held_out in trials])
    means = scores.mean(axis=0)
    best = np.argmax(means) if metric == "accuracy" else np.argmin(means)
    table = tuple(
        TradeoffScore(value, float(mean), tuple(map(float, column)))
        for value, mean, column in zip(values, means, scores.T, strict=True)
    )
    return TradeoffChoice(values[best], metric, table)


def _scores_along(
    problem: Problem, held_out: Population, values: Sequence[float], tolerance: float
) -> list[float]:
    """The mean metric for each μ; each solution starts from the one before."""
    scores, models = [], None
    for value in values:
        models = solve_optimum(problem.with_tradeoff(value), tolerance=tolerance, start=models).models
        scores.append(mean_metric(agent_metrics(problem.loss, held_out, models)))
    return scores


def _checked_metric(trials: Sequence[tuple[Problem, Population]], values: Sequence[float]) -> str:
    if not trials or not values:
        raise ObjectiveError("choosing a trade-off needs at least one problem and one value in the grid")
    metric = trials[0][0].loss.metric
    if any(problem.loss.metric != metric for problem, _ in trials):
        raise ObjectiveError("the problems are judged by different metrics; use one kind of loss")
    if any(held_out.n_samples == 0 for _, held_out in trials):
        raise ObjectiveError("the validation data has no samples, so nothing can be judged")
    return metric


def _same_agents(train: Population, held_out: Population) -> Population:
    held_out = in_order_of(train, held_out)
    if held_out.n_agents != train.n_agents:
        raise ObjectiveError(
            f"the validation data has {held_out.n_agents} agents and the problem {train.n_agents}"
        )
    return held_out
