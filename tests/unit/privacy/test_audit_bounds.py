"""The statistics of the audit, against exact limits and mechanisms whose ε is known."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from flockwise.audit import CONFIDENCE, GateAttack, Scores, audit_one, epsilon_lower_bound, failed
from flockwise.audit.bounds import lower_limit, upper_limit
from flockwise.audit.gate import along_axis, along_diagonal, log_likelihoods, opposite_samples
from flockwise.audit.support import numpy_laplace_misfits, philox_gaussian_misfits, philox_laplace_misfits
from flockwise.errors import PrivacyError
from flockwise.privacy import MECHANISMS, Budget, Gaussian, KNorm, Laplace
from flockwise.privacy.noise import SimulatedNoise
from flockwise.randomness.noise import standard_noise


@pytest.mark.parametrize(("successes", "trials"), [(0, 40), (1, 40), (17, 40), (39, 40), (40, 40)])
def test_limits_are_those_of_clopper_and_pearson(successes, trials):
    exact = binomtest(successes, trials).proportion_ci(confidence_level=1 - 2 * 0.003, method="exact")
    assert lower_limit(successes, trials, 0.003) == pytest.approx(exact.low, abs=1e-12)
    assert upper_limit(successes, trials, 0.003) == pytest.approx(exact.high, abs=1e-12)


def randomized_response(random, epsilon, runs):
    """Two answers; the truth with probability e^ε/(1 + e^ε): exactly ε-differentially private."""
    lie = 1 / (1 + math.exp(epsilon))
    return Scores((random.random(runs) < lie).astype(float), (random.random(runs) >= lie).astype(float))


def test_the_bound_comes_near_the_truth():
    scores = randomized_response(np.random.default_rng(0), 1.0, 200_000)
    assert 0.95 < epsilon_lower_bound(scores, 0.0, 0.001) <= 1.0


def test_the_bound_errs_no_oftener_than_stated():
    """At an error rate of 20 %: more than 100 of 300 errors would have a probability below 1e-7."""
    random = np.random.default_rng(1)
    errors = sum(
        epsilon_lower_bound(randomized_response(random, 1.0, 500), 0.0, 0.2) > 1.0 for _ in range(300)
    )
    assert errors <= 100


def test_either_data_set_may_be_the_one_that_is_recognized():
    """An answer that only one of them gives, in 10 % of the runs."""
    random = np.random.default_rng(2)
    rare, never = (random.random(5_000) < 0.1).astype(float), np.zeros(5_000)
    for scores in (Scores(never, rare), Scores(-rare, never)):
        assert epsilon_lower_bound(scores, 0.0, 0.001) > 2
        assert epsilon_lower_bound(scores, 0.12, 0.001) == 0, "δ allows it"


def test_scores_that_tell_nothing_prove_nothing():
    random = np.random.default_rng(3)
    assert epsilon_lower_bound(Scores(np.zeros(1000), np.zeros(1000)), 0.0, 0.001) == 0
    same = Scores(random.normal(size=20_000), random.normal(size=20_000))
    assert epsilon_lower_bound(same, 0.0, 0.001) < 0.05


def test_too_few_or_missing_scores_are_refused():
    with pytest.raises(PrivacyError, match="second"):
        Scores(np.zeros(20), np.full(20, np.nan))
    with pytest.raises(PrivacyError, match="at least 10"):
        Scores(np.zeros(5), np.zeros(20))


@pytest.mark.parametrize("event", [Laplace(1.0, 0.7), Gaussian(1.0, 0.7), KNorm(1.0, 0.7, dimension=1)])
def test_likelihoods_in_one_dimension_are_those_of_the_formulas(event):
    noise = np.array([[0.0], [0.4], [-2.0]])
    expected = {
        "laplace": -np.abs(noise[:, 0]) / 0.7,
        "gaussian": -(noise[:, 0] ** 2) / (2 * 0.49),
        "knorm": -np.abs(noise[:, 0]) / 0.7,
    }
    assert event.log_likelihood(noise) == pytest.approx(expected[event.name])


def test_the_likelihood_of_a_run_is_the_sum_over_its_updates():
    events = [Laplace(1.0, 0.7), Gaussian(1.0, 0.3)]
    noise = np.random.default_rng(0).normal(size=(6, 2, 3))
    found = log_likelihoods(events, noise)
    first, second = (event.log_likelihood(noise[:, k]) for k, event in enumerate(events))
    assert found == pytest.approx(first + second)


@pytest.mark.parametrize("direction", [along_axis(4), along_diagonal(4)], ids=["axis", "diagonal"])
def test_neighboring_data_sets_differ_in_one_sample(direction):
    first, second = opposite_samples(direction)
    assert (first != second).any(axis=1).tolist() == [True, False, False, False]
    assert np.linalg.norm(direction) == pytest.approx(1.0)


class HalfTheNoise(SimulatedNoise):
    def draw(self, event, number):
        return super().draw(event, number) / 2


def test_a_row_of_the_audit_follows_from_its_seed_and_shows_a_leak():
    pair = opposite_samples(along_axis(1))
    honest = GateAttack("laplace", Budget(2.0), 2_000, "laplace", "basic", pair)
    row = audit_one(honest, n_rows=3, seed=5, share=0.5)
    assert row == audit_one(honest, n_rows=3, seed=5, share=0.5), "a function of the seed"
    assert row != audit_one(honest, n_rows=3, seed=5, share=0.5, number=1)
    assert row.document() == {
        "mechanism": "laplace",
        "updates": 1,
        "claimed_epsilon": 2.0,
        "delta": 0.0,
        "lower_bound": row.lower_bound,
        "runs": 1_000,
        "confidence": CONFIDENCE,
    }
    assert 1.0 < row.lower_bound <= 2.0
    assert row.holds
    leaky = dataclasses.replace(honest, noise=HalfTheNoise)
    wrong = audit_one(leaky, n_rows=3, seed=5)
    assert failed([row, wrong]) == [wrong]


SCALE = 1e6


def float_noise(name, rows):
    """Noise of one floating-point sampler in four coordinates."""
    if name == "numpy laplace":
        return np.random.default_rng(0).laplace(0.0, SCALE, (rows, 4))
    sampler = MECHANISMS[name.removeprefix("philox ")].sampler()
    return np.array([SCALE * standard_noise(sampler, 7, row, 1, 4) for row in range(rows)])


@pytest.mark.parametrize(
    ("name", "misfits"),
    [
        ("numpy laplace", numpy_laplace_misfits),
        ("philox laplace", philox_laplace_misfits),
        ("philox gaussian", philox_gaussian_misfits),
    ],
)
def test_float_noise_fits_where_it_was_added_and_seldom_elsewhere(name, misfits):
    center, other = np.full(4, 524_287.0), np.full(4, -524_287.0)
    outputs = center + float_noise(name, 300)
    assert not misfits(outputs, center, SCALE).any()
    assert (misfits(outputs, other, SCALE) > 0).mean() > 0.7


def test_integer_noise_fits_nowhere_better_than_elsewhere():
    """The shares for the two places differ by less than 5 standard errors (of at most .022)."""
    integers = np.rint(np.random.default_rng(1).laplace(0.0, SCALE, (1_000, 1)))
    places = [np.array([524_287.0]), np.array([-524_287.0])]
    shares = [numpy_laplace_misfits(place + integers, places[0], SCALE).mean() for place in places]
    assert abs(shares[0] - shares[1]) < 0.11
