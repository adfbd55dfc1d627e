"""The logistic loss with its slope capped at ½."""

import math

import numpy as np
import pytest
from scipy.optimize import check_grad

from flockwise.objective import LOSSES, CappedLogistic, Logistic

SCORES = np.linspace(-6, 6, 41)


@pytest.mark.parametrize("target", [-1.0, 1.0])
def test_the_slope_is_the_derivative_of_the_value(target):
    loss = CappedLogistic()
    for score in SCORES:
        error = check_grad(lambda s: loss.value(s[0], target), lambda s: [loss.slope(s[0], target)], [score])
        assert error < 1e-6


def test_it_is_convex_and_its_slope_at_most_one_half():
    loss = CappedLogistic()
    slopes = np.array([loss.slope(score, 1.0) for score in SCORES])
    assert (np.diff(slopes) >= 0).all()
    assert np.abs(slopes).max() == loss.slope_bound("l2") == 0.5
    assert (np.diff(slopes) / np.diff(SCORES) <= loss.curvature + 1e-12).all()


def test_it_is_the_logistic_loss_on_the_right_side_of_the_separator():
    for score in SCORES[SCORES >= 0]:
        assert CappedLogistic().value(score, 1.0) == pytest.approx(Logistic().value(score, 1.0))
    assert CappedLogistic().value(-1000.0, 1.0) == pytest.approx(math.log(2) + 500)


def test_it_is_registered_under_its_name():
    assert LOSSES["capped_logistic"] is CappedLogistic
