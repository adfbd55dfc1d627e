"""Samples beyond a public bound on their length: what is true of a row stays true of it scaled down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support import PUBLIC

from flockwise import (
    Huber,
    Logistic,
    Objective,
    OutputPerturbation,
    Population,
    Problem,
    Quadratic,
    SimilarityGraph,
    Softmax,
)
from flockwise.objective.bounds import bounded_targets
from flockwise.objective.local import LocalUpdate

BOUND = 1.5
TRUTH = np.array([1.0, -2.0, 0.5])
RESIDUALS = pytest.mark.parametrize("loss", [Quadratic(), Huber(0.5)], ids=["quadratic", "huber"])


def features(count=60, seed=0):
    """Half of them are too long."""
    return np.random.default_rng(seed).normal(size=(count, 3))


def exact_problem(loss: Any, dtype: Any = np.float64, **settings):
    """Targets are a linear function of the features, the intercept included."""
    rows = features()
    targets = rows @ TRUTH + 0.7
    people = Population.packed(rows.astype(dtype), targets.astype(dtype), np.array([0, 10, 30, 60]))
    graph = SimilarityGraph.from_edges(3, [[0, 1], [1, 2]], source=PUBLIC)
    objective = Objective(loss, **({"feature_bound": BOUND, "max_samples": 30} | settings))
    return Problem(people.with_intercept(), graph, objective)


@RESIDUALS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_linear_relation_holds_for_what_agents_exchange(loss, dtype):
    problem = exact_problem(loss, dtype)
    rows, targets = problem.exchanged.features, problem.exchanged.targets
    assert np.linalg.norm(rows, axis=1).max() <= BOUND * (1 + 1e-6)
    np.testing.assert_allclose(rows @ [*TRUTH, 0.7], targets, atol=1e-5 if dtype == np.float32 else 1e-12)
    assert (np.abs(targets) <= np.abs(problem.population.targets)).all()


@RESIDUALS
def test_real_agents_scale_targets_as_simulated_ones_do(loss):
    problem = exact_problem(loss, target_range=(-2.0, 1.0))
    for agent in range(3):
        local = LocalUpdate.of(problem.objective, problem.population.samples(agent)).objective
        np.testing.assert_array_equal(local.targets, problem.exchanged.samples(agent).targets)
        np.testing.assert_allclose(local.features, problem.exchanged.samples(agent).features, rtol=1e-12)


@pytest.mark.parametrize("statistic", [OutputPerturbation(), OutputPerturbation(width=3.0)])
def test_a_released_model_has_coefficients_of_the_true_size(statistic):
    """Before noise, with next to no penalty."""
    loss: Any = Huber(3.0) if statistic.width is None else Quadratic()
    models = statistic.models(exact_problem(loss, l2=1e-6))
    np.testing.assert_allclose(models, np.tile([*TRUTH, 0.7], (3, 1)), atol=1e-2)


@pytest.mark.parametrize("loss", [Quadratic(), Huber(0.5)])
def test_samples_within_the_bound_stay_as_they_are(loss):
    short = exact_problem(loss, feature_bound=10.0)
    assert short.exchanged is short.population
    unit = features() / np.linalg.norm(features(), axis=1, keepdims=True)
    targets = np.ones(60)
    assert bounded_targets(unit, targets, Objective(loss, feature_bound=1.0)) is targets


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)])
def test_labels_are_not_scaled(loss):
    labels = np.ones(60)
    assert bounded_targets(features(), labels, Objective(loss, feature_bound=BOUND)) is labels


def test_a_target_depends_on_its_own_row_alone():
    rows, targets = features(), features()[:, 0]
    objective = Objective(Quadratic(), feature_bound=BOUND)
    whole = bounded_targets(rows, targets, objective)
    for k in range(60):
        one = bounded_targets(rows[k : k + 1], targets[k : k + 1], objective)
        np.testing.assert_array_equal(one, whole[k : k + 1])
