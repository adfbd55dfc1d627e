"""The share of a gain that is kept: arithmetic by hand, and a standard error that covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.share import share_of_gain


def test_it_is_a_ratio_of_means():
    """(1.1 − .9)/(1.1 − .7), whatever the single splits give."""
    share = share_of_gain([1.0, 1.2], [0.9, 0.9], [0.8, 0.6])
    assert share.value == pytest.approx(0.5)


def test_local_models_keep_nothing_and_the_best_keep_all():
    local, best = [1.0, 1.3, 1.1], [0.8, 0.9, 0.7]
    assert share_of_gain(local, local, best) == pytest.approx((0.0, 0.0))
    assert share_of_gain(local, best, best) == pytest.approx((1.0, 0.0))


def test_worse_than_local_is_negative():
    assert share_of_gain([1.0], [1.1], [0.8]).value == pytest.approx(-0.5)


def test_one_split_has_no_standard_error():
    assert share_of_gain([1.0], [0.9], [0.8]).standard_error is None


@pytest.mark.parametrize("best", [[1.0, 1.0], [1.1, 1.2]])
def test_without_a_gain_there_is_no_share(best):
    share = share_of_gain([1.0, 1.0], [0.9, 0.9], best)
    assert math.isnan(share.value)
    assert share.standard_error is None


def test_the_standard_error_covers_the_true_share():
    """Of 400 draws with 30 splits, intervals of two standard errors miss a share of .7 in about 5 %.

    The count of misses is binomial(400, about .055); above 44 it would be a chance of less than 1e-4.
    """
    generator = np.random.default_rng(0)
    misses = 0
    for _ in range(400):
        local = 1.0 + 0.05 * generator.standard_normal(30)
        best = local - 0.2 + 0.03 * generator.standard_normal(30)
        ours = local - 0.14 + 0.03 * generator.standard_normal(30)
        value, error = share_of_gain(local.tolist(), ours.tolist(), best.tolist())
        assert error is not None
        misses += abs(value - 0.7) > 2 * error
    assert 0 < misses <= 44
