"""Budgets are kept: by plans, by filters, for any events, in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flockwise.errors import BudgetSpent, PrivacyError
from flockwise.privacy.accounting import accountant_by_name, calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.filters import GdpFilter, PureFilter, ZcdpFilter, filter_from_json
from flockwise.privacy.mechanisms import Gaussian, Laplace
from flockwise.privacy.plan import Plan

LAPLACE_ACCOUNTANTS = ("basic", "theorem1", "zcdp", "pld")
GAUSSIAN_ACCOUNTANTS = ("remark", "zcdp", "gdp", "pld")
NUMERICAL = 1e-5  # numerical composition is right to so much, always on the safe side

budgets = st.builds(Budget, st.floats(0.05, 5), st.sampled_from([0.05, 6.7e-3, 1e-4, 1e-5, 1e-8]))
multipliers = st.floats(0.5, 100)
laplaces = st.builds(lambda m: Laplace(0.3, 1.0).with_multiplier(m), multipliers)
gaussians = st.builds(lambda m: Gaussian(0.3, 1.0).with_multiplier(m), multipliers)
gridded = st.builds(
    lambda m, steps: Laplace(0.3, 1.0, grid=0.3 / steps).with_multiplier(m), multipliers, st.integers(1, 30)
)


@st.composite
def accounted(draw, most=5):
    """An accountant with events that it covers."""
    kind, names = draw(
        st.sampled_from(
            [
                (laplaces, LAPLACE_ACCOUNTANTS),
                (gaussians, GAUSSIAN_ACCOUNTANTS),
                (laplaces | gaussians | gridded, ("pld", "zcdp")),
            ]
        )
    )
    events = draw(st.lists(kind, min_size=1, max_size=most))
    return accountant_by_name(draw(st.sampled_from(names))), events


deltas = st.sampled_from([0.05, 1e-3, 1e-5, 1e-8])


@settings(max_examples=60)
@given(accounted(), deltas, st.randoms(use_true_random=False))
def test_order_makes_no_difference(case, delta, shuffler):
    accountant, events = case
    shuffled = list(events)
    shuffler.shuffle(shuffled)
    assert accountant.epsilon(shuffled, delta) == accountant.epsilon(events, delta)


@settings(max_examples=60)
@given(accounted(), deltas, st.floats(1.001, 3), st.data())
def test_more_noise_never_costs_more(case, delta, factor, data):
    accountant, events = case
    chosen = data.draw(st.integers(0, len(events) - 1))
    quieter = list(events)
    quieter[chosen] = events[chosen].with_multiplier(events[chosen].multiplier * factor)
    before, after = accountant.epsilon(events, delta), accountant.epsilon(quieter, delta)
    assert after <= before * (1 + (NUMERICAL if accountant.name == "pld" else 1e-12))


@settings(max_examples=60)
@given(accounted(), deltas)
def test_one_event_more_never_costs_less(case, delta):
    accountant, events = case
    before, after = accountant.epsilon(events[:-1], delta), accountant.epsilon(events, delta)
    assert after >= before * (1 - (NUMERICAL if accountant.name == "pld" else 1e-12))


@settings(max_examples=40)
@given(multipliers, st.integers(2, 6), deltas, st.sampled_from(["gdp", "zcdp", "pld"]))
def test_normal_noise_may_be_split_into_noisier_parts(multiplier, parts, delta, name):
    """k events with √k times the noise cost as much as one: what splitting a budget relies on."""
    accountant = accountant_by_name(name)
    whole = accountant.epsilon([Gaussian(1.0, multiplier)], delta)
    split = accountant.epsilon([Gaussian(1.0, multiplier * parts**0.5)] * parts, delta)
    assert split == pytest.approx(whole, rel=2e-3 if name == "pld" else 1e-9, abs=1e-9)


@settings(max_examples=60)
@given(
    budgets,
    st.sampled_from(
        [(n, Laplace(0.3, 1.0)) for n in LAPLACE_ACCOUNTANTS]
        + [(n, Gaussian(0.3, 1.0)) for n in GAUSSIAN_ACCOUNTANTS]
    ),
    st.lists(st.floats(0.1, 10), min_size=1, max_size=5),
    st.floats(1e-3, 1e3),
)
def test_plans_never_overspend_and_waste_nothing(budget, case, costs, sensitivity):
    name, event = case
    unit = type(event)(sensitivity, 1.0)
    plan = Plan.fitting(budget, unit, accountant=name, costs=costs)
    assert len(plan.events) == len(costs)
    spent = [plan.epsilon_spent(count) for count in range(len(costs) + 1)]
    assert all(0 <= cost <= budget.epsilon for cost in spent)
    assert spent[-1] >= budget.epsilon * (1 - 1e-4)
    assert Plan.from_json(plan.to_json()) == plan


@settings(max_examples=60)
@given(budgets, accounted(), st.floats(1e-6, 0.5))
def test_what_fits_is_exactly_what_is_within_the_budget(budget, case, shortfall):
    accountant, events = case
    cost = accountant.epsilon(events, budget.delta)
    assume(cost > 1e-9)
    Plan(Budget(cost, budget.delta), accountant.name, tuple(events))
    with pytest.raises(PrivacyError):
        Plan(Budget(cost * (1 - shortfall), budget.delta), accountant.name, tuple(events))


@settings(max_examples=60)
@given(budgets, st.integers(0, 2**32), st.sampled_from([GdpFilter, ZcdpFilter, PureFilter]))
def test_filters_never_overspend_whatever_is_asked_of_them(budget, seed, kind):
    """Noise chosen at random as it goes; refused events are tried again with other noise."""
    accountant, event = {
        GdpFilter: ("gdp", Gaussian(0.3, 1.0)),
        ZcdpFilter: ("zcdp", Gaussian(0.3, 1.0, grid=1e-6)),
        PureFilter: ("basic", Laplace(0.3, 1.0)),
    }[kind]
    choose = random.Random(seed)
    (alone,) = calibrate(budget, event, accountant, updates=1)
    spending, n_refused = kind(budget), 0
    for _ in range(60):
        asked = event.with_multiplier(alone.multiplier * choose.uniform(0.8, 12))
        allowed = spending.allows(asked)
        try:
            spending.charge(asked)
            assert allowed
        except BudgetSpent:
            assert not allowed
            n_refused += 1
        assert spending.epsilon_spent <= budget.epsilon
    assert len(spending.events) + n_refused == 60
    total = accountant_by_name(accountant).epsilon(spending.events, budget.delta)
    assert total <= budget.epsilon
    assert total == pytest.approx(spending.epsilon_spent, rel=1e-9)
    assert filter_from_json(spending.to_json()).events == spending.events
