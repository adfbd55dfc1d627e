"""What noisy sums teach about variances: by plain sampling from the laws that are assumed."""

from __future__ import annotations

import numpy as np
import pytest

from flockwise.protocol.prior import RESIDUAL, RESIDUAL_FACTOR, likely_residual


def test_a_residual_variance_is_its_mean_given_a_noisy_estimate():
    """By 400,000 draws of a variance and of noise: the mean of those whose estimate is near."""
    random = np.random.default_rng(0)
    sizes = RESIDUAL * np.exp(RESIDUAL_FACTOR * random.normal(size=400_000))
    estimates = sizes + 0.05 * random.normal(size=len(sizes))
    for estimate in (-0.03, 0.05, 0.2):
        near = sizes[np.abs(estimates - estimate) < 0.005]
        assert likely_residual(estimate, 0.05) == pytest.approx(near.mean(), rel=0.05)


def test_an_exact_estimate_is_taken_as_it_is():
    assert likely_residual(0.3, 1e-3) == pytest.approx(0.3, rel=0.01)
