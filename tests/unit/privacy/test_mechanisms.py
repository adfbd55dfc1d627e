"""The laws of the noise, against numerical integration, and events as plain values."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.integrate import quad

from flockwise.errors import PrivacyError
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace, events_from_json, events_to_json


def test_noise_std_is_that_of_one_coordinate():
    variance, _ = quad(lambda x: x**2 * math.exp(-abs(x) / 0.7) / 1.4, -40, 40)
    assert Laplace(1.0, 0.7).noise_std == pytest.approx(math.sqrt(variance))
    assert Gaussian(1.0, 0.7).noise_std == 0.7


@pytest.mark.parametrize("dimension", [1, 2, 7])
def test_the_std_of_k_norm_noise(dimension):
    # The radius has the density ∝ r^(p−1) e^(−r/scale), and one coordinate has 1/p of its mean square.
    mass, _ = quad(lambda r: r ** (dimension - 1) * math.exp(-r / 0.7), 0, 80)
    square, _ = quad(lambda r: r ** (dimension + 1) * math.exp(-r / 0.7), 0, 80)
    event = KNorm(1.0, 0.7, dimension=dimension)
    assert event.noise_std == pytest.approx(math.sqrt(square / mass / dimension))


def test_a_multiplier_is_noise_for_sensitivity_one():
    event = Laplace(0.2, 0.5)
    assert event.multiplier == 2.5
    assert event.epsilon == pytest.approx(0.4)
    more = event.with_multiplier(5.0)
    assert (more.sensitivity, more.scale) == (0.2, 1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Laplace(0.0, 1.0), "sensitivity must be positive"),
        (lambda: Gaussian(1.0, math.inf), "scale must be positive"),
        (lambda: Gaussian(1.0, 1.0, grid=0.0), "grid must be positive"),
        (lambda: KNorm(1.0, 1.0, grid=0.1), "simulations only"),
        (lambda: KNorm(1.0, 1.0, dimension=0), "dimension must be at least 1"),
    ],
)
def test_events_that_make_no_sense_are_refused(make, words):
    with pytest.raises(PrivacyError, match=words):
        make()


def test_events_come_back_to_the_last_digit():
    random = np.random.default_rng(3)
    events = (
        *(Laplace(*random.random(2)) for _ in range(3)),
        *[Gaussian(random.random(), random.random(), grid=random.random())] * 500,
        KNorm(0.1, 0.3, dimension=4),
    )
    entries = events_to_json(events)
    assert len(entries) == 5
    assert events_from_json(json.loads(json.dumps(entries))) == events


def test_what_is_no_event_is_refused():
    for entry in ({}, {"mechanism": "cauchy", "times": 1}, {"mechanism": "laplace", "times": 1, "width": 2}):
        with pytest.raises(PrivacyError, match="no event"):
            events_from_json([entry])
