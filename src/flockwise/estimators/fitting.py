"""Ways to models of all agents without privacy, each solved to its exact end and none of them simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from flockwise.arrays import Floats
from flockwise.estimators.rows import FitRows
from flockwise.graph import SimilarityGraph
from flockwise.objective.losses import Loss
from flockwise.solve import Prior, posterior_models, solve_optimum
from flockwise.solve.mixed import fit_mixed_model

Method: TypeAlias = Literal["prior", "graph", "both"]

# μ of Eq. (2) that are tried, and how strongly neighbors pull beside a learned prior.
TRADEOFFS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
PULLS = (0.1, 0.3, 1.0, 3.0, 10.0)
# A penalty this many times weaker leaves the intercept free.
FREE = 1e8
# Of the largest standard deviation in a prior: what varies less is taken to vary so much.
LEAST_SPREAD = 1e-3
# Relative gaps of optima: of models that are kept, and of those that are only compared.
TOLERANCE, COARSE = 1e-10, 1e-5


class Alone(NamedTuple):
    """How agents learn alone: Σ ℓ + weight·‖θ‖², the intercept penalized like the rest or hardly at all."""

    weight: float
    frees_intercept: bool = True


class Way(NamedTuple):
    """A method, and how strongly neighbors count: μ itself, or their pull beside a prior of unit strength."""

    method: Method
    tradeoff: float | None = None
    pull: float | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """One model per agent, and the one for an agent of which nothing is known."""

    method: Method
    models: Floats
    common: Floats
    tradeoff: float | None = None
    prior: Prior | None = None


def default_weight(loss: Loss) -> float:
    """That of Ridge() and LogisticRegression() in scikit-learn."""
    return 1.0 if loss.metric == "rmse" else 0.5


def ways(method: Method | Literal["auto"], tradeoff: float | None, has_graph: bool) -> list[Way]:
    """What there is to choose from."""
    if not has_graph:
        return [Way("prior")]
    graph = [Way("graph", tradeoff=value) for value in ((tradeoff,) if tradeoff else TRADEOFFS)]
    both = [Way("both", tradeoff)] if tradeoff else [Way("both", pull=pull) for pull in PULLS]
    return {"auto": [Way("prior"), *graph, *both], "prior": [Way("prior")], "graph": graph, "both": both}[
        method
    ]


def fit_ways(
    rows: FitRows,
    chosen: Sequence[Way],
    graph: SimilarityGraph | None,
    alone: Alone,
    tolerance: float = TOLERANCE,
) -> Iterator[Fitted]:
    """Each way's models, in the order given; the prior is learned once for all of them.

    graph: None if nobody has neighbors.
    """
    fitted = _fit_prior(rows) if any(way.method != "graph" for way in chosen) else None
    start: Floats | None = None
    for way in chosen:
        if way.method == "graph":
            start = _fit_graph(rows, graph, alone, way, tolerance, start)
            yield Fitted("graph", start, _mean(start, rows), way.tradeoff)
        elif fitted is not None and way.method == "prior":
            yield fitted
        else:
            assert fitted is not None
            yield _fit_both(rows, graph, fitted, way, tolerance)


def alone_models(rows: FitRows, alone: Alone) -> Floats:
    """Everyone's own model; that of an agent without rows is 0."""
    p, outputs = rows.features.shape[1] + 1, rows.loss.outputs
    variances = np.full((outputs, p), 0.5 / alone.weight)
    if alone.frees_intercept:
        variances[:, -1] *= FREE
    return posterior_models(rows.problem(), Prior(np.zeros(p * outputs), np.diag(variances.ravel())))


def _fit_prior(rows: FitRows) -> Fitted:
    found = fit_mixed_model(rows.problem())
    return Fitted("prior", found.models, found.prior.mean, prior=found.prior)


def _fit_graph(
    rows: FitRows,
    graph: SimilarityGraph | None,
    alone: Alone,
    way: Way,
    tolerance: float,
    start: Floats | None,
) -> Floats:
    penalties = tuple((alone.weight / np.maximum(rows.counts, 1)).tolist())
    if graph is None or graph.n_edges == 0:
        return alone_models(rows, alone)
    problem = rows.problem(graph, tradeoff=way.tradeoff, l2=penalties)
    return solve_optimum(problem, tolerance=tolerance, start=start).models


def _fit_both(
    rows: FitRows, graph: SimilarityGraph | None, fitted: Fitted, way: Way, tolerance: float
) -> Fitted:
    """Eq. (2) with each model pulled to the common one, in units in which models differ by about 1."""
    prior = fitted.prior
    assert prior is not None
    if graph is None or graph.n_edges == 0:
        return Fitted("both", fitted.models, fitted.common, way.tradeoff, prior)
    outputs = rows.loss.outputs
    units = np.sqrt(np.diag(prior.covariance).reshape(outputs, -1).mean(axis=0))
    units = np.maximum(units, LEAST_SPREAD * units.max(initial=0.0))
    if not units.all():  # nothing differs between agents
        return Fitted("both", fitted.models, fitted.common, way.tradeoff, prior)
    cap = max(int(rows.counts.max()), 1)
    tradeoff = way.tradeoff or cap / (prior.dispersion * (way.pull or 1.0))
    penalties = tuple((prior.dispersion / 2 / np.maximum(rows.counts, 1)).tolist())
    problem = rows.problem(graph, tradeoff=tradeoff, l2=penalties)
    scaled = replace(problem.population, features=problem.population.features * units)
    every = np.tile(units, outputs)
    anchors = np.tile(prior.mean / every, (len(rows.agents), 1))
    found = solve_optimum(
        replace(problem, population=scaled),
        tolerance=tolerance,
        start=fitted.models / every,
        anchors=anchors,
    )
    return Fitted("both", found.models * every, fitted.common, tradeoff, prior)


def _mean(models: Floats, rows: FitRows) -> Floats:
    """Of the agents' models, each counted by its rows."""
    return np.average(models, axis=0, weights=np.maximum(rows.counts, 1))
