"""Inner validation: rows of every agent are held out in turns, to choose a way and to see who gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.estimators.fitting import COARSE, Alone, Way, alone_models, fit_ways
from flockwise.estimators.rows import FitRows
from flockwise.graph import SimilarityGraph
from flockwise.progress import watched

# The graph among agents who know these rows alone.
GraphOf: TypeAlias = Callable[[FitRows, Alone], SimilarityGraph | None]
# To be called after every fold.
Step: TypeAlias = Callable[[], None]

# Weights of the penalty on models that agents learn alone.
WEIGHTS = tuple(4.0**power for power in range(-2, 5))


@dataclass(frozen=True, eq=False)
class AgentGains:
    """What held-out rows say about each agent's own model and its model together with others.

    Accuracies, or RMSE; gain is positive where the model learned together is better. Agents of which no row
    was held out have NaN.
    """

    alone: Floats
    together: Floats
    gain: Floats
    standard_error: Floats


@dataclass(frozen=True, eq=False)
class Validated:
    """The choice, and its gain."""

    alone: Alone
    way: Way
    gain: AgentGains


def fold_of_rows(rows: FitRows, n_folds: int, seed: int) -> NDArray[np.int64]:
    """A fold for every row; each agent's rows are spread over as many folds as it has rows."""
    random = np.random.default_rng(seed)
    shuffled = np.lexsort((random.random(len(rows.targets)), rows.owners))
    rank = np.empty(len(shuffled), dtype=np.int64)
    rank[shuffled] = np.arange(len(shuffled)) - np.repeat(rows.offsets[:-1], rows.counts)
    # Another first fold for every agent: else the first folds would hold all that small agents have.
    firsts = random.integers(n_folds, size=len(rows.agents))
    return (rank + firsts[rows.owners]) % n_folds


def alone_choices(weight: float | None) -> list[Alone]:
    """Penalties to choose from; one of them where it was given."""
    weights = WEIGHTS if weight is None else (weight,)
    return [Alone(value, frees) for frees in (True, False) for value in weights]


def choose_alone(
    rows: FitRows, weight: float | None, folds: NDArray[np.int64], step: Step
) -> tuple[Alone, Floats]:
    """The penalty whose models alone predict best on rows that were held out, and their errors there."""
    choices = alone_choices(weight)
    judged = HeldOut(rows, folds, lambda known: [alone_models(known, choice) for choice in choices], step)
    return choices[judged.best], judged.errors[judged.best]


def validate(
    rows: FitRows,
    ways: Sequence[Way],
    weight: float | None,
    graph_of: GraphOf,
    folds: NDArray[np.int64],
    step: Step,
) -> Validated:
    """Choose the penalty of models alone and the way together by the loss on rows that were held out."""
    alone, errors = choose_alone(rows, weight, folds, step)

    def together(known: FitRows) -> list[Floats]:
        found = fit_ways(known, ways, graph_of(known, alone), alone, COARSE)
        return [fitted.models for fitted in found]

    found = HeldOut(rows, folds, together, step)
    return Validated(alone, ways[found.best], gain_of(rows, errors, found.errors[found.best]))


class HeldOut:
    """Losses and errors of several fits, one row of numbers each, on rows that these did not know."""

    def __init__(
        self, rows: FitRows, folds: NDArray[np.int64], fit: Callable[[FitRows], Sequence[Floats]], step: Step
    ) -> None:
        losses: list[list[Floats]] = []
        errors: list[list[Floats]] = []
        for fold in np.unique(folds):
            known, held_out = rows.only(folds != fold), rows.only(folds == fold)
            models = fit(known)
            losses.append([held_out.losses(one) for one in models])
            errors.append([held_out.errors(one) for one in models])
            step()
        back = np.argsort(np.argsort(folds, kind="stable"), kind="stable")
        self._losses = np.hstack([np.vstack(part) for part in losses])[:, back]
        self.errors = np.hstack([np.vstack(part) for part in errors])[:, back]
        self._weights = rows.weights

    @property
    def best(self) -> int:
        return int(np.argmin(self._losses @ self._weights))


def gain_of(rows: FitRows, alone: Floats, together: Floats) -> AgentGains:
    """Per agent, from the errors on every row under both models; rows count with their weights."""
    totals = _of_agents(rows, rows.weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [_of_agents(rows, rows.weights * errors) / totals for errors in (alone, together)]
        away = rows.weights * (alone - together - (means[0] - means[1])[rows.owners])
        error = np.sqrt(_of_agents(rows, away**2) * rows.counts / (rows.counts - 1)) / totals
        if rows.loss.metric != "rmse":
            return AgentGains(1 - means[0], 1 - means[1], means[0] - means[1], _known(error, rows.counts > 1))
        roots = [np.sqrt(mean) for mean in means]
        # A difference of squares over the sum is the difference of the roots.
        scale = np.maximum(roots[0] + roots[1], np.finfo(np.float64).tiny)
        gain = roots[0] - roots[1]
        return AgentGains(roots[0], roots[1], gain, _known(error / scale, rows.counts > 1))


def _of_agents(rows: FitRows, values: Floats) -> Floats:
    """Sums over the rows of each."""
    return np.bincount(rows.owners, values, len(rows.agents)).astype(np.float64)


def _known(values: Floats, where: NDArray[np.bool_]) -> Floats:
    return np.where(where, values, np.nan)


@contextmanager
def fold_by_fold(folds: NDArray[np.int64]) -> Iterator[Step]:
    """Shows how far inner validation is: every fold is fitted alone and together."""
    total, done = 2 * len(np.unique(folds)), 0
    with watched("validating", "folds") as report:

        def step() -> None:
            nonlocal done
            done += 1
            if report is not None:
                report(done, total)

        yield step
