"""Losses with weights in their targets: the plain loss times the weight."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from flockwise import Logistic, Softmax
from flockwise.objective.weighted import WeightedLogistic, WeightedSoftmax

RANDOM = np.random.default_rng(0)
CASES = [(float(w), RANDOM.normal(size=3)) for w in RANDOM.uniform(0.01, 5.0, 6)]


@pytest.mark.parametrize(("weight", "scores"), CASES)
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_a_weighted_logistic_loss_is_the_logistic_loss_times_the_weight(weight, scores, label):
    loss = WeightedLogistic(5.0)
    [target] = loss.targets(np.array([label]), np.array([weight]))
    assert loss.value(scores[0], target) == pytest.approx(weight * Logistic().value(scores[0], label))
    assert loss.slope(scores[0], target) == pytest.approx(weight * Logistic().slope(scores[0], label))
    assert loss.valid_targets(np.array([target, 0.0, 5.1])).tolist() == [True, False, False]
    assert abs(loss.slope(-50.0 * label, target)) <= loss.slope_bound("l2")


@pytest.mark.parametrize(("weight", "scores"), CASES)
@pytest.mark.parametrize("label", [0, 1, 2])
def test_a_weighted_softmax_is_the_softmax_times_the_weight(weight, scores, label):
    loss, plain = WeightedSoftmax(3, 5.0), Softmax(3)
    [target] = loss.targets(np.array([label]), np.array([weight]))
    assert loss.value_of_scores(scores, target) == pytest.approx(
        weight * plain.value_of_scores(scores, label), rel=1e-12
    )

    def slopes(at):
        out = np.empty(3)
        loss.slopes(at, target, out)
        return out

    assert check_grad(lambda at: loss.value_of_scores(at, target), slopes, scores) < 1e-5
    assert loss.valid_targets(np.array([target, 3.2, 1.0])).tolist() == [True, False, False]
