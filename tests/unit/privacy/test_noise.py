"""Noise is what its event says; the secure kind and the simulated kind are never mixed up."""

import builtins

import numpy as np
import pytest
from scipy import stats

from flockwise.errors import MissingExtra, PrivacyError
from flockwise.privacy import noise as noise_module
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace
from flockwise.privacy.noise import SecureNoise, SimulatedNoise

GRID = 2.0**-12
SECURE_EVENTS = [Laplace(0.5, 2.0, GRID), Gaussian(0.5, 2.0, GRID)]


@pytest.mark.parametrize("event", SECURE_EVENTS)
def test_secure_noise_has_the_law_of_its_event(event):
    """Kolmogorov-Smirnov, 20 000 draws of operating-system randomness: fails by chance once in 10⁶ runs."""
    drawn = SecureNoise().draw(event, 20_000, 1)
    assert drawn.dtype == np.int64
    law = stats.laplace(scale=2.0) if event.name == "laplace" else stats.norm(scale=2.0)
    assert stats.kstest(drawn * GRID, law.cdf).pvalue > 1e-6
    assert drawn.std() * GRID == pytest.approx(event.noise_std, rel=0.06)


@pytest.mark.parametrize("event", SECURE_EVENTS)
def test_secure_noise_is_never_the_same(event):
    source = SecureNoise()
    assert not np.array_equal(source.draw(event, 20, 1), source.draw(event, 20, 1))


@pytest.mark.parametrize("event", SECURE_EVENTS)
def test_opendp_certifies_the_cost_that_the_event_states(event, monkeypatch):
    """With 1 % less noise than the event states there is no certificate."""
    opendp = noise_module._opendp()
    maker = f"make_{event.name}"
    honest = getattr(opendp.measurements, maker)
    noise_module._sampler.cache_clear()
    SecureNoise().check(event)
    noise_module._sampler.cache_clear()
    monkeypatch.setattr(opendp.measurements, maker, lambda *space, scale: honest(*space, scale=0.99 * scale))
    with pytest.raises(PrivacyError, match="opendp certifies a cost of"):
        SecureNoise().check(event)
    noise_module._sampler.cache_clear()


def test_secure_noise_needs_a_grid():
    for event in (Laplace(1.0, 2.0), Gaussian(1.0, 2.0), KNorm(1.0, 2.0, dimension=3)):
        with pytest.raises(PrivacyError, match="drawn on an integer grid and the event has none"):
            SecureNoise().draw(event, 3, 1)


def test_secure_noise_refuses_a_grid_that_would_round_or_overflow():
    with pytest.raises(PrivacyError, match="power of two"):
        SecureNoise().check(Gaussian(1.0, 2.0, 0.1))
    with pytest.raises(PrivacyError, match=r"more than 2\^52 steps"):
        SecureNoise().check(Gaussian(1.0, 2.0, 2.0**-52))


def test_without_the_extra_there_is_one_line_that_says_what_to_install(monkeypatch):
    importing = builtins.__import__

    def without_opendp(name, *rest):
        if name.startswith("opendp"):
            raise ImportError(name)
        return importing(name, *rest)

    for cached in (noise_module._opendp, noise_module._sampler):
        cached.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without_opendp)
    with pytest.raises(MissingExtra, match=r"flockwise\[secure\]"):
        SecureNoise().check(SECURE_EVENTS[0])


SIMULATED = {
    "laplace": (Laplace(0.5, 2.0), stats.laplace(scale=2.0).cdf),
    "gaussian": (Gaussian(0.5, 2.0), stats.norm(scale=2.0).cdf),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_noise_has_the_law_of_its_event(name):
    """Kolmogorov-Smirnov with a fixed seed: deterministic."""
    event, law = SIMULATED[name]
    drawn = SimulatedNoise(seed=5, agent=3).draw(event, 20_000, 1)
    assert stats.kstest(drawn, law).pvalue > 0.01


def test_simulated_k_norm_noise_has_a_gamma_radius_and_any_direction():
    event = KNorm(0.5, 2.0, dimension=3)
    drawn = np.array([SimulatedNoise(1, 2).draw(event, 3, number) for number in range(4000)])
    radii = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(radii, stats.gamma(3, scale=2.0).cdf).pvalue > 0.01
    assert stats.kstest(drawn[:, 0] / radii, stats.uniform(-1, 2).cdf).pvalue > 0.01  # Archimedes, for p = 3
    with pytest.raises(PrivacyError, match="planned for dimension=3, got a vector of 4"):
        SimulatedNoise(1, 2).draw(event, 4, 1)


def test_simulated_noise_is_a_function_of_seed_agent_and_release():
    event = Gaussian(1.0, 1.0)
    drawn = [
        SimulatedNoise(seed, agent).draw(event, 4, number).tolist()
        for seed, agent, number in [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    ]
    assert len({tuple(values) for values in drawn}) == 4
    assert SimulatedNoise(0, 0).draw(event, 4, 1).tolist() == drawn[0]


def test_simulated_noise_stays_off_the_grid():
    with pytest.raises(PrivacyError, match="plan without a grid for a simulation"):
        SimulatedNoise(0, 0).draw(SECURE_EVENTS[0], 3, 1)


def test_simulated_noise_is_no_kind_of_secure_noise():
    """A gate tells the two apart by their class."""
    assert not isinstance(SimulatedNoise(0, 0), SecureNoise)
