"""Budgets are kept: by plans and by gates, for any noise, any samples, in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flockwise.errors import BudgetSpent, PrivacyError
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Bounded, Gate, Rows
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import MECHANISMS, Gaussian, Laplace, accountants_of
from flockwise.privacy.noise import SecureNoise, SimulatedNoise
from flockwise.privacy.plan import Plan

# kov composes equal steps only.
PROVEN = [
    (name, on_grid, accountant)
    for name in MECHANISMS.names
    for on_grid in (False, True)
    for accountant in accountants_of(name, on_grid=on_grid)
    if accountant != "kov"
]
NUMERICAL = 1e-5  # numerical composition is right to so much, always on the safe side

budgets = st.builds(Budget, st.floats(0.05, 5), st.sampled_from([0.05, 6.7e-3, 1e-4, 1e-5, 1e-8]))
multipliers = st.floats(0.5, 100)
proven = st.sampled_from(PROVEN)
mixed = st.builds(
    lambda kind, multiplier: kind(0.3, 1.0).with_multiplier(multiplier),
    st.sampled_from([Laplace, Gaussian]),
    multipliers,
)
gridded = st.builds(
    lambda multiplier, steps: Laplace(0.3, 1.0, grid=0.3 / steps).with_multiplier(multiplier),
    multipliers,
    st.integers(1, 30),
)


def unit(name, on_grid, multiplier=1.0):
    """An event of sensitivity 1."""
    return MECHANISMS[name](1.0, multiplier, 2.0**-20 if on_grid else None)


@st.composite
def accounted(draw, most=5):
    """An accountant with events that it covers: of one noise, or for some of them a mixture."""
    if draw(st.booleans()):
        name, on_grid, accountant = draw(proven)
        kind = st.builds(lambda multiplier: unit(name, on_grid, multiplier), multipliers)
    else:
        accountant = draw(st.sampled_from(["pld", "zcdp"]))
        kind = mixed if accountant == "pld" else mixed | gridded
    return ACCOUNTANTS[accountant], draw(st.lists(kind, min_size=1, max_size=most))


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
    accountant = ACCOUNTANTS[name]
    whole = accountant.epsilon([Gaussian(1.0, multiplier)], delta)
    split = accountant.epsilon([Gaussian(1.0, multiplier * parts**0.5)] * parts, delta)
    assert split == pytest.approx(whole, rel=2e-3 if name == "pld" else 1e-9, abs=1e-9)


@settings(max_examples=60)
@given(budgets, proven, st.lists(st.floats(0.1, 10), min_size=1, max_size=5))
def test_plans_never_overspend_and_waste_nothing(budget, case, costs):
    name, on_grid, accountant = case
    plan = Plan.fitting(budget, name, costs, accountant=accountant, on_grid=on_grid)
    assert len(plan) == len(costs)
    spent = [plan.epsilon_after(count) for count in range(len(costs) + 1)]
    assert all(0 <= cost <= budget.epsilon for cost in spent)
    assert spent[-1] >= budget.epsilon * (1 - 1e-4)
    assert Plan.from_json(plan.to_json()) == plan


@settings(max_examples=60)
@given(budgets, proven, st.lists(multipliers, min_size=1, max_size=5), st.floats(1e-6, 0.5))
def test_what_fits_is_exactly_what_is_within_the_budget(budget, case, chosen, shortfall):
    name, on_grid, accountant = case
    events = [unit(name, on_grid, multiplier) for multiplier in chosen]
    cost = ACCOUNTANTS[accountant].epsilon(events, budget.delta)
    assume(cost > 1e-9)
    Plan(Budget(cost, budget.delta), name, accountant, tuple(chosen), on_grid)
    with pytest.raises(PrivacyError, match="more than the budget"):
        Plan(Budget(cost * (1 - shortfall), budget.delta), name, accountant, tuple(chosen), on_grid)


rows = st.builds(
    lambda samples, clip, dimension: Rows(
        lambda released: np.ones((samples, dimension)), clip, samples, dimension
    ),
    st.integers(1, 500),
    st.floats(1e-3, 1e3),
    st.integers(1, 4),
)
vectors = st.builds(
    lambda bound, dimension: Bounded(np.ones(dimension), bound), st.floats(1e-3, 1e3), st.integers(1, 4)
)


@settings(max_examples=60)
@given(
    budgets,
    proven,
    st.lists(st.floats(0.1, 10), min_size=1, max_size=5),
    st.lists(rows | vectors, min_size=6, max_size=8),
)
def test_gates_never_overspend_whatever_they_are_asked_to_release(budget, case, costs, asked):
    """Rows and vectors of any number, bound and dimension, and more of them than are planned.

    What was spent is composed from the events in the ledger.
    """
    name, on_grid, accountant = case
    plan = Plan.fitting(budget, name, costs, accountant=accountant, on_grid=on_grid)
    ledger = MemoryLedger("anna")
    gate = Gate(plan, ledger, SecureNoise() if on_grid else SimulatedNoise(0, 0))
    n_refused = 0
    for value in asked:
        allowed = not gate.is_spent
        try:
            gate.release(value)
            assert allowed
        except BudgetSpent:
            assert not allowed
            n_refused += 1
        events = [entry.event for entry in ledger.entries]
        total = ACCOUNTANTS[accountant].epsilon(events, budget.delta)
        assert total <= budget.epsilon
        assert total == pytest.approx(gate.epsilon_spent, rel=1e-9)
    assert len(ledger.entries) == len(costs)
    assert len(ledger.entries) + n_refused == len(asked)
