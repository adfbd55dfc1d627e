"""Table 1: what the two releases may tell of one rating, and the numbers that the table has to show."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from experiments import ratings_release, table1
from experiments.ratings_release import Look, PublicMovies, Smoother, release_twice
from experiments.result import Result
from experiments.scale import Scale
from experiments.workbook import Workbook

from murmura.data import Population
from murmura.graph import knn_graph
from murmura.privacy.accounting import accountant_by_name
from murmura.privacy.budget import Budget

N_MOVIES, N_AGENTS, COUNT = 60, 40, 12
DELTA = math.exp(-5)


@pytest.fixture(scope="module")
def movies() -> PublicMovies:
    features = np.random.default_rng(0).normal(size=(N_MOVIES, 4)) * (1.0, 0.7, 0.5, 0.3)
    return PublicMovies(np.column_stack((features, np.ones(N_MOVIES))), is_als=True)


def agents(movies: PublicMovies, seed: int, noise: float = 1.0) -> tuple[Population, np.ndarray]:
    """Agents whose models lie around the public start, and those models in the movies' own coordinates."""
    generator = np.random.default_rng(seed)
    truth = movies.start + 0.3 * generator.normal(size=(N_AGENTS, 5))
    rated = generator.integers(N_MOVIES, size=(N_AGENTS, COUNT))
    features = movies.features[rated]
    ratings = np.einsum("ijk,ik->ij", features, movies.original(truth))
    ratings += noise * generator.normal(size=ratings.shape)
    offsets = np.arange(N_AGENTS + 1) * COUNT
    return Population.packed(features.reshape(-1, 5), ratings.ravel(), offsets), truth


def replaced(population: Population, row: int, features: np.ndarray, target: float) -> Population:
    other_features, other_targets = population.features.copy(), population.targets.copy()
    other_features[row], other_targets[row] = features, target
    return Population.packed(other_features, other_targets, population.offsets)


def statistic(population: Population, movies: PublicMovies, models: np.ndarray) -> np.ndarray:
    features = movies.principal(np.asarray(population.features, np.float64))
    clip = ratings_release.WIDTH * movies.length_bound
    return ratings_release._mean_residuals(population, features, movies.bounded(features), models, clip)


def test_one_rating_moves_a_release_by_no_more_than_its_sensitivity(movies: PublicMovies) -> None:
    """Any movie, any rating, at any models: also where features and residuals are far beyond their bounds."""
    population, truth = agents(movies, seed=1)
    generator = np.random.default_rng(2)
    sensitivity = 2 * ratings_release.WIDTH * movies.length_bound / COUNT
    largest = 0.0
    for _ in range(200):
        models = truth * generator.choice([0.0, 1.0, 50.0])
        row = int(generator.integers(population.n_samples))
        features = np.append(generator.normal(size=4) * 10 ** generator.uniform(-1, 3), 1.0)
        before = replaced(population, row, features, 1e3)
        after = replaced(population, row, features, -1e3)
        moved = np.linalg.norm(statistic(after, movies, models) - statistic(before, movies, models), axis=1)
        assert moved[row // COUNT] <= sensitivity * (1 + 1e-12)
        assert np.delete(moved, row // COUNT).max() == 0
        largest = max(largest, float(moved.max()))
    # The bound is reached, so that a smaller one would be wrong.
    assert largest >= 0.99 * sensitivity


def test_noise_of_both_releases_meets_the_budget_and_wastes_nothing(movies: PublicMovies) -> None:
    population, _ = agents(movies, seed=3)
    graph = knn_graph(np.random.default_rng(4).normal(size=(N_AGENTS, 2)), 5)
    budget = Budget(0.7, 1e-5)
    plan = release_twice(population, movies, graph, budget, noise_seed=5, prior=small_prior()).plan
    granted = plan.plan_of(0)
    assert granted is not None
    assert len(granted.events) == 2
    expected = 2 * ratings_release.WIDTH * movies.length_bound / COUNT
    assert [event.sensitivity for event in granted.events] == pytest.approx([expected, expected])
    spent = accountant_by_name("gdp").epsilon(granted.events, budget.delta)
    assert spent == pytest.approx(budget.epsilon, rel=1e-3)
    assert spent <= budget.epsilon


def test_without_ratings_of_their_own_models_are_the_same_post_processing(movies: PublicMovies) -> None:
    """The smoother is a function of releases: equal looks give equal models, and exact looks are believed."""
    graph = knn_graph(np.random.default_rng(6).normal(size=(N_AGENTS, 2)), 5)
    truth = movies.start + 0.1 * np.random.default_rng(7).normal(size=(N_AGENTS, 5))
    many = np.full(N_AGENTS, 10**9)
    exact = Look(truth, np.full(truth.shape, 1e-12))
    smoother = Smoother(movies, graph, many, small_prior())
    assert np.allclose(smoother.models([exact, exact]), truth, atol=1e-4)
    hopeless = Look(truth + 1e6, np.full(truth.shape, 1e18))
    assert np.allclose(smoother.models([hopeless, hopeless]), movies.start, atol=1e-3)


def test_models_return_to_the_coordinates_of_the_data(movies: PublicMovies) -> None:
    models = np.random.default_rng(8).normal(size=(3, 5))
    here = movies.principal(movies.features) @ models.T
    assert np.allclose(movies.features @ movies.original(models).T, here)


def small_prior() -> ratings_release.Prior:
    """As many smooth patterns as a graph of forty agents has."""
    return ratings_release.Prior(patterns=3)


needs_movielens = pytest.mark.skipif(
    not Path(os.environ.get("MURMURA_DATA", "/nowhere"), "ml-100k", "u.data").is_file(),
    reason="MURMURA_DATA names no folder with ml-100k",
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return table1.run(Scale(), Workbook(tmp_path_factory.mktemp("table1"), table1.NAME))


@pytest.mark.slow
@needs_movielens
def test_without_privacy_the_table_is_reached(result: Result) -> None:
    assert result.find(what="collaborative_printed").ours <= 0.950
    assert result.find(what="collaborative").ours <= 0.950
    assert result.find(what="local_sum_weak_als").ours == pytest.approx(1.2834, abs=0.03)


@pytest.mark.slow
@needs_movielens
@pytest.mark.parametrize(
    ("model", "delta", "limits"),
    [
        ("released", DELTA, {1.0: 0.9527, 0.5: 0.9545, 0.1: 0.9855}),
        ("released", 1e-6, {1.0: 0.948, 0.5: 0.953, 0.1: 0.970}),
        ("own", 1e-6, {1.0: 0.920, 0.5: 0.922, 0.1: 0.926}),
    ],
)
def test_private_models_are_as_good_as_promised(
    result: Result, model: str, delta: float, limits: dict[float, float]
) -> None:
    for epsilon, limit in limits.items():
        row = result.find(what="private", source="als", model=model, delta=delta, epsilon=epsilon)
        assert row.runs == 5
        assert row.ours <= limit


@pytest.mark.slow
@needs_movielens
def test_own_models_beat_tuned_local_ridge_whatever_the_features(result: Result) -> None:
    for source in ("als", "als_disjoint", "genres"):
        ridge = result.find(what="local_ridge", source=source)
        assert all(row.ours < ridge.ours for row in result.where(what="private", source=source, model="own"))


@pytest.mark.slow
@needs_movielens
def test_every_row_says_what_it_guarantees(result: Result) -> None:
    for row in result.where(what="private"):
        label = row.more["guarantee"]
        assert ("not differentially private" in label) == (row.variant == "published")
        assert ("leaks apart" in label) == (row.variant == "honest" and row.more["features"] == "als")
