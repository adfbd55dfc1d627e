"""The posterior of a model whose size nobody knows."""

import numpy as np
import pytest

from flockwise.protocol import unknown_size
from flockwise.protocol.unknown_size import likely_model

MOMENTS = np.diag([4.0, 2.0, 1.0, 3.0]) + 0.2
ALIKE = np.zeros(4, dtype=np.intp)
NOISE = 0.04


def found_in(model, seed, groups=ALIKE):
    noise = np.sqrt(NOISE) * np.random.default_rng(seed).standard_normal(4)
    return likely_model(MOMENTS, MOMENTS @ model + noise, groups, 1.0, lambda _: NOISE)


def test_what_is_seen_clearly_is_found():
    model = np.array([0.5, -1.0, 0.8, 0.3])
    mean, covariance = likely_model(MOMENTS, MOMENTS @ model, ALIKE, 1.0, lambda _: 1e-12)
    np.testing.assert_allclose(mean, model, atol=1e-6)
    assert np.abs(covariance).max() < 1e-9


def test_of_one_size_it_is_ridge(monkeypatch):
    """The oracle: NumPy's least squares with a row for each coefficient of the prior."""
    monkeypatch.setattr(unknown_size, "SIZES", (0.25,))
    seen = np.array([1.0, -0.5, 0.2, 2.0])
    rows = np.vstack([MOMENTS / np.sqrt(NOISE), np.eye(4) / 0.5])
    expected = np.linalg.lstsq(rows, np.r_[seen / np.sqrt(NOISE), np.zeros(4)])[0]
    mean, covariance = likely_model(MOMENTS, seen, ALIKE, 1.0, lambda _: NOISE)
    np.testing.assert_allclose(mean, expected, rtol=1e-9)
    np.testing.assert_allclose(covariance, np.linalg.inv(rows.T @ rows), rtol=1e-9)


def test_a_model_of_nothing_is_seen_as_small_and_a_large_one_is_not_shortened():
    errors = np.array([found_in(np.zeros(4), seed)[0] for seed in range(200)])
    wide = np.linalg.solve(MOMENTS @ MOMENTS / NOISE + np.eye(4), MOMENTS / NOISE) * np.sqrt(NOISE)
    assert (errors**2).sum(axis=1).mean() < 0.5 * (wide**2).sum()
    model = np.array([0.9, -0.7, 1.0, 0.8])
    means = np.array([found_in(model, seed)[0] for seed in range(200)])
    np.testing.assert_allclose(means.mean(axis=0), model, atol=0.1)


@pytest.mark.parametrize("length", [0.0, 0.05, 0.3, 1.0])
def test_it_knows_how_far_off_it_may_be(length):
    """Over models of one size its variance is within a factor of two of its errors."""
    squares, variances = [], []
    for seed in range(300):
        model = length * np.random.default_rng(1000 + seed).standard_normal(4)
        mean, covariance = found_in(model, seed)
        assert np.linalg.eigvalsh(covariance).min() > 0
        squares.append(((mean - model) ** 2).sum())
        variances.append(np.trace(covariance))
    assert np.mean(squares) < 2 * np.mean(variances)
    assert length == 0 or np.mean(variances) < 2 * np.mean(squares)


def test_groups_have_sizes_of_their_own():
    """A large last coefficient does not make the others look large."""
    groups = np.array([0, 0, 0, 1])
    model = np.array([0.0, 0.0, 0.0, 1.0])
    apart, together = (
        np.mean([np.square((found_in(model, seed, each)[0] - model)[:3]).sum() for seed in range(200)])
        for each in (groups, ALIKE)
    )
    assert apart < 0.8 * together
