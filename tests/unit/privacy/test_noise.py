"""Noise is what its event says; the secure kind and the simulated kind are never mixed up."""

import builtins

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import cumulative_simpson
from tests.unit.privacy.proven import every_integer_version, every_mechanism

from flockwise.errors import MissingExtra, PrivacyError
from flockwise.privacy import noise as noise_module
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace, Mechanism
from flockwise.privacy.noise import SecureNoise, SimulatedNoise
from flockwise.randomness.noise import standard_noise

GRID = 2.0**-12


def on_grid(kind, dimension=1) -> Mechanism:
    return kind(0.5, 2.0, GRID, dimension)


@every_integer_version
def test_secure_noise_has_the_law_of_its_event(kind):
    """Kolmogorov-Smirnov, 20 000 draws of operating-system randomness: fails by chance once in 10⁶ runs."""
    event = on_grid(kind, 20_000)
    drawn = SecureNoise().draw(event, 1)
    assert drawn.dtype == np.int64
    places = np.linspace(-80.0, 80.0, 160_001)  # the law as the event states it, in real numbers
    density = np.exp(event.log_likelihood(places[:, None]))
    below = cumulative_simpson(density, x=places, initial=0.0)
    assert stats.kstest(drawn * GRID, lambda x: np.interp(x, places, below / below[-1])).pvalue > 1e-6
    assert drawn.std() * GRID == pytest.approx(event.noise_std, rel=0.06)


@pytest.mark.parametrize(("kind", "law"), [(Laplace, stats.laplace), (Gaussian, stats.norm)])
def test_secure_noise_has_the_law_of_its_name(kind, law):
    """The same against laws that others wrote."""
    drawn = SecureNoise().draw(on_grid(kind, 20_000), 1)
    assert stats.kstest(drawn * GRID, law(scale=2.0).cdf).pvalue > 1e-6


@every_integer_version
def test_secure_noise_is_never_the_same(kind):
    source, event = SecureNoise(), on_grid(kind, 20)
    assert not np.array_equal(source.draw(event, 1), source.draw(event, 1))


@every_integer_version
def test_opendp_certifies_the_cost_that_the_event_states(kind, monkeypatch):
    """With 1 % less noise than the event states there is no certificate."""
    opendp, event = noise_module._opendp(), on_grid(kind)
    law = event.integer_law()
    assert law is not None
    maker = law.measurement
    honest = getattr(opendp.measurements, maker)
    noise_module._sampler.cache_clear()
    SecureNoise().check(event)
    noise_module._sampler.cache_clear()
    monkeypatch.setattr(opendp.measurements, maker, lambda *space, scale: honest(*space, scale=0.99 * scale))
    with pytest.raises(PrivacyError, match="opendp certifies a cost of"):
        SecureNoise().check(event)
    noise_module._sampler.cache_clear()


@every_mechanism
def test_secure_noise_needs_a_grid(kind):
    with pytest.raises(PrivacyError, match="drawn on an integer grid and the event has none"):
        SecureNoise().draw(kind(1.0, 2.0, None, 3), 1)


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
        SecureNoise().check(on_grid(Laplace))


SIMULATED = {
    "laplace": (Laplace(0.5, 2.0, dimension=20_000), stats.laplace(scale=2.0).cdf),
    "gaussian": (Gaussian(0.5, 2.0, dimension=20_000), stats.norm(scale=2.0).cdf),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_noise_has_the_law_of_its_event(name):
    """Kolmogorov-Smirnov with a fixed seed: deterministic."""
    event, law = SIMULATED[name]
    drawn = SimulatedNoise(seed=5, agent=3).draw(event, 1)
    assert stats.kstest(drawn, law).pvalue > 0.01


def test_simulated_k_norm_noise_has_a_gamma_radius_and_any_direction():
    event = KNorm(0.5, 2.0, dimension=3)
    drawn = np.array([SimulatedNoise(1, 2).draw(event, number) for number in range(4000)])
    radii = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(radii, stats.gamma(3, scale=2.0).cdf).pvalue > 0.01
    assert stats.kstest(drawn[:, 0] / radii, stats.uniform(-1, 2).cdf).pvalue > 0.01  # Archimedes, for p = 3


@every_mechanism
@pytest.mark.parametrize("dimension", [1, 3, 4, 9])
def test_simulated_noise_is_the_standard_noise_of_its_mechanism_times_the_scale(kind, dimension):
    """One number for each coordinate of the event."""
    drawn = SimulatedNoise(5, 3).draw(kind(0.5, 2.0, None, dimension), 7)
    assert drawn.shape == (dimension,)
    np.testing.assert_array_equal(drawn, 2.0 * standard_noise(kind.sampler(), 5, 3, 7, dimension))


@every_mechanism
def test_simulated_noise_is_a_function_of_seed_agent_and_release(kind):
    event = kind(1.0, 1.0, None, 4)
    drawn = [
        SimulatedNoise(seed, agent).draw(event, number).tolist()
        for seed, agent, number in [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    ]
    assert len({tuple(values) for values in drawn}) == 4
    assert SimulatedNoise(0, 0).draw(event, 1).tolist() == drawn[0]


@every_integer_version
def test_simulated_noise_stays_off_the_grid(kind):
    with pytest.raises(PrivacyError, match="plan without a grid for a simulation"):
        SimulatedNoise(0, 0).draw(on_grid(kind), 1)


def test_simulated_noise_is_no_kind_of_secure_noise():
    """A gate tells the two apart by their class."""
    assert not isinstance(SimulatedNoise(0, 0), SecureNoise)
