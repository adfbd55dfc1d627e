"""Local differential privacy: the perturbation is what it says, and costs what the paper says."""

import math

import numpy as np
import pytest
from tests.support import random_problem

from flockwise import Local, Logistic, Problem, angular_graph, linear_classification, simulate
from flockwise.errors import PrivacyError
from flockwise.method import LocalDP
from flockwise.objective import Huber, Objective, Softmax
from flockwise.privacy.accounting import calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Gaussian
from flockwise.solve import solve_local_models


def synthetic(seed=0, dimension=5, samples=2000, feature_bound=5.0):
    task = linear_classification(
        4, dimension, seed=seed, min_samples=samples, max_samples=samples, test_samples=2000, label_noise=0.0
    )
    graph = angular_graph(task.targets, threshold=0.0, source="targets")
    return Problem(task.train, graph, Objective(Logistic(), feature_bound=feature_bound)), task.test


def test_normal_noise_on_features_has_the_calibrated_size():
    """40 000 draws: the sample deviation is within 3 % (8 standard errors)."""
    bound = math.sqrt(5)
    problem, _ = synthetic(feature_bound=bound)
    noisy = LocalDP(Budget(2.0, 1e-5)).perturbed(problem, 0)
    (event,) = calibrate(Budget(1.0, 1e-5), Gaussian(2 * bound, 1.0), "gdp", 1)
    noise = noisy.population.features - problem.population.features
    assert noise.std() == pytest.approx(event.scale, rel=0.03)


def test_pure_budgets_get_laplace_noise():
    """40 000 draws of mean |noise| = scale: within 3 % (6 standard errors), and heavier tails than normal."""
    problem, _ = synthetic()
    noisy = LocalDP(Budget(2.0)).perturbed(problem, 0)
    noise = noisy.population.features - problem.population.features
    assert np.abs(noise).mean() == pytest.approx(2 * 5.0 / 1.0, rel=0.03)
    assert (noise**4).mean() / (noise**2).mean() ** 2 > 5


def test_labels_answer_at_random():
    """8000 labels: the share of flips is within 5 standard errors of 1/(e + 1)."""
    problem, _ = synthetic()
    noisy = LocalDP(Budget(2.0)).perturbed(problem, 0)
    flipped = (noisy.population.targets != problem.population.targets).mean()
    expected = 1 / (math.e + 1)
    assert abs(flipped - expected) < 5 * math.sqrt(expected * (1 - expected) / 8000)


def test_several_classes_answer_at_random():
    problem = random_problem(0, loss=Softmax(3), n_agents=400, max_samples=20, feature_bound=1.0)
    noisy = LocalDP(Budget(2.0)).perturbed(problem, 0)
    before, after = problem.population.targets.astype(int), noisy.population.targets.astype(int)
    counts = np.array([np.bincount(after[before == k], minlength=3) / (before == k).sum() for k in range(3)])
    expected = np.full((3, 3), 1 / (math.e + 2))
    np.fill_diagonal(expected, math.e / (math.e + 2))
    # About 1300 labels a class: five standard errors.
    np.testing.assert_allclose(counts, expected, atol=5 * 0.014)


def test_a_large_budget_changes_little_and_a_small_one_leaves_chance():
    """At p = 20 a random separator is right on .5 ± .07 of the points; .65 is four errors of four agents."""
    problem, test = synthetic(dimension=20, samples=100, feature_bound=20.0)

    def accuracy(epsilon):
        return simulate(problem, LocalDP(Budget(epsilon)), test=test).final.metric

    alone = simulate(problem, Local(), test=test).final.metric
    assert accuracy(1e6) == pytest.approx(alone, abs=0.01)
    assert accuracy(0.15) < 0.65


def test_one_seed_gives_one_perturbation():
    problem, _ = synthetic(samples=20)
    first, second, other = (
        LocalDP(Budget(1.0)).perturbed(problem, seed).population.features for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).all()


def test_replaced_points_change_themselves_alone():
    problem, _ = synthetic(samples=20)
    features = problem.population.features.copy()
    features[7] = -features[7]
    changed = LocalDP(Budget(1.0)).perturbed(with_features(problem, features), 0)
    before = LocalDP(Budget(1.0)).perturbed(problem, 0)
    differs = (changed.population.features != before.population.features).any(axis=1)
    assert np.flatnonzero(differs).tolist() == [7]


def with_features(problem, features):
    population = type(problem.population).packed(
        features, problem.population.targets, problem.population.offsets
    )
    return Problem(population, problem.graph, problem.objective)


def test_regression_needs_a_bound_on_its_targets():
    problem = random_problem(0, loss=Huber(), feature_bound=50.0)
    with pytest.raises(PrivacyError, match=r"objective\.target_range: missing"):
        simulate(problem, LocalDP(Budget(1.0)))
    noisy = LocalDP(Budget(1e6)).perturbed(problem.with_objective(target_range=(-0.5, 0.5)), 0)
    assert np.abs(noisy.population.targets).max() < 0.6


def test_samples_need_a_bound():
    with pytest.raises(PrivacyError, match=r"objective\.feature_bound: missing"):
        simulate(random_problem(0), LocalDP(Budget(1.0)))


def test_longer_samples_are_scaled_before_they_get_noise():
    """A large budget adds hardly any noise: what is left are samples within the bound."""
    problem = random_problem(0, feature_bound=0.3)
    assert problem.exchanged is not problem.population
    noisy = LocalDP(Budget(1e9, 1e-5)).perturbed(problem, 0).population.features
    np.testing.assert_allclose(noisy, problem.exchanged.features, atol=1e-3)


def test_own_models_are_local_ones_on_the_samples_as_they_are():
    problem = random_problem(0, feature_bound=0.3)
    run = simulate(problem, LocalDP(Budget(1.0)))
    assert run.own_models is not None
    np.testing.assert_array_equal(np.asarray(run.own_models), solve_local_models(problem))
    assert (np.asarray(run.models) != np.asarray(run.own_models)).any()
