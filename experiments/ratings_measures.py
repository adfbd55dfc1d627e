"""The steps of Table 1: settings from public quantities, and test errors on one random split of MovieLens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from experiments.published import DELTA, PRINTED_TRADEOFF
from experiments.ratings_descent import CentredTwin, descend
from experiments.ratings_prior import RESIDUAL_VARIANCE, Prior, smooth_patterns
from experiments.ratings_release import (
    Lens,
    PublicMovies,
    Ratings,
    Settings,
    models_without_releases,
    own_models,
    release_twice,
)
from experiments.ratings_rule import FREEDOMS, TWIN_SEED, TWINS, PublicView, Rule
from flockwise.data.movielens import load_movielens
from flockwise.data.ratings import MovieFeatures, RatingsTask, ratings_task
from flockwise.graph import SimilarityGraph, knn_graph
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import USUALLY_PUBLIC, Guarantee
from flockwise.privacy.origin import Origin
from flockwise.privacy.plan import Plan
from flockwise.results.metrics import agent_metrics
from flockwise.solve.optimum import solve_optimum

Array = NDArray[np.float64]

DELTAS = (DELTA, 1e-6)
NEIGHBORS = 10
PENALTIES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
# What neighbors are supposed to share of an agent's taste: half of it if they are neighbors because they rate
# alike, a quarter if it is because of age, gender and occupation.
SHARED: Mapping[MovieFeatures, float] = {"als": 0.5, "als_disjoint": 0.25, "genres": 0.25}
NOT_COVERED: Mapping[MovieFeatures, tuple[str, ...]] = {
    "als": (
        "the movie features, which are factors of the agents' own ratings",
        "the graph, built from ratings",
    ),
    "als_disjoint": (),
    "genres": (),
}


def budgets(epsilons: Sequence[float]) -> list[Budget]:
    return [Budget(epsilon, delta) for delta in DELTAS for epsilon in epsilons]


# Settings: no rating is looked at, save those that features and graph of the first group were made of.


def choose_settings(
    source: MovieFeatures, seed: int, epsilons: Sequence[float], search: bool
) -> dict[str, Any]:
    """The rule's prior, and its settings at each budget, for what is public of this split."""
    _, view, _ = _public_centring(source, seed)
    rule = Rule(view, TWINS if search else 1)
    found = [Settings()]
    for budget in budgets(epsilons):
        found.append(rule.settings(budget, found[-1]) if search else found[-1])
    prior = {part: values.tolist() for part, values in asdict(rule.prior).items()}
    return {
        "prior": prior,
        "settings": [asdict(settings) for settings in found[1:]],
        "freedom_without_releases": rule.freedom_without_releases(),
    }


def choose_descent_tradeoff() -> dict[str, float]:
    """The one without privacy that is best on a twin."""
    _, view, graph = _public_centring("als", TWIN_SEED)
    return {"tradeoff": CentredTwin(view, graph).tradeoff()}


@lru_cache(maxsize=1)
def _public_centring(source: MovieFeatures, seed: int) -> tuple[RatingsTask, PublicView, SimilarityGraph]:
    task = ratings_task(load_movielens(), features=source, centring="public", seed=seed)
    if NOT_COVERED[source]:
        graph = who_rates_alike(task)
    else:
        names = task.train.agent_names
        graph = knn_graph(
            task.user_profiles, NEIGHBORS, metric="euclidean", source="profiles", agent_names=names
        )
    movies = PublicMovies(task.movie_features, is_als=source != "genres")
    counts = task.train.sample_counts
    return task, PublicView(movies, source, smooth_patterns(graph), counts, SHARED[source]), graph


def who_rates_alike(task: RatingsTask) -> SimilarityGraph:
    """The 10 nearest by cosine. Who gave all movies the same rating has no direction, and no neighbors."""
    ratings = task.rating_matrix
    has_direction = np.flatnonzero(abs(ratings).max(axis=1).toarray().ravel())
    some = knn_graph(ratings[has_direction], NEIGHBORS, source="ratings").to_scipy().tocoo()
    ends = tuple(has_direction[end] for end in some.coords)
    n_agents = task.train.n_agents
    whole = sparse.coo_array((some.data, ends), shape=(n_agents, n_agents))
    return SimilarityGraph.from_scipy(whole, source="ratings", agent_names=task.train.agent_names)


# Test errors.


def measure_paper(seed: int, chosen: Mapping[str, Any] | None) -> dict[str, Any]:
    """Everything that Table 1 has, on the paper's own task, and the baselines that it omits.

    Without chosen settings only what needs none, and the minimum that coordinate descent settles at.
    """
    task = ratings_task(load_movielens(), seed=seed)
    graph = who_rates_alike(task)
    counts = task.train.sample_counts
    found: dict[str, Any] = {
        "user_mean": _rmse(task, np.zeros((len(counts), task.train.n_features))),
        "local": _rmse(task, _ridge(task, 1 / counts)),
        "local_sum": _rmse(task, _ridge(task, 1 / counts**2)),
        "ridge": _ridge_errors(task),
    }
    if chosen is None:
        problem = Problem(task.train, graph, Objective(Quadratic(), tradeoff=PRINTED_TRADEOFF))
        return found | {"collaborative_printed": _rmse(task, solve_optimum(problem, tolerance=1e-3).models)}
    found["collaborative_printed"] = _rmse(task, descend(task.train, graph, PRINTED_TRADEOFF, seed))
    found["collaborative"] = _rmse(task, descend(task.train, graph, chosen["tradeoff"], seed))
    weaker = ratings_task(load_movielens(), seed=seed, als_penalty=0.02)
    found["local_sum_weak_als"] = _rmse(weaker, _ridge(weaker, 1 / counts**2))
    return found


def measure_honest(
    source: MovieFeatures, seed: int, epsilons: Sequence[float], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """Released and own models at every budget, local ridge regression, and the guarantees in words."""
    task, view, _ = _public_centring(source, seed)
    movies, ratings = view.movies, _ratings(task)
    prior = _prior(chosen)
    cells = []
    for budget, settings in zip(budgets(epsilons), chosen["settings"], strict=True):
        lens = Lens(movies, Settings(**settings))
        looks = release_twice(ratings, lens, view.patterns, prior, budget, seed)
        own = own_models(ratings, movies.catalogue, looks.expected, looks.uncertainty)
        promise = _guarantee(looks.plan, task.train.n_features, NOT_COVERED[source])
        cells.append(
            {
                "epsilon": budget.epsilon,
                "delta": budget.delta,
                "released": _rmse(task, movies.original(looks.released)),
                "own": _rmse(task, movies.original(own)),
                "label": promise.label,
                "guarantee": promise.explain(),
            }
        )
    return {
        "agents": task.train.n_agents,
        "dimension": task.train.n_features,
        "ridge": _ridge_errors(task),
        "cells": cells,
    }


def measure_without_releases(source: MovieFeatures, seed: int, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Own models with the same public start and prior, but no word from others: of each of FREEDOMS.

    `by_rule`: with the one that the rule chooses for this.
    """
    task, view, _ = _public_centring(source, seed)
    ratings, prior = _ratings(task), _prior(chosen)
    errors = [
        _rmse(task, view.movies.original(models_without_releases(ratings, view.movies, prior, freedom)))
        for freedom in FREEDOMS
    ]
    return {"by_rule": errors[FREEDOMS.index(chosen["freedom_without_releases"])], "errors": errors}


def _prior(chosen: Mapping[str, Any]) -> Prior:
    return Prior(**{part: np.array(values) for part, values in chosen["prior"].items()})


def _ratings(task: RatingsTask) -> Ratings:
    movies = task.rating_matrix.indices.astype(np.int64)
    return Ratings(movies, np.asarray(task.train.targets, np.float64), task.train.offsets)


def _rmse(task: RatingsTask, models: Array) -> float:
    """Of each agent's test ratings, averaged over agents."""
    return float(np.nanmean(agent_metrics(Quadratic(), task.test, models)))


def _ridge(task: RatingsTask, penalties: Array) -> Array:
    """argmin (1/m) Σ (θᵀx − y)² + λ_i‖θ‖², everyone alone."""
    zeros = np.zeros((task.train.n_agents, task.train.n_features))
    freedom = RESIDUAL_VARIANCE / (penalties * task.train.sample_counts)
    return own_models(_ratings(task), task.movie_features, zeros, zeros + freedom[:, None])


def _ridge_errors(task: RatingsTask) -> list[float]:
    agents = task.train.n_agents
    return [_rmse(task, _ridge(task, np.full(agents, penalty))) for penalty in PENALTIES]


def _guarantee(plan: Plan, dimension: int, not_covered: tuple[str, ...]) -> Guarantee:
    return Guarantee.of(
        [plan.budget],
        mechanism="Gaussian noise on two means of clipped terms",
        accountant=plan.accountant,
        plan=plan,
        dimension=dimension,
        origins=[Origin(what, "private") for what in not_covered],
        public=(
            *USUALLY_PUBLIC,
            "the features of every movie",
            "the constant 3.5 that ratings are centered by",
        ),
    )
