"""Budgets refuse what is no budget."""

from __future__ import annotations

import math

import pytest

from flockwise.errors import PrivacyError
from flockwise.privacy.budget import Budget, default_delta


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_epsilon_is_positive_and_finite(epsilon):
    with pytest.raises(PrivacyError, match="epsilon must be positive"):
        Budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_delta_is_a_probability_below_one(delta):
    with pytest.raises(PrivacyError, match="delta must be from 0 to below 1"):
        Budget(1.0, delta)


def test_the_default_delta_is_small_and_falls_with_the_cap():
    assert default_delta(10) == 1e-5
    assert default_delta(1000) == 1e-6
    with pytest.raises(PrivacyError, match="max_samples"):
        default_delta(0)
