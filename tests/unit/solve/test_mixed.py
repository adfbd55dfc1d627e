"""Mixed models against statsmodels, dense marginal likelihoods and limits that are known."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize
from tests.support import LOSSES, named, random_problem

from flockwise import LearnedPrior, simulate
from flockwise.data import Population
from flockwise.errors import ObjectiveError
from flockwise.objective import Huber, Logistic, Objective, Problem, Quadratic, Softmax
from flockwise.solve import fit_mixed_model, posterior_models
from flockwise.solve.evidence import Quadratics, Shape, Widths
from flockwise.solve.whitening import whiten

QUADRATIC = Quadratic()
SEEDS = st.integers(0, 2**32 - 1)


def grouped(features, targets, agents, loss=QUADRATIC, *, intercept=False):
    population = Population.from_arrays(features, targets, agents)
    return Problem(population.with_intercept() if intercept else population, None, Objective(loss))


def drawn(seed, *, n_agents=60, samples=12, root=None, residual=0.5, loss=QUADRATIC, mean=1.0):
    """Agents of a mixed model with two features and an intercept, and their true models."""
    random = np.random.default_rng(seed)
    root = np.diag([0.6, 0.3, 0.8]) if root is None else root
    models = mean * np.array([1.0, -2.0, 3.0]) + random.normal(size=(n_agents, root.shape[1])) @ root.T
    agents = np.repeat(np.arange(n_agents), samples)
    features = random.normal(size=(len(agents), 2))
    scores = np.einsum("kj,kj->k", np.column_stack([features, np.ones(len(agents))]), models[agents])
    if loss.metric == "rmse":
        targets = scores + residual * random.normal(size=len(agents))
    else:
        targets = np.where(random.random(len(agents)) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
    return grouped(features, targets, agents, loss, intercept=True), models


def dense_value(problem, covariance, widths):
    """−log of the density of all targets together, up to a constant, with φ at its best."""
    population = problem.population
    features, n_agents = population.features, population.n_agents
    owners = np.repeat(np.arange(n_agents), population.sample_counts)
    same = owners[:, None] == owners
    gram = features @ covariance @ features.T
    spread = 0.5 * np.eye(len(features)) + same * gram + features @ np.diag(widths) @ features.T
    energy = 0.5 * population.targets @ np.linalg.solve(spread, population.targets)
    return 0.5 * len(features) * np.log(energy) + 0.5 * np.linalg.slogdet(2 * spread)[1]


def quadratics_of(problem, *, is_free=True):
    samples = [problem.population.samples(agent) for agent in range(problem.n_agents)]
    return Quadratics(
        np.array([2 * own.T @ own for own, _ in samples]),
        np.array([2 * own.T @ targets for own, targets in samples]),
        float(problem.population.targets @ problem.population.targets),
        problem.population.n_samples if is_free else 0,
    )


@settings(max_examples=15)
@given(SEEDS, st.integers(0, 3))
def test_the_evidence_is_that_of_the_joint_normal_distribution_of_all_targets(seed, rank):
    problem = random_problem(seed, loss=Quadratic())
    if not problem.population.n_samples:
        return
    shape, random = Shape(3, rank), np.random.default_rng(seed)
    root, widths = shape.root(random.normal(size=shape.size)), np.exp(random.normal(size=3))
    found = quadratics_of(problem).explained(root, widths).value
    assert found == pytest.approx(dense_value(problem, root @ root.T, widths), rel=1e-9, abs=1e-9)


@settings(max_examples=15)
@given(SEEDS, st.integers(0, 3), st.booleans())
def test_slopes_are_those_of_the_evidence(seed, rank, is_free):
    problem = random_problem(seed, loss=Quadratic())
    if not problem.population.n_samples:
        return
    quadratics = quadratics_of(problem, is_free=is_free)
    shape, widths = Shape(3, rank), Widths(np.array([0, 0, 1]))
    numbers = np.random.default_rng(seed).normal(size=shape.size + 2)

    def explained(numbers):
        return quadratics.explained(shape.root(numbers[:-2]), widths.widths(numbers[-2:]))

    found = explained(numbers)
    slopes = np.append(
        shape.slopes(numbers[:-2], found.covariance_slope), widths.slopes(numbers[-2:], found.width_slopes)
    )
    by_differences: Any = approx_fprime(numbers, lambda at: explained(at).value, 1e-6)
    np.testing.assert_allclose(slopes, by_differences, rtol=1e-3, atol=1e-3)


def test_mean_covariance_and_residuals_are_those_of_statsmodels():
    from statsmodels.regression.mixed_linear_model import MixedLM

    root = np.array([[0.6, 0, 0], [0.2, 0.3, 0], [-0.3, 0.1, 0.8]])
    problem, _ = drawn(1, root=root, n_agents=150)
    population = problem.population
    owners = np.repeat(np.arange(population.n_agents), population.sample_counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = MixedLM(population.targets, population.features, owners, population.features).fit()
    ours = fit_mixed_model(problem)
    assert ours.prior.structure == "full"
    # Theirs has a flat prior on the mean, ours a normal one whose width is learned.
    np.testing.assert_allclose(ours.prior.mean, theirs.fe_params, atol=0.02 * theirs.bse_fe.max())
    np.testing.assert_allclose(ours.prior.covariance, theirs.cov_re, atol=2e-3)
    assert ours.prior.dispersion / 2 == pytest.approx(theirs.scale, rel=1e-3)
    effects = np.array([theirs.random_effects[agent] for agent in range(problem.n_agents)])
    np.testing.assert_allclose(ours.models, theirs.fe_params + effects, atol=5e-3)


def test_the_prior_has_the_greatest_evidence_that_another_minimizer_finds():
    problem, _ = drawn(2, n_agents=20, samples=6)
    ours = fit_mixed_model(problem)
    # One width for both features, each in units of its own.
    units = (problem.population.features**2).mean(axis=0)

    def value(numbers):
        root = np.zeros((3, 3))
        root[np.tril_indices(3)] = numbers[:6]
        return dense_value(problem, root @ root.T, np.exp(numbers[[6, 6, 7]]) / units)

    start = np.concatenate([np.eye(3)[np.tril_indices(3)], np.zeros(2)])
    theirs = minimize(value, start, method="BFGS", options={"gtol": 1e-6}).fun
    assert ours.criteria["full"] == pytest.approx(2 * theirs + 6 * np.log(20), abs=1e-4)


def test_models_are_the_most_probable_ones_under_the_prior():
    problem, _ = drawn(3)
    found = fit_mixed_model(problem)
    np.testing.assert_array_equal(found.models, posterior_models(problem, found.prior))


@pytest.mark.parametrize(
    ("root", "structure"),
    [
        (0.5 * np.eye(3), "isotropic"),
        (np.array([[0.0], [0.0], [1.0]]), "low rank"),
        (np.array([[0.9, 0, 0], [0.5, 0.3, 0], [-0.5, 0.1, 0.1]]), "full"),
    ],
    ids=["isotropic", "intercepts only", "full"],
)
def test_the_structure_of_the_covariance_is_found(root, structure):
    problem, _ = drawn(4, root=root, n_agents=300)
    assert fit_mixed_model(problem).prior.structure == structure


def test_agents_that_are_all_alike_get_one_model():
    problem, _ = drawn(5, root=np.zeros((3, 1)))
    found = fit_mixed_model(problem)
    assert np.ptp(found.models, axis=0).max() < 0.1


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=named)
def test_other_losses_find_what_the_agents_were_drawn_from(loss):
    problem, models = drawn(6, loss=loss, n_agents=200, samples=25, mean=0.3)
    found = fit_mixed_model(problem)
    # The normal approximation is known to find somewhat small effects of binary data.
    np.testing.assert_allclose(found.prior.mean, models.mean(axis=0), atol=0.35)
    np.testing.assert_allclose(np.sqrt(np.diag(found.prior.covariance)), [0.6, 0.3, 0.8], atol=0.15)


@settings(max_examples=4)
@given(SEEDS, st.floats(1e-4, 1e4))
def test_units_of_a_feature_do_not_matter_for_the_models(seed, unit):
    problem, _ = drawn(seed, n_agents=15, samples=6)
    scales = np.array([unit, 1 / unit, 1.0])
    population = problem.population
    scaled = Problem(
        population.with_samples(population.features * scales, population.targets), None, problem.objective
    )
    expected = fit_mixed_model(problem).models
    np.testing.assert_allclose(fit_mixed_model(scaled).models * scales, expected, atol=1e-3)


def _hard():
    random = np.random.default_rng(7)
    agents = np.repeat(np.arange(20), 6)
    features = random.normal(size=(120, 3))
    collinear = np.column_stack([features, features[:, 0], np.zeros(120), 1e6 * features[:, 1]])
    noise = random.normal(size=120)
    signs = np.where(noise > 0, 1.0, -1.0)
    one_hot = np.eye(8)[random.integers(0, 8, 120)]
    yield "collinear features", collinear, features[:, 0] + noise, agents, Quadratic()
    yield "collinear features of classes", collinear, signs, agents, Logistic()
    yield "separable classes", features, np.sign(features[:, 0]), agents, Logistic()
    yield "separable classes, three", features, 1.0 + np.sign(features[:, 0]), agents, Softmax(3)
    yield "one class", features, np.ones(120), agents, Logistic()
    yield "one class each", features, np.where(agents % 2, 1.0, -1.0), agents, Logistic()
    yield "one-hot columns", one_hot, noise, agents, Quadratic()
    yield "one-hot columns of classes", one_hot, signs, agents, Logistic()
    yield "constant targets", features, np.full(120, 7.0), agents, Quadratic()
    yield "targets of zero", features, np.zeros(120), agents, Quadratic()
    yield "targets of zero, robust", features, np.zeros(120), agents, Huber(1.0)
    yield "targets without noise", features, 3 * features[:, 1], agents, Quadratic()
    yield "large targets", features, 1e6 + noise, agents, Quadratic()
    yield "small targets", features, 1e-9 * noise, agents, Quadratic()
    yield "one sample each", features[:20], noise[:20], np.arange(20), Quadratic()
    yield "one sample each of a class", features[:20], signs[:20], np.arange(20), Logistic()
    yield "one agent", features[:30], noise[:30], np.zeros(30, int), Quadratic()
    yield "two agents", features[:10], noise[:10], np.repeat([0, 1], 5), Quadratic()
    yield "one sample", features[:1], noise[:1], np.zeros(1, int), Quadratic()
    wide = random.normal(size=(120, 25))
    yield "more features than samples of an agent", wide, wide[:, 0] + 0.1 * noise, agents, Quadratic()
    yield "more features than samples of an agent, classes", wide, signs, agents, Logistic()


HARD = list(_hard())


@pytest.mark.parametrize("intercept", [False, True], ids=["", "with an intercept"])
@pytest.mark.parametrize("case", HARD, ids=[case[0] for case in HARD])
def test_hard_data_have_finite_models_that_are_no_worse_than_none(case, intercept):
    _, features, targets, agents, loss = case
    problem = grouped(features, targets, agents, loss, intercept=intercept)
    found = fit_mixed_model(problem)
    assert np.isfinite(found.models).all()
    blocks = found.models.reshape(problem.n_agents, loss.outputs, -1)
    scores = np.einsum("kf,kof->ko", problem.population.features, blocks[agents])
    if loss.metric == "rmse":
        errors, without = (loss.predict(scores) - targets) ** 2, targets**2
        assert errors.mean() <= 1.01 * without.mean()
    else:
        assert np.abs(scores).max() < 100


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_every_loss_has_a_mixed_model_even_with_agents_that_have_no_samples(loss):
    problem = random_problem(8, loss=loss)
    without = problem.population.sample_counts == 0
    assert without.any()
    found = fit_mixed_model(problem)
    assert np.isfinite(found.models).all()
    np.testing.assert_array_equal(found.models[without], np.tile(found.prior.mean, (without.sum(), 1)))


def test_without_any_sample_there_is_nothing_to_learn():
    population = Population.packed(np.empty((0, 2)), np.empty(0), np.zeros(3, dtype=int))
    with pytest.raises(ObjectiveError, match="no agent has a sample"):
        fit_mixed_model(Problem(population, None, Objective(Quadratic())))


def test_a_learned_prior_without_a_budget_is_a_mixed_model():
    problem, _ = drawn(9, n_agents=20)
    run = simulate(problem, LearnedPrior())
    np.testing.assert_array_equal(run.models, fit_mixed_model(problem).models)
    assert run.guarantee is None
    assert run.own_models is None
    assert run.prior is not None
    assert run.prior.structure in ("isotropic", "low rank", "full")


def test_systems_are_whitened_as_numpy_solves_them():
    random = np.random.default_rng(0)
    roots, sides = random.normal(size=(5, 4, 6)), random.normal(size=(5, 4, 3))
    matrices = roots @ roots.transpose(0, 2, 1)
    systems = np.concatenate([matrices, sides], axis=2)
    height = whiten(systems)
    whitened = systems[..., 4:]
    products = sides.transpose(0, 2, 1) @ np.linalg.solve(matrices, sides)
    np.testing.assert_allclose(whitened.transpose(0, 2, 1) @ whitened, products, rtol=1e-10)
    assert height == pytest.approx(0.5 * np.linalg.slogdet(matrices)[1].sum())
    assert np.isnan(whiten(np.array([[[1.0, 2.0, 1.0], [2.0, 1.0, 1.0]]])))
