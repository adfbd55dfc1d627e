"""Accountants and calibrations against oracles that others wrote, and against integrals."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import (
    from_privacy_parameters,
)
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from scipy.integrate import dblquad, quad
from scipy.stats import dlaplace
from tests.unit.privacy.proven import costs_for, every_missing_proof, every_proof

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import ACCOUNTANTS, calibrate, calibration, composed_epsilon
from flockwise.privacy.accounting.gaussian import Remark, epsilon_of, log_delta, mu_of
from flockwise.privacy.accounting.pld import LEAST_DELTA
from flockwise.privacy.accounting.zcdp import epsilon_of as zcdp_epsilon_of
from flockwise.privacy.accounting.zcdp import rho_of
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS, Gaussian, Laplace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # both are older than the NumPy at hand, and say so
    from autodp.calibrator_zoo import ana_gaussian_calibrator
    from autodp.mechanism_zoo import ExactGaussianMechanism
    from autodp.rdp_bank import RDP_laplace
    from prv_accountant import GaussianMechanism, LaplaceMechanism, PRVAccountant, PureDPMechanism

PAPER_DELTA = math.exp(-5)
BUDGETS = [Budget(1.0, PAPER_DELTA), Budget(0.15, PAPER_DELTA), Budget(0.5, 1e-5), Budget(3.0, 1e-6)]
UPDATES = [1, 10, 137]
LAPLACE, GAUSSIAN = Laplace(2.0, 1.0), Gaussian(2.0, 1.0)
NOT_PURE = [(kind, name) for kind in MECHANISMS if not kind.is_pure for name in kind.accountants]


def step_epsilon(name, budget, updates):
    """Of Laplace noise; for normal noise, μ of one step."""
    event = LAPLACE if name in ("basic", "theorem1", "kov") else GAUSSIAN
    return 1 / calibrate(budget, event, name, updates)[0].multiplier


# --- The paper's numbers ---


def test_theorem1_reproduces_the_step_of_the_paper():
    assert step_epsilon("theorem1", Budget(1.0, PAPER_DELTA), 10) == pytest.approx(0.1060, abs=5e-5)


def test_numerical_composition_allows_a_larger_step():
    events = calibrate(Budget(1.0, PAPER_DELTA), LAPLACE, "pld", 10)
    assert 1 / events[0].multiplier == pytest.approx(0.1687, abs=5e-5)


@pytest.mark.parametrize("delta", [PAPER_DELTA, 1e-5, 0.5])
def test_theorem1_is_the_formula(delta):
    """Written out term by term, as printed."""
    steps = [0.3, 0.05, 1.2, 0.11, 0.4]
    first = second = third = squares = 0.0
    for step in steps:
        first += step
        second += (math.exp(step) - 1) * step / (math.exp(step) + 1)
        third += (math.exp(step) - 1) * step / (math.exp(step) + 1)
        squares += step * step
    second += (2 * squares * math.log(math.e + math.sqrt(squares) / delta)) ** 0.5
    third += (2 * squares * math.log(1 / delta)) ** 0.5
    events = [Laplace(1.0, 1 / step) for step in steps]
    found = ACCOUNTANTS["theorem1"].epsilon(events, delta)
    assert found == pytest.approx(min(first, second, third), rel=1e-12)
    with_root_inside = sum(math.tanh(step / 2) * step for step in steps) + sum(
        math.sqrt(2 * squares * math.log(1 / delta)) for _ in steps
    )
    assert third < with_root_inside


def test_remark_spends_exactly_delta_with_exact_steps():
    events = [Gaussian(1.0, scale) for scale in (5.0, 8.0, 8.0, 20.0)]
    split = Remark().split(events, 1e-3)
    kept = (1 - split.slack_delta) * (1 - split.step_delta) ** 4
    assert 1 - kept == pytest.approx(1e-3, rel=1e-9)
    exact = [dp_accounting.get_epsilon_gaussian(event.scale, split.step_delta) for event in events]
    assert split.step_epsilons == pytest.approx(exact, rel=1e-9)
    if split.slack_delta == 0:
        assert split.epsilon == pytest.approx(sum(exact), rel=1e-9)


def test_remark_composes_many_steps_as_theorem1_does():
    events = [Gaussian(1.0, 200.0)] * 400
    split = Remark().split(events, 1e-3)
    assert split.slack_delta > 0
    pure = [Laplace(1.0, 1 / split.step_epsilons[0])] * 400
    assert split.epsilon == pytest.approx(ACCOUNTANTS["theorem1"].epsilon(pure, split.slack_delta))


# --- dp-accounting, within 0.5 % ---


def closest(value, percent):
    return pytest.approx(value, rel=percent / 100)


@pytest.mark.parametrize("updates", UPDATES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_gaussian_calibrations_agree_with_dp_accounting(budget, updates):
    exact = dp_accounting.get_sigma_gaussian(budget.epsilon, budget.delta) * math.sqrt(updates)
    assert 1 / step_epsilon("gdp", budget, updates) == pytest.approx(exact, rel=1e-9)
    assert 1 / step_epsilon("pld", budget, updates) == closest(exact, 0.5)
    orders = 1 + np.logspace(-2, 4, 4000)
    sigma = calibrate(budget, GAUSSIAN, "zcdp", updates)[0].multiplier
    divergences = orders * updates / (2 * sigma**2)
    assert compute_epsilon(orders.tolist(), divergences.tolist(), budget.delta)[0] == closest(
        budget.epsilon, 0.5
    )


@pytest.mark.parametrize("updates", UPDATES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_laplace_calibrations_agree_with_dp_accounting(budget, updates):
    found = calibrate(budget, LAPLACE, "pld", updates)[0].multiplier
    theirs = dp_accounting.calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=1 / found / 300),
        lambda parameter: dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(parameter), updates),
        budget.epsilon,
        budget.delta,
        dp_accounting.ExplicitBracketInterval(0.5 * found, 2 * found),
        tol=1e-5 * found,
    )
    assert found == closest(theirs, 0.5)


@pytest.mark.parametrize("updates", UPDATES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_kov_calibrations_agree_with_dp_accounting(budget, updates):
    step = step_epsilon("kov", budget, updates)
    worst = from_privacy_parameters(
        DifferentialPrivacyParameters(step, 0), value_discretization_interval=step / 300
    )
    assert worst.self_compose(updates).get_epsilon_for_delta(budget.delta) == closest(budget.epsilon, 0.5)


def test_a_mixture_agrees_with_dp_accounting():
    events = [*[Laplace(1.0, 8.0)] * 5, *[Gaussian(1.0, 6.0)] * 7, Gaussian(1.0, 3.0)]
    theirs = PLDAccountant(value_discretization_interval=1e-4)
    theirs.compose(dp_accounting.LaplaceDpEvent(8.0), 5)
    theirs.compose(dp_accounting.GaussianDpEvent(6.0), 7)
    theirs.compose(dp_accounting.GaussianDpEvent(3.0))
    found = ACCOUNTANTS["pld"].epsilon(events, 1e-5)
    assert found == closest(theirs.get_epsilon(1e-5), 0.5)


def test_zcdp_of_a_mixture_is_no_smaller_than_its_renyi_composition():
    events = [*[Laplace(1.0, 8.0)] * 5, *[Gaussian(1.0, 6.0)] * 7]
    theirs = RdpAccountant(orders=(1 + np.logspace(-2, 3, 2000)).tolist())
    theirs.compose(dp_accounting.LaplaceDpEvent(8.0), 5)
    theirs.compose(dp_accounting.GaussianDpEvent(6.0), 7)
    found = ACCOUNTANTS["zcdp"].epsilon(events, 1e-5)
    # Rényi divergences order by order say more than one ρ; ε²/2 for Laplace noise says less.
    assert theirs.get_epsilon(1e-5) * (1 - 1e-6) <= found
    assert found < zcdp_epsilon_of(5 / (2 * 8.0**2) + 7 / (2 * 6.0**2), 1e-5)


# --- prv-accountant and autodp, within 1 % ---


def prv_epsilon(variables, times, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant = PRVAccountant(
            variables, max_self_compositions=times, eps_error=2e-3, delta_error=1e-3 * delta
        )
        return accountant.compute_epsilon(delta, times)[1]


@pytest.mark.parametrize("budget", BUDGETS[:3])
def test_calibrations_agree_with_prv_accountant(budget):
    updates = 20
    laplace = calibrate(budget, LAPLACE, "pld", updates)[0]
    assert prv_epsilon([LaplaceMechanism(mu=1 / laplace.multiplier)], [updates], budget.delta) == closest(
        budget.epsilon, 1
    )
    pure = calibrate(budget, LAPLACE, "kov", updates)[0]
    assert prv_epsilon([PureDPMechanism(1 / pure.multiplier)], [updates], budget.delta) == closest(
        budget.epsilon, 1
    )
    for name in ("gdp", "pld"):
        gaussian = calibrate(budget, GAUSSIAN, name, updates)[0]
        variable = GaussianMechanism(noise_multiplier=gaussian.multiplier)
        assert prv_epsilon([variable], [updates], budget.delta) == closest(budget.epsilon, 1)


def test_a_mixture_agrees_with_prv_accountant():
    events = [*[Laplace(1.0, 8.0)] * 5, *[Gaussian(1.0, 6.0)] * 7]
    variables = [LaplaceMechanism(mu=1 / 8), GaussianMechanism(noise_multiplier=6.0)]
    theirs = prv_epsilon(variables, [5, 7], 1e-5)
    assert ACCOUNTANTS["pld"].epsilon(events, 1e-5) == closest(theirs, 1)


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_exact_gaussian_agrees_with_autodp(budget):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ana_gaussian_calibrator()(ExactGaussianMechanism, budget.epsilon, budget.delta)
    assert 1 / mu_of(budget.epsilon, budget.delta) == closest(theirs.params["sigma"], 1)


@pytest.mark.parametrize("epsilon", [0.01, 0.17, 1.0, 4.0])
def test_the_zcdp_cost_of_laplace_noise_bounds_every_renyi_divergence(epsilon):
    """ρ is the least number with D_α ≤ ρα for all α > 1, by autodp's formula of the divergences."""
    ratios = [RDP_laplace({"b": 1 / epsilon}, order) / order for order in 1 + np.logspace(-3, 3, 300)]
    assert max(ratios) <= Laplace(1.0, 1 / epsilon).rho
    assert max(ratios) == pytest.approx(Laplace(1.0, 1 / epsilon).rho, rel=2e-3)


@pytest.mark.parametrize("epsilon", [1e-100, 1e-17, 1e-16, 1e-12, 1e-8, 1e-5, 1e-3, 0.0099, 0.01, 0.1, 1.0])
def test_the_zcdp_cost_of_laplace_noise_is_never_lost_in_rounding(epsilon):
    """Against the series ε²/2! − ε³/3! + … in exact fractions."""
    exact = sum(Fraction(-1) ** k * Fraction(epsilon) ** k / math.factorial(k) for k in range(2, 30))
    assert Laplace(epsilon, 1.0).rho == pytest.approx(float(exact), rel=1e-13, abs=0)


def test_events_of_a_tiny_epsilon_are_not_free():
    """Their costs add up to what their ε²/2 add up to, and show once there are enough of them."""
    quiet = Laplace(1e-7, 1.0)
    assert Laplace(1e-16, 1.0).rho == pytest.approx(1e-32 / 2, rel=1e-12, abs=0)
    together = ACCOUNTANTS["zcdp"].epsilon([quiet] * 100_000, 1e-5)
    assert together == pytest.approx(zcdp_epsilon_of(100_000 * 1e-14 / 2, 1e-5), rel=1e-6, abs=0)
    assert together > ACCOUNTANTS["zcdp"].epsilon([quiet] * 50_000, 1e-5) > 0


# --- Integrals ---


def hockey_stick(density, epsilon, crossing, breaks=()):
    """∫(p(x) − e^ε p(x − 1))₊ dx for a law p at 0, whose two terms cross at `crossing`."""
    return quad(
        lambda x: max(0.0, density(x) - math.exp(epsilon) * density(x - 1)),
        -40,
        40,
        points=[crossing, *breaks],
        limit=400,
    )[0]


@pytest.mark.parametrize("delta", [0.1, PAPER_DELTA, 1e-4])
def test_one_laplace_event_has_its_exact_epsilon(delta):
    def integral(epsilon):
        return hockey_stick(
            lambda x: math.exp(-abs(x) / 0.8) / 1.6, epsilon, (1 - 0.8 * epsilon) / 2, breaks=(0, 1)
        )

    found = ACCOUNTANTS["pld"].epsilon([Laplace(1.0, 0.8)], delta)
    assert integral(found) <= delta * (1 + 1e-9)
    assert integral(found * (1 - 1e-4)) > delta


@pytest.mark.parametrize("name", ["gdp", "pld", "remark"])
@pytest.mark.parametrize("delta", [0.1, PAPER_DELTA, 1e-5])
def test_one_gaussian_event_has_its_exact_epsilon(name, delta):
    def integral(epsilon):
        return hockey_stick(
            lambda x: math.exp(-(x**2) / 12.5) / math.sqrt(12.5 * math.pi), epsilon, 0.5 - 6.25 * epsilon
        )

    found = ACCOUNTANTS[name].epsilon([Gaussian(1.0, 2.5)], delta)
    assert integral(found) <= delta * (1 + 1e-7)
    assert integral(found * (1 - 1e-4)) > delta


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_a_change_split_over_two_coordinates_costs_less(share):
    """The numerical integral over the plane lies below the curve of the undivided change."""
    scale, epsilon = 1.0, 0.3
    first, second = share, 1 - share

    def excess(y, x):
        here = math.exp(-(abs(x) + abs(y)) / scale)
        there = math.exp(-(abs(x - first) + abs(y - second)) / scale)
        return max(0.0, here - math.exp(epsilon) * there) / (4 * scale**2)

    divided = dblquad(excess, -12, 12, -12, 12, epsabs=2e-4)[0]
    undivided = 1 - math.exp(-(1 / scale - epsilon) / 2)
    assert divided < undivided - 1e-3


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.5])
@pytest.mark.parametrize("parts", [(1, 1), (3, 2), (5, 1), (2, 2, 1), (1, 1, 1, 1)])
def test_an_integer_change_split_over_coordinates_costs_less(rate, parts):
    """Every hockey-stick divergence of the split change, by enumeration, is at most that of the whole one."""
    losses, masses = np.array([0.0]), np.array([1.0])
    for part in parts:
        points = np.arange(part + 1)
        mass = dlaplace.pmf(points, rate)
        mass[0], mass[-1] = dlaplace.cdf(0, rate), dlaplace.sf(part - 1, rate)
        losses = np.add.outer(losses, rate * (part - 2 * points)).ravel()
        masses = np.multiply.outer(masses, mass).ravel()
    total = sum(parts)
    outputs = np.arange(-3000, 3000)
    here, there = dlaplace.pmf(outputs, rate), dlaplace.pmf(outputs - total, rate)
    for epsilon in np.linspace(-total * rate, total * rate, 41):
        split = float((masses * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum())
        assert split <= (here - math.exp(epsilon) * there).clip(0).sum() + 1e-12


# --- What all of them share ---


def test_tighter_accountants_need_less_noise():
    budget = Budget(1.0, 1e-5)
    for names, event in (
        (("basic", "theorem1", "kov", "pld"), LAPLACE),
        (("remark", "zcdp", "gdp"), GAUSSIAN),
    ):
        noises = [calibrate(budget, event, name, 50)[0].scale for name in names]
        assert noises == sorted(noises, reverse=True)


def test_numerical_composition_is_never_below_the_exact_one():
    for scale, updates, delta in itertools.product((0.5, 4.0, 50.0), (1, 30), (1e-3, 1e-6, 1e-9)):
        events = [Gaussian(1.0, scale)] * updates
        exact = ACCOUNTANTS["gdp"].epsilon(events, delta)
        found = ACCOUNTANTS["pld"].epsilon(events, delta)
        assert exact <= found <= exact * 1.002 + 1e-9


@every_proof
@pytest.mark.parametrize("costs", [(1.0,) * 6, (1.0, 2.0, 4.0, 1.5)])
def test_a_calibration_fits_and_is_the_least_noise(mechanism, on_grid, accountant, costs):
    check_calibration(MECHANISMS[mechanism](2.0, 1.0, 0.01 if on_grid else None, 3), accountant, costs)


def check_calibration(event, name, costs):
    costs = costs_for(name, costs)
    budget = Budget(0.8, 1e-4)
    accountant = ACCOUNTANTS[name]
    events = calibrate(budget, event, name, costs)
    assert accountant.epsilon(events, budget.delta) <= budget.epsilon
    assert [e.sensitivity for e in events] == [2.0] * len(costs)
    assert all((e.grid, e.dimension) == (event.grid, event.dimension) for e in events)
    relative = [events[0].multiplier / e.multiplier for e in events]
    assert relative == pytest.approx([cost / costs[0] for cost in costs])
    less = [e.with_multiplier(e.multiplier * (1 - 1e-5)) for e in events]
    assert accountant.epsilon(less, budget.delta) > budget.epsilon


def test_agents_that_share_budget_and_schedule_share_the_search():
    budget = Budget(0.77, 1e-5)
    calibrate(budget, Laplace(2 / 17, 1.0), "pld", 7)
    before = calibration._rate.cache_info()
    for samples in range(20, 40):
        calibrate(budget, Laplace(2 / samples, 1.0), "pld", 7)
    after = calibration._rate.cache_info()
    assert after.misses == before.misses
    assert after.hits == before.hits + 20


def test_pure_events_at_delta_zero_add_up():
    for name in ("basic", "theorem1", "kov", "pld"):
        (event, *_) = calibrate(Budget(1.0), LAPLACE, name, 8)
        assert 1 / event.multiplier == pytest.approx(1 / 8, rel=1e-6)


@pytest.mark.parametrize(("kind", "name"), NOT_PURE)
def test_noise_that_is_not_pure_never_has_delta_zero(kind, name):
    event = kind(2.0, 1.0)
    assert ACCOUNTANTS[name].epsilon([event], 0.0) == math.inf
    with pytest.raises(PrivacyError, match="delta"):
        calibrate(Budget(1.0), event, name, 3)


@pytest.mark.parametrize("name", ["gdp", "pld", "remark"])
def test_normal_noise_on_a_grid_is_accounted_by_zcdp_only(name):
    event = Gaussian(1.0, 5.0, grid=0.01)
    with pytest.raises(PrivacyError, match=f"'{name}' is not proven for gaussian noise on a grid; use zcdp"):
        ACCOUNTANTS[name].epsilon([event], 1e-5)
    assert ACCOUNTANTS["zcdp"].epsilon([event], 1e-5) == pytest.approx(zcdp_epsilon_of(1 / 50, 1e-5))


@every_missing_proof
def test_noise_for_which_an_accountant_is_not_proven_is_refused(mechanism, on_grid, accountant):
    kind = MECHANISMS[mechanism]
    if on_grid and not kind.grid_accountants:
        return  # there is not even such an event
    event = kind(1.0, 1.0, 0.01 if on_grid else None, 2)
    words = f"accountant='{accountant}' is not proven for {mechanism} noise"
    with pytest.raises(PrivacyError, match=words):
        ACCOUNTANTS[accountant].epsilon([event], 1e-5)
    with pytest.raises(PrivacyError, match=words):
        calibrate(Budget(1.0, 1e-5), event, accountant, 2)


def test_kov_refuses_unequal_steps():
    with pytest.raises(PrivacyError, match="equal steps"):
        ACCOUNTANTS["kov"].epsilon([Laplace(1.0, 2.0), Laplace(1.0, 2.1)], 1e-5)


def test_pld_refuses_a_delta_that_it_cannot_resolve():
    with pytest.raises(PrivacyError, match="resolves a delta"):
        ACCOUNTANTS["pld"].epsilon([GAUSSIAN], LEAST_DELTA / 2)


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        (0, "at least one release, got releases=0"),
        (-1, "at least one release"),
        ([], "at least one release"),
        ([1.0, 0.0], "got 0.0 for release 2"),
        ([1.0, math.nan], "release 2"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(releases, words):
    with pytest.raises(PrivacyError, match=words):
        calibrate(Budget(1.0, 1e-5), LAPLACE, "basic", releases)


@pytest.mark.parametrize("name", ACCOUNTANTS.names)
def test_no_releases_cost_nothing(name):
    assert ACCOUNTANTS[name].epsilon([], 1e-5) == 0


@pytest.mark.parametrize("name", ACCOUNTANTS.names)
def test_an_accountant_is_known_by_its_name_and_called_by_its_label(name):
    accountant = ACCOUNTANTS[name]
    assert accountant.name == name
    assert accountant.label
    assert len({one.label for one in ACCOUNTANTS}) == len(ACCOUNTANTS)
    kind = next(kind for kind in MECHANISMS if name in kind.accountants)
    events = (kind(1.0, 9.0),) * 3
    assert composed_epsilon(name, events, 1e-5) == accountant.epsilon(events, 1e-5)


@every_proof
def test_what_an_event_costs_depends_on_noise_over_sensitivity_alone(mechanism, on_grid, accountant):
    """So a plan can hold ratios: the same ε for any sensitivity and, on a grid, for any step of it."""
    kind, grids = MECHANISMS[mechanism], (2.0**-20, 2.0**-4, 1.0) if on_grid else (None,)
    found = {
        ACCOUNTANTS[accountant].epsilon([kind(sensitivity, 4 * sensitivity, grid, dimension)] * 5, 1e-5)
        for sensitivity in (2.0**-9, 1.0, 2.0**7)  # powers of two, so that the ratios are the same digits
        for grid in grids
        for dimension in (1, 40)
    }
    assert len(found) == 1


def test_an_unknown_accountant_is_named():
    with pytest.raises(PrivacyError, match=r"no accountant 'moments'; choose one of basic"):
        _ = ACCOUNTANTS["moments"]


@pytest.mark.parametrize("delta", [0.3, PAPER_DELTA, 1e-5, 1e-12])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 20.0])
def test_mu_and_rho_of_a_budget_give_that_budget_back(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert log_delta(epsilon, mu) == pytest.approx(math.log(delta), rel=1e-6)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert zcdp_epsilon_of(rho_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("delta", [0.3, PAPER_DELTA, 1e-5, 1e-12])
@pytest.mark.parametrize("epsilon", np.logspace(-3, 1.3, 12))
def test_inverses_end_on_the_safe_side(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert log_delta(epsilon, mu) <= math.log(delta)
    assert log_delta(epsilon_of(mu, delta), mu) <= math.log(delta)
    assert zcdp_epsilon_of(rho_of(epsilon, delta), delta) <= epsilon


@pytest.mark.parametrize("rho_value", [1e-8, 1e-3, 0.5, 30.0])
@pytest.mark.parametrize("delta", [0.2, 1e-5, 1e-12])
def test_no_order_of_a_dense_grid_beats_the_order_found(rho_value, delta):
    """The conversion of Canonne, Kamath and Steinke, Cor. 13, solved for ε, at 100,000 orders."""
    excess = np.logspace(-8, 12, 100_000)
    orders = 1 + excess
    values = (
        orders * rho_value + (np.log(1 / delta) + orders * np.log1p(-1 / orders) - np.log(excess)) / excess
    )
    assert zcdp_epsilon_of(rho_value, delta) == pytest.approx(max(0.0, values.min()), rel=1e-5, abs=1e-12)
