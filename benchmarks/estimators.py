"""The scikit-learn estimators as they come, against settings tuned by hand on the test rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from experiments.grouped import DATA_SETS, TRAINING_SHARE, load

from flockwise import FlockwiseWarning, PersonalizedClassifier, PersonalizedRegressor, load_movielens
from flockwise.estimators import preparation
from flockwise.estimators.columns import columns_of_array
from flockwise.estimators.fitting import PULLS, TRADEOFFS, Alone, Way, alone_models, fit_ways
from flockwise.estimators.resemblance import models_graph
from flockwise.estimators.rows import FitRows
from flockwise.objective import Logistic, Quadratic
from flockwise.solve import Prior, posterior_models

GROUPED = ("Chem97", "Hsb82", "Exam", "Contraception")
NAMES = (*GROUPED, "MovieLens")
SPLIT = 1601

OURS = "as it comes"
# Settings by hand: one model, models learned alone, pulled to one model, to neighbors, or both.
KINDS = ("pooled", "alone", "shrunken", "graph", "both")
# In it: penalties, and how far models of agents may lie from the pooled one.
WEIGHTS = tuple(4.0**power for power in range(-5, 7))
SPREADS = tuple(4.0**power for power in range(-6, 2))
# The variance of intercepts against that of coefficients.
INTERCEPTS = (1.0, 4.0, 16.0)


class Table(NamedTuple):
    """Features, targets and whose row it is."""

    name: str
    features: np.ndarray
    targets: np.ndarray
    agents: np.ndarray
    has_classes: bool


def run(names: Sequence[str] = NAMES, splits: int = 5) -> list[dict]:
    """For each data set the RMSE or log loss of test rows, means over splits.

    Beside it stands, of every kind of setting, the one that is best on the test rows: nobody could choose it.
    """
    return [_row(_table(name), splits) for name in names]


def _row(table: Table, splits: int) -> dict:
    found = [_split(table, seed) for seed in range(splits)]
    means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    ours = means.pop(OURS)
    best = {kind: min(value for name, value in means.items() if name.startswith(kind)) for kind in KINDS}
    return {
        "data": table.name,
        "metric": "log loss" if table.has_classes else "rmse",
        OURS: ours,
        **best,
        "best by hand": min(means, key=lambda name: means[name]),
        "above the best": ours / min(best.values()) - 1,
    }


def _split(table: Table, seed: int) -> dict[str, float]:
    order = np.random.default_rng([SPLIT, seed]).permutation(len(table.targets))
    trains = np.zeros(len(order), dtype=bool)
    trains[order[: round(TRAINING_SHARE * len(order))]] = True
    found = {OURS: _as_it_comes(table, trains)}
    train, test, scale = _rows(table, trains)
    for name, models in by_hand(train):
        found[name] = _error(table, test.losses(models), scale)
    return found


def _as_it_comes(table: Table, trains: np.ndarray) -> float:
    kind = PersonalizedClassifier if table.has_classes else PersonalizedRegressor
    model: Any = kind(
        inner_folds=0
    )  # inner validation has nothing to choose here: it would only tell the gain
    model.fit(table.features[trains], table.targets[trains], groups=table.agents[trains])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlockwiseWarning)  # agents of which no row was drawn
        if not table.has_classes:
            predicted = model.predict(table.features[~trains], groups=table.agents[~trains])
            return _error(table, (predicted - table.targets[~trains]) ** 2, 1.0)
        chances = model.predict_proba(table.features[~trains], groups=table.agents[~trains])
    truth = np.searchsorted(model.classes_, table.targets[~trains])
    return _error(table, -np.log(chances[np.arange(len(truth)), truth]), 1.0)


def _error(table: Table, losses: np.ndarray, scale: float) -> float:
    mean = float(losses.mean())
    return mean if table.has_classes else scale * mean**0.5


def _rows(table: Table, trains: np.ndarray) -> tuple[FitRows, FitRows, float]:
    """Training and test rows, scaled alike, and the unit of the targets."""
    columns = columns_of_array(table.features)
    known = {name: values[trains] for name, values in columns.items()}
    prepared = preparation.learned(known, np.ones(int(trains.sum())))
    centers, units = prepared.scales
    features = (prepared(columns) - centers) / units
    targets, scale = table.targets, 1.0
    if not table.has_classes:
        scale = float(targets[trains].std())
        targets = (targets - targets[trains].mean()) / scale
    names, codes = np.unique(table.agents, return_inverse=True)
    agents = tuple(f"agent {name}" for name in names)
    loss = Logistic() if table.has_classes else Quadratic()

    def part(chosen: np.ndarray) -> FitRows:
        ones = np.ones(int(chosen.sum()))
        return FitRows.packed(
            features[chosen], targets[chosen], ones, codes[chosen], agents, prepared.names, loss
        )

    return part(trains), part(~trains), scale


def by_hand(rows: FitRows) -> Iterator[tuple[str, np.ndarray]]:
    """Models of every setting that somebody with patience would try."""
    n_agents, p = len(rows.agents), rows.features.shape[1] + 1
    together = FitRows.packed(
        rows.features,
        rows.targets,
        rows.weights,
        np.zeros(len(rows.targets), dtype=np.int64),
        ("all",),
        rows.feature_names,
        rows.loss,
    )
    for weight in WEIGHTS:
        yield f"pooled {weight:g}", np.tile(alone_models(together, Alone(weight)), (n_agents, 1))
    alone = {}
    for weight in WEIGHTS:
        for frees in (True, False):
            alone[weight, frees] = alone_models(rows, Alone(weight, frees))
            yield f"alone {weight:g}{' and a free intercept' if frees else ''}", alone[weight, frees]
    [common] = alone_models(together, Alone(1.0))
    problem, dispersion = rows.problem(), 1.0
    if rows.loss.metric == "rmse":
        dispersion = 2 * float(rows.losses(np.tile(common, (n_agents, 1))).mean())
    for spread in SPREADS:
        for factor in INTERCEPTS:
            variances = np.append(np.full(p - 1, spread), factor * spread)
            prior = Prior(common, np.diag(variances), dispersion)
            yield f"shrunken {spread:g}, intercepts times {factor:g}", posterior_models(problem, prior)
    graph = models_graph(alone[4.0, False], rows.agents)
    ways = [*(Way("graph", tradeoff=mu) for mu in TRADEOFFS), *(Way("both", pull=pull) for pull in PULLS)]
    for way, fitted in zip(ways, fit_ways(rows, ways, graph, Alone(4.0, False), 1e-4), strict=True):
        yield f"{way.method} {way.tradeoff or way.pull:g}", fitted.models


def _table(name: str) -> Table:
    if name == "MovieLens":
        data = load_movielens()
        genres = data.movies.genres[data.ratings.movies].astype(np.float64)
        return Table(name, genres, data.ratings.values, data.ratings.users, False)
    data = DATA_SETS[name]
    rows = load(data)
    return Table(name, rows.features, rows.targets, rows.agents, data.metric == "log_loss")
