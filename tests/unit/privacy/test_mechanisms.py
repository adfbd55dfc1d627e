"""What every registered mechanism claims of itself, against its own density and its own draws.

The tests walk the registry, so a new mechanism is tested without a word here. What a density implies is
computed by numerical integration in one dimension, or from draws in several. Seeds are fixed, and each
statistical check would fail for another seed with the probability that it states.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import cumulative_simpson, quad, simpson
from tests.unit.privacy.proven import (
    NOT_PROVEN,
    PROVEN,
    every_integer_version,
    every_mechanism,
    every_missing_proof,
    every_proof,
)

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import ACCOUNTANTS, default_accountant
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import (
    MECHANISMS,
    Gaussian,
    KNorm,
    Laplace,
    Mechanism,
    accountants_of,
    event_from_json,
    event_to_json,
)
from flockwise.privacy.plan import Plan
from flockwise.randomness.noise import standard_noise

SENSITIVITY, SCALE, DIMENSION = 0.5, 0.7, 3
GRID = 2.0**-12
DRAWS = 20_000


def event_of(kind, dimension=1, grid=None, scale=SCALE) -> Mechanism:
    return kind(SENSITIVITY, scale, grid, dimension)


@lru_cache
def draws_of(kind, dimension, count=DRAWS, seed=11):
    """Standard noise: one row per agent, each from its own stream."""
    return np.stack([standard_noise(kind.sampler(), seed, agent, 1, dimension) for agent in range(count)])


# 0 is among the places: that is where a density may have a corner.
PLACES = np.linspace(-40.0, 40.0, 160_001)


def density_of(event):
    """Of noise in one coordinate, from its likelihoods alone."""
    unscaled = np.exp(event.log_likelihood(PLACES[:, None]))
    return unscaled / simpson(unscaled, x=PLACES)


def cdf_of(event):
    cumulated = cumulative_simpson(density_of(event), x=PLACES, initial=0.0)
    return lambda value: np.interp(value, PLACES, cumulated)


# --- Law: density, draws and standard deviation belong together ---


@every_mechanism
def test_draws_have_the_density_whose_logarithm_is_stated(kind):
    """Kolmogorov and Smirnov on 20,000 numbers; 1 seed of 1000 would fail."""
    drawn = SCALE * draws_of(kind, 1)[:, 0]
    assert stats.kstest(drawn, cdf_of(event_of(kind))).pvalue > 1e-3


@every_mechanism
def test_draws_of_another_scale_have_another_density(kind):
    """The test above would notice an error of 10 % in the scale."""
    drawn = 1.1 * SCALE * draws_of(kind, 1)[:, 0]
    assert stats.kstest(drawn, cdf_of(event_of(kind))).pvalue < 1e-3


@every_mechanism
def test_draws_in_several_dimensions_have_the_stated_density(kind):
    """For a density e^ℓ in p dimensions −⟨z, ∇ℓ(z)⟩ has mean p, by parts; 1 seed of 10⁶ is 5 errors off."""
    event = event_of(kind, DIMENSION)
    noise, step = SCALE * draws_of(kind, DIMENSION), 1e-6
    shorter, longer = (event.log_likelihood(noise * (1 + move)) for move in (-step, step))
    slopes = (shorter - longer) / (2 * step)
    assert abs(slopes.mean() - DIMENSION) < 5 * slopes.std() / math.sqrt(DRAWS)


@every_mechanism
def test_the_stated_standard_deviation_is_that_of_the_density(kind):
    event = event_of(kind)
    variance = simpson(PLACES**2 * density_of(event), x=PLACES)
    assert event.noise_std == pytest.approx(math.sqrt(variance), rel=1e-6)


@every_mechanism
@pytest.mark.parametrize("dimension", [1, DIMENSION, 8])
def test_the_stated_standard_deviation_is_that_of_the_draws(kind, dimension):
    """In each coordinate, up to 5 errors, and no two are correlated: 1 seed of 10⁵ would fail."""
    event, noise = event_of(kind, dimension), SCALE * draws_of(kind, dimension)
    squares = noise**2
    errors = squares.std(axis=0) / math.sqrt(DRAWS)
    assert (np.abs(squares.mean(axis=0) - event.noise_std**2) < 5 * errors).all()
    assert (np.abs(noise.mean(axis=0)) < 5 * event.noise_std / math.sqrt(DRAWS)).all()
    correlations = np.corrcoef(noise.T).reshape(dimension, dimension) - np.eye(dimension)
    assert np.abs(correlations).max() < 5 / math.sqrt(DRAWS)


@every_mechanism
def test_more_scale_is_proportionally_more_noise(kind):
    one, two = event_of(kind, DIMENSION), event_of(kind, DIMENSION, scale=2 * SCALE)
    noise = draws_of(kind, DIMENSION, count=50)
    assert two.noise_std == pytest.approx(2 * one.noise_std, rel=1e-15)
    np.testing.assert_allclose(two.log_likelihood(2 * noise), one.log_likelihood(noise), rtol=1e-12)


# --- Cost: what an event states is what its density implies ---


def unit_shifts(norm, dimension):
    """Changes of length 1: along an axis, along the diagonal, and anywhere."""
    random = np.random.default_rng(3).normal(size=(200, dimension))
    shifts = np.vstack([np.eye(dimension)[:1], np.ones((1, dimension)), random])
    return shifts / np.linalg.norm(shifts, 1 if norm == "l1" else 2, axis=1, keepdims=True)


@every_mechanism
def test_the_likelihood_of_a_pure_mechanism_changes_by_at_most_its_epsilon(kind):
    """And comes up to it; for one that is not pure there is no bound."""
    event = event_of(kind, DIMENSION)
    noise = SCALE * draws_of(kind, DIMENSION, count=300)[:, None, :]
    shifts = SENSITIVITY * unit_shifts(kind.norm, DIMENSION)
    losses = np.abs(event.log_likelihood(noise + shifts) - event.log_likelihood(noise))
    if kind.is_pure:
        assert losses.max() <= event.epsilon * (1 + 1e-12)
        assert losses.max() > 0.99 * event.epsilon
        assert event.epsilon == pytest.approx(SENSITIVITY / SCALE)
    else:
        assert event.epsilon == math.inf
        far = event.log_likelihood(1e6 * noise + shifts) - event.log_likelihood(1e6 * noise)
        assert np.abs(far).max() > 1e3


def renyi_ratios(here, there, measure):
    """D_α(here ‖ there)/α at many orders, for logarithms of densities or of probabilities."""
    for order in 1 + np.logspace(-2, 1.5, 40):
        yield math.log(measure(np.exp(order * here + (1 - order) * there))) / (order - 1) / order


@every_mechanism
def test_the_stated_rho_bounds_every_renyi_divergence(kind):
    """Zero-concentrated differential privacy: D_α ≤ ρα for all orders α > 1."""
    event = event_of(kind)
    total = math.log(simpson(np.exp(event.log_likelihood(PLACES[:, None])), x=PLACES))
    here, there = (event.log_likelihood(PLACES[:, None] - move) - total for move in (0.0, SENSITIVITY))
    ratios = list(renyi_ratios(here, there, lambda values: simpson(values, x=PLACES)))
    assert max(ratios) <= event.rho * (1 + 1e-6)
    assert max(ratios) > 0.4 * event.rho  # no more than about twice of what is needed


@every_integer_version
@pytest.mark.parametrize("steps", [1, 3, 50])
def test_the_stated_rho_bounds_the_integer_version_too(kind, steps):
    """The probabilities of integers are proportional to the density there; also on a coarse grid."""
    event = event_of(kind, grid=SENSITIVITY / steps)
    integers = np.arange(-20_000, 20_001)
    here, there = (
        event.log_likelihood((integers - move)[:, None] * (SENSITIVITY / steps)) for move in (0, steps)
    )
    total = math.log(np.exp(here).sum())
    ratios = list(renyi_ratios(here - total, there - total, np.sum))
    assert max(ratios) <= event.rho * (1 + 1e-9)
    assert max(ratios) > 0.4 * event.rho


@every_mechanism
def test_the_stated_mu_is_the_trade_off_of_the_density(kind):
    """A test with a share a of false alarms misses a share Φ(Φ⁻¹(1 − a) − μ). Exact, or there is no μ."""
    event = event_of(kind)
    assert kind.is_pure == (math.isinf(event.mu)), "no pure noise is as good as normal noise"
    if math.isinf(event.mu):
        return
    cdf = cdf_of(event)
    thresholds = np.linspace(-2, 3, 21)
    alarms, misses = 1 - cdf(thresholds), cdf(thresholds - SENSITIVITY)
    np.testing.assert_allclose(misses, stats.norm.cdf(stats.norm.isf(alarms) - event.mu), atol=1e-8)
    if kind.grid_accountants:
        assert math.isinf(event_of(kind, grid=GRID).mu), "not proven for the integer version"


DELTA, RELEASES, RUNS = 0.02, 5, 40_000
BUDGET = Budget(1.0, DELTA)


def leaked_delta(event, epsilon, noise_factor=1.0):
    """δ at this ε of RELEASES events together, estimated from draws, and its standard error.

    E[(1 − e^(ε − L))₊] over the loss L of the whole change along one coordinate.
    """
    noise = noise_factor * event.scale * draws_of(type(event), event.dimension, RUNS * RELEASES, seed=12)
    shift = np.zeros(event.dimension)
    shift[0] = event.sensitivity
    losses = event.log_likelihood(noise / noise_factor) - event.log_likelihood((noise + shift) / noise_factor)
    excess = -np.expm1(np.minimum(epsilon - losses.reshape(RUNS, RELEASES).sum(axis=1), 0.0))
    return excess.mean(), excess.std() / math.sqrt(RUNS)


@every_proof
def test_releases_leak_no_more_than_their_accountant_says(mechanism, on_grid, accountant):
    """40,000 runs of five releases; an honest accountant at its limit fails for 1 seed of 10⁶."""
    plan = Plan.fitting(BUDGET, mechanism, RELEASES, accountant=accountant, on_grid=on_grid)
    event = MECHANISMS[mechanism](1.0, plan.multipliers[0], None, 2)
    delta, error = leaked_delta(event, BUDGET.epsilon)
    assert delta < DELTA + 5 * error


@every_mechanism
def test_a_quarter_of_the_noise_leaks_more_than_any_accountant_says(kind):
    """The test above finds a mechanism whose sampler draws too little."""
    for accountant in kind.accountants:
        plan = Plan.fitting(BUDGET, kind.name, RELEASES, accountant=accountant)
        event = kind(1.0, plan.multipliers[0], None, 2)
        delta, error = leaked_delta(event, BUDGET.epsilon, noise_factor=0.25)
        assert delta > DELTA + 5 * error


# --- Proofs: which accountants may be used ---


def test_every_mechanism_has_accountants_that_exist():
    assert len(MECHANISMS) >= 3
    for kind in MECHANISMS:
        assert kind.accountants
        assert {*kind.accountants, *kind.grid_accountants} <= set(ACCOUNTANTS.names)
        assert accountants_of(kind.name) == kind.accountants
        assert accountants_of(kind.name, on_grid=True) == kind.grid_accountants
    named = {name for kind in MECHANISMS for name in kind.accountants}
    assert named == set(ACCOUNTANTS.names), "an accountant that is proven for nothing"


@every_proof
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-9])
def test_a_proven_accountant_states_a_finite_epsilon_for_every_delta(mechanism, on_grid, accountant, delta):
    event = event_of(MECHANISMS[mechanism], DIMENSION, GRID if on_grid else None)
    found = ACCOUNTANTS[accountant].epsilon([event] * 3, delta)
    assert 0 <= found < math.inf
    assert found <= ACCOUNTANTS[accountant].epsilon([event] * 3, delta / 2)
    assert ACCOUNTANTS[accountant].epsilon([event] * 4, delta) > found


@every_proof
def test_an_accountant_states_an_epsilon_down_to_its_least_delta(mechanism, on_grid, accountant):
    event, rule = event_of(MECHANISMS[mechanism], 1, GRID if on_grid else None), ACCOUNTANTS[accountant]
    found = rule.epsilon([event], rule.least_delta)
    assert found < math.inf
    if rule.least_delta == 0:
        assert found == pytest.approx(event.epsilon), "only pure noise has δ = 0"


@every_missing_proof
def test_an_accountant_that_is_not_proven_for_a_noise_is_refused_by_plans(mechanism, on_grid, accountant):
    where = " on a grid" if on_grid else ""
    refusal = rf"accountant='{accountant}' is not proven for {mechanism} noise{where}; use "
    for make in (
        lambda: Plan.fitting(BUDGET, mechanism, 2, accountant=accountant, on_grid=on_grid),
        lambda: Plan(BUDGET, mechanism, accountant, (1e9,), on_grid),
        lambda: MECHANISMS[mechanism].check_accountant(accountant, on_grid=on_grid),
    ):
        with pytest.raises(PrivacyError, match=refusal) as caught:
            make()
        for proven in accountants_of(mechanism, on_grid=on_grid):
            assert proven in str(caught.value)


def test_some_accountants_are_proven_off_a_grid_alone():
    """The lists above are not empty, and a grid makes a difference."""
    assert ("gaussian", False, "gdp") in PROVEN
    assert ("gaussian", True, "gdp") in NOT_PROVEN
    assert ("laplace", False, "pld") in PROVEN
    assert ("laplace", True, "pld") in NOT_PROVEN
    assert ("knorm", True, "basic") in NOT_PROVEN


@every_mechanism
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-5])
def test_the_default_accountant_is_proven_and_covers_the_delta(kind, delta):
    """Or there is none: without δ for noise that is not pure, and for integers that do not exist."""
    for on_grid in (False, True):
        if on_grid and not kind.grid_accountants:
            with pytest.raises(
                PrivacyError, match="has no integer version; real agents use gaussian or laplace"
            ):
                default_accountant(kind.name, delta, on_grid=on_grid)
        elif delta == 0 and not kind.is_pure:
            with pytest.raises(PrivacyError, match=rf"{kind.name} noise needs delta > 0, got delta=0.0"):
                default_accountant(kind.name, delta, on_grid=on_grid)
        else:
            chosen = default_accountant(kind.name, delta, on_grid=on_grid)
            assert chosen in accountants_of(kind.name, on_grid=on_grid)
            event = event_of(kind, 1, GRID if on_grid else None)
            assert ACCOUNTANTS[chosen].epsilon([event], delta) < math.inf


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_the_default_accountant_of_real_valued_noise_needs_least_noise(name):
    least = Plan.fitting(Budget(1.0, 1e-5), name, 20).multipliers[0]
    for accountant in accountants_of(name):
        other = Plan.fitting(Budget(1.0, 1e-5), name, 20, accountant=accountant).multipliers[0]
        assert least <= other * (1 + 1e-6)


# --- Events as values ---


@every_mechanism
def test_an_integer_version_exists_exactly_where_an_accountant_is_proven_for_it(kind):
    law = event_of(kind).integer_law()
    if kind.grid_accountants:
        assert law is not None
        assert event_of(kind, grid=GRID).grid == GRID
        assert law.metric.startswith(kind.norm)
        assert law.cost == pytest.approx(event_of(kind).epsilon if kind.is_pure else event_of(kind).rho)
    else:
        assert law is None
        with pytest.raises(PrivacyError, match=f"{kind.name}: it has no integer version, so no grid"):
            event_of(kind, grid=GRID)


@every_mechanism
def test_events_come_back_from_json_to_the_last_digit(kind):
    random = np.random.default_rng(3)
    grids = (None, random.random()) if kind.grid_accountants else (None,)
    for grid in grids:
        event = kind(random.random(), random.random(), grid, 7)
        again = event_from_json(event_to_json(event))
        assert again == event
        assert type(again) is kind


@every_mechanism
def test_events_differ_by_kind_and_by_every_field(kind):
    """A ledger compares what was spent with what was planned."""
    event = event_of(kind, DIMENSION)
    others: list[Mechanism] = [
        dataclasses.replace(event, sensitivity=SENSITIVITY * (1 + 1e-15)),
        dataclasses.replace(event, scale=SCALE * (1 + 1e-15)),
        dataclasses.replace(event, dimension=DIMENSION + 1),
        *(event_of(other, DIMENSION) for other in MECHANISMS if other is not kind),
    ]
    if kind.grid_accountants:
        others.append(dataclasses.replace(event, grid=GRID))
    assert all(event != other for other in others)
    assert event == event_of(kind, DIMENSION)


@every_mechanism
def test_a_multiplier_is_noise_for_sensitivity_one(kind):
    event = kind(0.2, 0.5)
    assert event.multiplier == 2.5
    more = event.with_multiplier(5.0)
    assert (type(more), more.sensitivity, more.scale) == (kind, 0.2, 1.0)


@every_mechanism
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"sensitivity": 0.0}, "sensitivity must be positive"),
        ({"sensitivity": math.nan}, "sensitivity must be positive"),
        ({"scale": math.inf}, "scale must be positive"),
        ({"scale": -1.0}, "scale must be positive"),
        ({"grid": 0.0}, "grid must be positive"),
        ({"dimension": 0}, "dimension must be at least 1"),
    ],
)
def test_events_that_make_no_sense_are_refused(kind, fields, complaint):
    values: dict[str, Any] = {"sensitivity": 1.0, "scale": 1.0} | fields
    with pytest.raises(PrivacyError, match=f"{kind.name}: {complaint}"):
        kind(**values)


def test_what_is_not_an_event_is_refused():
    for text in (
        "",
        "[]",
        "{}",
        '{"mechanism": "cauchy"}',
        '{"mechanism": "laplace", "width": 2}',
        '{"mechanism": "laplace"}',
    ):
        with pytest.raises(PrivacyError, match="unknown event in the ledger"):
            event_from_json(text)


def test_an_unknown_mechanism_is_named_with_those_that_there_are():
    with pytest.raises(
        PrivacyError, match="there is no mechanism 'cauchy'; choose one of gaussian, laplace, knorm"
    ):
        Plan.fitting(BUDGET, "cauchy", 2)


# --- A mechanism from another package ---


@dataclasses.dataclass(frozen=True)
class Wide(Laplace):
    """Laplace noise under another name, as a package of its own would bring it."""

    name = "wide"
    accountants = ("basic",)
    grid_accountants = ()


@pytest.fixture
def wide():
    MECHANISMS.register(Wide)
    yield Wide
    MECHANISMS.unregister("wide")


def test_a_registered_mechanism_can_be_planned_by_its_name(wide):
    plan = Plan.fitting(Budget(1.0), "wide", 4)
    assert plan.accountant == "basic"
    assert plan.event(1, 0.5, DIMENSION) == Wide(0.5, 2.0, None, DIMENSION)
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(PrivacyError, match="not proven for wide noise; use basic"):
        Plan.fitting(Budget(1.0, 1e-5), "wide", 4, accountant="zcdp")


def test_two_mechanisms_cannot_have_one_name(wide):
    @dataclasses.dataclass(frozen=True)
    class Other(Laplace):
        name = "wide"

    MECHANISMS.register(Wide)  # again: it is the same
    with pytest.raises(
        PrivacyError, match=r"there is a mechanism named 'wide' already \(.*Wide\); rename yours"
    ):
        MECHANISMS.register(Other)


# --- The laws that are known, by their formulas ---


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


def test_the_epsilon_of_a_pure_event_is_sensitivity_over_scale():
    assert Laplace(0.2, 0.5).epsilon == pytest.approx(0.4)
    assert KNorm(0.2, 0.5, dimension=9).epsilon == pytest.approx(0.4)
    assert Gaussian(0.2, 0.5).epsilon == math.inf
