"""Accuracy and RMSE per agent, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, root_mean_squared_error

from flockwise.data import Population
from flockwise.errors import DataError, ObjectiveError
from flockwise.objective import Huber, Logistic, Quadratic, Softmax
from flockwise.results.metrics import (
    SizeBin,
    agent_metrics,
    agent_predictions,
    mean_metric,
    metrics_by_sample_count,
)

COUNTS = (0, 4, 0, 7, 1, 0)


def held_out(targets: np.ndarray, dtype: type = np.float64) -> Population:
    features = np.random.default_rng(0).standard_normal((sum(COUNTS), 3))
    offsets = np.concatenate(([0], np.cumsum(COUNTS)))
    return Population.packed(features.astype(dtype), targets.astype(dtype), offsets)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Quadratic(), Huber(1.0)])
def test_agent_metrics_equal_scikit_learns(loss, dtype):
    rng = np.random.default_rng(1)
    labels = {"Logistic": [-1.0, 1.0], "Softmax": [0.0, 1.0, 2.0]}.get(type(loss).__name__)
    targets = rng.standard_normal(12) if labels is None else rng.choice(labels, 12)
    population = held_out(targets, dtype)
    models = rng.standard_normal((6, 3 * loss.outputs)).astype(dtype)
    found = agent_metrics(loss, population, models)
    for agent, count in enumerate(COUNTS):
        features, truth = population.samples(agent)
        if count == 0:
            assert np.isnan(found[agent])
            continue
        scores = features.astype(float) @ models[agent].astype(float).reshape(loss.outputs, 3).T
        judge = accuracy_score if loss.metric == "accuracy" else root_mean_squared_error
        assert found[agent] == pytest.approx(judge(truth, loss.predict(scores)), rel=1e-12)


def test_predictions_follow_the_order_of_the_samples():
    population = held_out(np.zeros(12))
    models = np.random.default_rng(2).standard_normal((6, 3))
    owners = np.repeat(np.arange(6), COUNTS)
    expected = np.einsum("kj,kj->k", population.features, models[owners])
    assert agent_predictions(Quadratic(), population, models) == pytest.approx(expected, rel=1e-12)


def test_agents_without_a_metric_do_not_count_in_the_mean():
    assert mean_metric(np.array([1.0, np.nan, 0.5])) == 0.75
    assert np.isnan(mean_metric(np.array([np.nan])))


def test_no_samples_at_all_give_no_metrics():
    population = Population.packed(np.empty((0, 3)), np.empty(0), np.zeros(3, dtype=np.int64))
    assert np.isnan(agent_metrics(Quadratic(), population, np.zeros((2, 3)))).all()


def test_models_of_the_wrong_shape_are_refused():
    with pytest.raises(ObjectiveError, match=r"\(6, 9\), got \(6, 3\)"):
        agent_metrics(Softmax(3), held_out(np.zeros(12)), np.zeros((6, 3)))


@pytest.mark.parametrize(
    ("loss", "bad", "expected"), [(Logistic(), 0.0, "expects -1 or +1"), (Softmax(2), 2.0, "from 0 to 1")]
)
def test_held_out_targets_that_do_not_fit_the_loss_are_refused(loss, bad, expected):
    targets = np.ones(12)
    targets[[5, 11]] = bad
    with pytest.raises(DataError) as refused:
        agent_metrics(loss, held_out(targets), np.zeros((6, 3 * loss.outputs)))
    assert f"agent '3', held-out sample 2 (counted from 1): target {bad}" in str(refused.value)
    assert expected in str(refused.value)
    assert "2 of 12 targets" in str(refused.value)


def test_bins_hold_every_agent_once():
    counts = np.array([10, 11, 39, 40, 41, 99, 100, 55])
    metrics = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 0.8, np.nan])
    bins = metrics_by_sample_count(counts, metrics, bins=3)
    assert [(b.lowest, b.highest, b.n_agents) for b in bins] == [(10, 40, 4), (41, 70, 1), (71, 100, 2)]
    assert [b.mean for b in bins] == pytest.approx([0.4, 0.9, 0.9])
    assert bins[0].sd == pytest.approx(np.std([0.1, 0.3, 0.5, 0.7]))


def test_bins_may_be_given_and_empty_ones_are_left_out():
    bins = metrics_by_sample_count(np.array([3, 8]), np.array([0.5, 1.0]), bins=[1, 4, 7, 10])
    assert bins == [SizeBin(1, 3, 1, 0.5, 0.0), SizeBin(7, 9, 1, 1.0, 0.0)]


def test_agents_of_one_size_share_one_bin():
    assert metrics_by_sample_count(np.array([5, 5]), np.array([0.0, 1.0])) == [SizeBin(5, 5, 2, 0.5, 0.5)]


@pytest.mark.parametrize("bins", [0, [3], [5, 5], [5, 1]])
def test_bins_that_hold_nothing_are_refused(bins):
    with pytest.raises(ObjectiveError, match="bins must be"):
        metrics_by_sample_count(np.array([5]), np.array([1.0]), bins=bins)
