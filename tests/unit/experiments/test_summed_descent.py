"""Private gradient descent by sums: its limit, its clipping, and the privacy of its noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.grouped import DATA_SETS
from experiments.summed_descent import ABSENT, COLLUDING, STEPS, common_models, finish_around, noise_deviation
from sklearn.linear_model import LogisticRegression, Ridge

from flockwise.objective import Problem
from flockwise.privacy.accounting.gaussian import epsilon_of
from flockwise.privacy.budget import Budget


@pytest.fixture(scope="module")
def exam():
    return DATA_SETS["Exam"].split(0).problem


def test_without_noise_it_descends_to_least_squares(exam):
    model = common_models(exam, None, rate=2.0, clip=100.0, seed=0, steps=2000)
    bounded = exam.exchanged
    wanted = np.linalg.lstsq(bounded.features, bounded.targets, rcond=None)[0]
    np.testing.assert_allclose(model, wanted, atol=1e-8)


def test_without_noise_it_descends_to_the_logistic_model():
    problem = DATA_SETS["Contraception"].split(0).problem
    model = common_models(problem, None, rate=4.0, clip=100.0, seed=0, steps=20_000)
    fitted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=10_000)
    fitted.fit(problem.exchanged.features, problem.exchanged.targets)
    np.testing.assert_allclose(model, fitted.coef_[0], atol=1e-4)


@pytest.mark.parametrize("clip", [0.25, 1.0])
def test_a_sample_moves_a_sum_by_twice_the_clip_at_most(exam, clip):
    """The worst replacement that there is: a row of full length whose target turns round."""
    population, bound = exam.population, math.sqrt(exam.dimension)
    features = population.features.copy()
    features[0] = np.eye(exam.dimension)[0] * bound
    models = []
    for target in (-5.0, 5.0):
        targets = population.targets.copy()
        targets[0] = target
        problem = Problem(population.with_samples(features, targets), None, exam.objective)
        models.append(common_models(problem, None, rate=1.0, clip=clip, seed=0, steps=1))
    moved = np.linalg.norm(models[1] - models[0]) * bound * population.n_samples
    assert moved == pytest.approx(2 * clip, rel=1e-9)


def test_the_noise_of_the_honest_alone_is_the_budget():
    """Composed over all steps, with a third of the agents colluding and a tenth absent."""
    budget, clip = Budget(0.7, 1e-5), 0.3
    honest = noise_deviation(budget, clip) * math.sqrt(1 - COLLUDING - ABSENT)
    mu = math.sqrt(STEPS) * 2 * clip / honest
    assert epsilon_of(mu, budget.delta) == pytest.approx(budget.epsilon, rel=1e-9)


def test_noise_is_what_is_said(exam):
    """After one step from 0 the model is that without noise plus rate/N of it; 2000 draws, 3 coordinates.

    A standard deviation of 6000 normal numbers is within 4 % with probability above 1 − 1e-4.
    """
    budget = Budget(1.0, 1e-5)
    plain = common_models(exam, None, rate=1.0, clip=0.5, seed=0, steps=1)
    noisy = [common_models(exam, budget, rate=1.0, clip=0.5, seed=seed, steps=1) for seed in range(2000)]
    scale = math.sqrt(exam.dimension) * exam.population.n_samples
    found = float(np.sqrt(np.mean((np.array(noisy) - plain) ** 2))) * scale
    assert found == pytest.approx(noise_deviation(budget, 0.5, steps=1), rel=0.04)


def test_the_finish_is_ridge_around_the_common_model(exam):
    anchor = np.array([0.5, -0.1, 0.2])
    models = finish_around(exam, anchor, weight=8.0)
    samples = exam.population.samples(5)
    ridge = Ridge(alpha=8.0, fit_intercept=False)
    ridge.fit(samples.features, samples.targets - samples.features @ anchor)
    np.testing.assert_allclose(models[5], anchor + ridge.coef_, atol=1e-5)


def test_an_agent_without_samples_takes_the_common_model():
    problem = DATA_SETS["ScotsSec"].split(0).problem
    nobody = problem.population.sample_counts == 0
    assert nobody.any()
    anchor = np.array([0.5, -0.1, 0.2, 0.1])
    models = finish_around(problem, anchor, 8.0)
    np.testing.assert_allclose(models[nobody], np.tile(anchor, (nobody.sum(), 1)))
