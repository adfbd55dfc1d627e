"""Baselines on grouped data, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.grouped import DATA_SETS
from experiments.grouped_baselines import (
    best_local_models,
    errors_of,
    pooled_models,
    ridge_models,
    tuned_local_models,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, root_mean_squared_error

from flockwise.solve import choose_l2


@pytest.fixture(scope="module")
def exam():
    return DATA_SETS["Exam"].split(0)


@pytest.fixture(scope="module")
def contraception():
    return DATA_SETS["Contraception"].split(0)


def owners(population):
    return np.repeat(np.arange(population.n_agents), population.sample_counts)


def test_local_models_are_scikit_learns_ridge(exam):
    train, models = exam.problem.population, ridge_models(exam.problem, 4.0)
    for agent in range(0, train.n_agents, 7):
        samples = train.samples(agent)
        ridge = Ridge(alpha=4.0, fit_intercept=False).fit(samples.features, samples.targets)
        np.testing.assert_allclose(models[agent], ridge.coef_, atol=1e-6)


def test_tuned_local_models_use_the_weight_that_was_chosen_on_training_rows(exam):
    counts = exam.problem.population.sample_counts
    weights = choose_l2(exam.problem).l2_penalties * np.maximum(counts, 1)
    assert np.ptp(weights) < 1e-9
    np.testing.assert_allclose(
        tuned_local_models(exam.problem), ridge_models(exam.problem, weights[0]), atol=1e-6
    )


@pytest.mark.parametrize("name", ["Exam", "Contraception"])
def test_the_best_in_hindsight_is_at_least_as_good_as_the_tuned_one(name):
    split = DATA_SETS[name].split(1)
    best, tuned = best_local_models(split), tuned_local_models(split.problem)
    assert errors_of(split, best).rows <= errors_of(split, tuned).rows + 1e-9


def test_one_model_for_all_is_scikit_learns_ridge_on_all_rows(exam):
    train, models = exam.problem.population, pooled_models(exam.problem)
    assert np.ptp(models, axis=0).max() == 0
    weights = [4.0**power for power in range(-7, 6)]
    near = [
        np.abs(Ridge(alpha=weight, fit_intercept=False).fit(train.features, train.targets).coef_ - models[0])
        for weight in weights
    ]
    assert min(gap.max() for gap in near) < 1e-6


def test_one_logistic_model_is_scikit_learns(contraception):
    train, models = contraception.problem.population, pooled_models(contraception.problem)
    # With this many rows a penalty matters little: C is 1/(2·weight).
    near = []
    for power in range(-7, 6):
        fitted = LogisticRegression(C=1 / (2 * 4.0**power), fit_intercept=False, tol=1e-8, max_iter=1000)
        near.append(np.abs(fitted.fit(train.features, train.targets).coef_[0] - models[0]).max())
    assert min(near) < 1e-4


def test_errors_are_scikit_learns(exam, contraception):
    models = ridge_models(exam.problem, 1.0)
    test = exam.test
    predicted = np.einsum("ij,ij->i", test.features, models[owners(test)])
    errors = errors_of(exam, models)
    assert errors.rows == pytest.approx(root_mean_squared_error(test.targets, predicted))
    by_agent = [
        root_mean_squared_error(test.targets[owners(test) == agent], predicted[owners(test) == agent])
        for agent in np.unique(owners(test))
    ]
    assert errors.agents == pytest.approx(np.mean(by_agent))

    test, models = contraception.test, ridge_models(contraception.problem, 1.0)
    chances = 1 / (1 + np.exp(-np.einsum("ij,ij->i", test.features, models[owners(test)])))
    assert errors_of(contraception, models).rows == pytest.approx(log_loss(test.targets, chances))
