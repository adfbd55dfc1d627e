"""Simulated noise: the right distributions, addressed by seed, agent and number of release."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from flockwise.randomness import noise
from flockwise.randomness.noise import GAUSSIAN, KNORM, LAPLACE, standard_noise


@njit
def minus_logs(numbers):
    return [noise._minus_log(number) for number in numbers]


@njit
def sines_and_cosines(turns):
    return [noise._sine_and_cosine(turn) for turn in turns]


def test_logarithms_are_exact_to_rounding():
    numbers = np.concatenate([np.random.default_rng(0).random(2000), [2.0**-33, 0.5, 1 - 2.0**-33, 2**-0.5]])
    expected = -np.log(numbers)
    assert np.abs(np.array(minus_logs(numbers)) - expected).max() <= 4e-16 * max(1.0, expected.max())


def test_sines_and_cosines_are_exact_to_rounding():
    turns = np.concatenate([np.random.default_rng(0).random(2000), np.arange(8) / 8, [1 - 2.0**-33]])
    found = np.array(sines_and_cosines(turns))
    assert np.abs(found[:, 0] - np.sin(2 * math.pi * turns)).max() < 1e-15
    assert np.abs(found[:, 1] - np.cos(2 * math.pi * turns)).max() < 1e-15


@pytest.mark.parametrize(("kind", "law"), [(GAUSSIAN, stats.norm), (LAPLACE, stats.laplace)])
def test_coordinates_have_their_law(kind, law):
    """Kolmogorov and Smirnov on 200,000 numbers, and no correlation between coordinates: each 1 in 1000."""
    draws = np.stack([standard_noise(kind, 5, agent, 1, 10) for agent in range(20_000)])
    assert stats.kstest(draws.ravel(), law.cdf).pvalue > 1e-3
    correlations = np.corrcoef(draws.T) - np.eye(10)
    assert np.abs(correlations).max() < 4.2 / math.sqrt(20_000)  # 45 pairs


def test_knorm_has_a_gamma_radius_and_no_direction():
    """Each check fails by chance once in 1000."""
    draws = np.stack([standard_noise(KNORM, 5, agent, 1, 7) for agent in range(20_000)])
    lengths = np.linalg.norm(draws, axis=1)
    assert stats.kstest(lengths, stats.gamma(7).cdf).pvalue > 1e-3
    assert np.abs((draws / lengths[:, None]).mean(axis=0)).max() < 3.9 * math.sqrt(1 / 7 / 20_000)


def test_every_release_has_a_draw_of_its_own():
    draws = {
        tuple(standard_noise(GAUSSIAN, seed, agent, update, 4))
        for seed in range(3)
        for agent in range(3)
        for update in range(3)
    }
    assert len(draws) == 27
    assert np.array_equal(standard_noise(GAUSSIAN, 1, 2, 3, 9), standard_noise(GAUSSIAN, 1, 2, 3, 9))
