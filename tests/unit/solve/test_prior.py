"""Most probable models under a normal prior, against closed forms and an independent minimizer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests.support import LOSSES, named, random_problem

from flockwise.data import Population
from flockwise.errors import ObjectiveError
from flockwise.objective import Logistic, Objective, Problem, Quadratic
from flockwise.objective.losses import sample_slopes, sample_value
from flockwise.solve import (
    Prior,
    model_intervals,
    model_spreads,
    posterior_models,
    shrinkage,
    solve_local_models,
)

SEEDS = st.integers(0, 2**32 - 1)


def random_prior(seed, dimension, *, rank=None, dispersion=0.8):
    random = np.random.default_rng(seed)
    root = random.normal(size=(dimension, dimension if rank is None else rank))
    return Prior(random.normal(size=dimension), root @ root.T, dispersion)


def minimized(problem, prior, agent):
    """The model of one agent by SciPy, from the loss's own methods and the inverse covariance."""
    features, targets = problem.population.samples(agent)
    loss, precision = problem.loss, np.linalg.inv(prior.covariance)

    def value_and_gradient(model):
        scores = features @ model.reshape(loss.outputs, -1).T
        slopes = np.empty_like(scores)
        for score, target, out in zip(scores, targets, slopes, strict=True):
            sample_slopes(loss, score, target, out)
        total = sum(sample_value(loss, s, y) for s, y in zip(scores, targets, strict=True))
        away = model - prior.mean
        value = total / prior.dispersion + 0.5 * away @ precision @ away
        return value, (slopes.T @ features).ravel() / prior.dispersion + precision @ away

    return minimize(value_and_gradient, prior.mean, jac=True, method="BFGS", options={"gtol": 1e-7}).x


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_models_minimize_losses_and_prior_together(loss):
    problem = random_problem(1, loss=loss, n_agents=5)
    prior = random_prior(2, problem.dimension)
    models = posterior_models(problem, prior)
    for agent in range(problem.n_agents):
        np.testing.assert_allclose(models[agent], minimized(problem, prior, agent), atol=2e-5)


@settings(max_examples=25)
@given(SEEDS)
def test_the_quadratic_loss_has_a_closed_form(seed):
    problem = random_problem(seed, loss=Quadratic())
    prior = random_prior(seed + 1, 3)
    precision = np.linalg.inv(prior.covariance)
    for agent, model in enumerate(posterior_models(problem, prior)):
        features, targets = problem.population.samples(agent)
        system = 2 * features.T @ features / prior.dispersion + precision
        right = 2 * features.T @ targets / prior.dispersion + precision @ prior.mean
        # The inverse of a nearly singular covariance is what limits this comparison.
        np.testing.assert_allclose(system @ model, right, rtol=1e-6, atol=1e-9 * np.abs(precision).max())


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_no_spread_leaves_everybody_the_mean(loss):
    problem = random_problem(3, loss=loss)
    mean = np.arange(problem.dimension, dtype=float)
    prior = Prior(mean, np.zeros((mean.size, mean.size)))
    np.testing.assert_array_equal(posterior_models(problem, prior), np.tile(mean, (problem.n_agents, 1)))


def test_a_wide_prior_leaves_everybody_the_local_model():
    problem = random_problem(4, loss=Quadratic(), max_samples=20, l2=0.0)
    models = posterior_models(problem, Prior(np.ones(3), 1e9 * np.eye(3)))
    enough = problem.population.sample_counts >= 6
    assert enough.any()
    np.testing.assert_allclose(models[enough], solve_local_models(problem)[enough], atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_an_agent_without_samples_gets_the_mean(loss):
    problem = random_problem(5, loss=loss)
    without = problem.population.sample_counts == 0
    assert without.any()
    prior = random_prior(6, problem.dimension)
    models = posterior_models(problem, prior)
    np.testing.assert_array_equal(models[without], np.tile(prior.mean, (without.sum(), 1)))
    assert (np.abs(models[~without] - prior.mean).max(axis=1) > 0).all()


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("rank", [1, 2])
def test_a_singular_covariance_is_the_limit_of_regular_ones(loss, rank):
    problem = random_problem(7, loss=loss)
    prior = random_prior(8, problem.dimension, rank=rank)
    widened = Prior(prior.mean, prior.covariance + 1e-10 * np.eye(problem.dimension), prior.dispersion)
    singular = posterior_models(problem, prior)
    np.testing.assert_allclose(singular, posterior_models(problem, widened), atol=1e-6)
    # In its range and nowhere else.
    assert np.linalg.matrix_rank(singular - prior.mean, tol=1e-8) == rank


@settings(max_examples=25)
@given(SEEDS, st.floats(1e-6, 1e6))
def test_units_of_a_feature_do_not_matter(seed, unit):
    problem = random_problem(seed, loss=Logistic())
    prior = random_prior(seed + 1, 3)
    scales = np.array([unit, 1.0, 1 / unit])
    population = problem.population.with_samples(
        problem.population.features * scales, problem.population.targets
    )
    scaled = Prior(prior.mean / scales, prior.covariance / scales / scales[:, None], prior.dispersion)
    models = posterior_models(Problem(population, None, problem.objective), scaled) * scales
    np.testing.assert_allclose(models, posterior_models(problem, prior), rtol=1e-5, atol=1e-6)


def test_public_bounds_do_not_touch_what_stays_at_home():
    problem = random_problem(9, loss=Quadratic())
    bounded = random_problem(9, loss=Quadratic(), feature_bound=0.1, target_range=(-0.1, 0.1))
    prior = random_prior(10, 3)
    np.testing.assert_array_equal(posterior_models(problem, prior), posterior_models(bounded, prior))


def test_samples_may_be_of_single_precision():
    single = random_problem(11, loss=Logistic(), dtype=np.float32)
    double = Problem(single.population.astype(np.float64), None, single.objective)
    prior = random_prior(12, 3)
    np.testing.assert_allclose(posterior_models(single, prior), posterior_models(double, prior), atol=1e-9)


def test_separable_classes_have_a_most_probable_model():
    features = np.array([[1.0], [2.0], [-1.0]])
    population = Population.from_arrays(features, np.sign(features[:, 0]), ["a", "a", "a"])
    models = posterior_models(
        Problem(population, None, Objective(Logistic())), Prior(np.zeros(1), 1e6 * np.eye(1))
    )
    assert 5 < models[0, 0] < 100


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        ([0.0, 0.0], [[1.0]], r"got shapes \(2,\) and \(1, 1\)"),
        ([0.0], [[-1.0]], "variances from 0 on"),
        ([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]], "symmetric"),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], "positive semidefinite"),
        ([0.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], "positive semidefinite"),
        ([np.nan], [[1.0]], "mean must hold finite numbers"),
    ],
)
def test_what_is_no_prior_is_refused(mean, covariance, message):
    with pytest.raises(ObjectiveError, match=message):
        Prior(np.array(mean), np.array(covariance))


@pytest.mark.parametrize("dispersion", [0.0, -1.0, np.inf])
def test_a_dispersion_is_positive(dispersion):
    with pytest.raises(ObjectiveError, match="dispersion must be a number above 0"):
        Prior(np.zeros(1), np.eye(1), dispersion)


def test_a_prior_of_other_models_is_refused():
    with pytest.raises(ObjectiveError, match="the prior has 2 coordinates and the problem's models 3"):
        posterior_models(random_problem(13), Prior(np.zeros(2), np.eye(2)))


def test_spreads_are_those_of_the_normal_distribution_that_is_left():
    problem, prior = random_problem(14, loss=Quadratic()), random_prior(15, 3)
    spreads = model_spreads(problem, prior)
    for agent in range(problem.n_agents):
        features, _ = problem.population.samples(agent)
        left = np.linalg.inv(2 * features.T @ features / prior.dispersion + np.linalg.inv(prior.covariance))
        np.testing.assert_allclose(spreads[agent], np.sqrt(np.diag(left)), rtol=1e-8)


def test_intervals_hold_models_that_were_drawn_from_the_prior_as_often_as_they_say():
    random = np.random.default_rng(16)
    prior = Prior(np.array([1.0, -1.0]), np.array([[0.5, 0.2], [0.2, 0.3]]), 2 * 0.4**2)
    models = random.multivariate_normal(prior.mean, prior.covariance, 2000)
    features = random.normal(size=(2000, 3, 2))
    targets = np.einsum("nkj,nj->nk", features, models) + 0.4 * random.normal(size=(2000, 3))
    population = Population.packed(features.reshape(-1, 2), targets.ravel(), np.arange(0, 6001, 3))
    low, high = model_intervals(Problem(population, None, Objective(Quadratic())), prior, level=0.9)
    # 4,000 coordinates, dependent in pairs: four standard deviations of their share are below .027.
    assert ((low < models) & (models < high)).mean() == pytest.approx(0.9, abs=0.027)


def test_shrinkage_is_one_without_samples_and_falls_with_them():
    counts = np.array([0, 1, 10, 1000])
    features = np.ones((counts.sum(), 1))
    population = Population.packed(
        features, np.zeros(len(features)), np.concatenate([[0], np.cumsum(counts)])
    )
    problem = Problem(population, None, Objective(Quadratic()))
    # One coordinate: the share that is left is 1 / (1 + m·τ²/s²).
    expected = 1 / (1 + counts * 0.5 / 2.0)
    np.testing.assert_allclose(shrinkage(problem, Prior(np.zeros(1), 0.5 * np.eye(1), 4.0)), expected)
    np.testing.assert_array_equal(shrinkage(problem, Prior(np.zeros(1), np.zeros((1, 1)))), np.ones(4))


def test_a_prior_names_its_variance_components():
    prior = Prior(np.zeros(3), np.array([[4.0, 1.0, 0], [1.0, 1.0, 0], [0, 0, 0]]), 0.5)
    np.testing.assert_array_equal(prior.spreads, [2, 1, 0])
    np.testing.assert_array_equal(prior.correlations, [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 0]])
    assert prior.residual_variance == 0.25


def test_a_level_is_a_probability():
    with pytest.raises(ObjectiveError, match="level must be between 0 and 1"):
        model_intervals(random_problem(17), random_prior(18, 3), level=1.5)
