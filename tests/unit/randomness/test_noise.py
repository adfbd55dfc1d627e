"""Simulated noise: the right distributions, addressed by seed, agent and number of release."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.randomness import noise
from flockwise.randomness.noise import KNormSampler, LaplaceSampler, NormalSampler, padded, standard_noise


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


@pytest.mark.parametrize(
    ("sampler", "law"), [(NormalSampler(), stats.norm), (LaplaceSampler(), stats.laplace)]
)
def test_coordinates_have_their_law(sampler, law):
    """Kolmogorov and Smirnov on 200,000 numbers, and no correlation between coordinates: each 1 in 1000."""
    draws = np.stack([standard_noise(sampler, 5, agent, 1, 10) for agent in range(20_000)])
    assert stats.kstest(draws.ravel(), law.cdf).pvalue > 1e-3
    correlations = np.corrcoef(draws.T) - np.eye(10)
    assert np.abs(correlations).max() < 4.2 / math.sqrt(20_000)  # 45 pairs


def test_knorm_has_a_gamma_radius_and_no_direction():
    """Each check fails by chance once in 1000."""
    draws = np.stack([standard_noise(KNormSampler(), 5, agent, 1, 7) for agent in range(20_000)])
    lengths = np.linalg.norm(draws, axis=1)
    assert stats.kstest(lengths, stats.gamma(7).cdf).pvalue > 1e-3
    assert np.abs((draws / lengths[:, None]).mean(axis=0)).max() < 3.9 * math.sqrt(1 / 7 / 20_000)


@pytest.mark.parametrize("kind", list(MECHANISMS), ids=MECHANISMS.names)
def test_every_release_has_a_draw_of_its_own(kind):
    sampler = kind.sampler()
    draws = {
        tuple(standard_noise(sampler, seed, agent, update, 4))
        for seed in range(3)
        for agent in range(3)
        for update in range(3)
    }
    assert len(draws) == 27
    assert np.array_equal(standard_noise(sampler, 1, 2, 3, 9), standard_noise(sampler, 1, 2, 3, 9))


@pytest.mark.parametrize("kind", list(MECHANISMS), ids=MECHANISMS.names)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 13])
def test_a_draw_has_as_many_numbers_as_were_asked_for(kind, size):
    """Random words come four at a time; what is left over is not part of the draw."""
    drawn = standard_noise(kind.sampler(), 7, 1, 2, size)
    assert drawn.shape == (size,)
    assert np.isfinite(drawn).all()
    assert len(set(drawn.tolist())) == size
    assert padded(size) % 4 == 0
    assert size <= padded(size) < size + 4
