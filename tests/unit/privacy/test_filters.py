"""Filters: spending decided as it goes never passes the budget, and uses all of it."""

from __future__ import annotations

import math

import pytest

from flockwise.errors import BudgetSpent, PrivacyError
from flockwise.privacy.accounting import accountant_by_name, calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.filters import GdpFilter, PureFilter, ZcdpFilter, filter_from_json
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace

BUDGET = Budget(1.0, 1e-5)
FILTERS = [
    (GdpFilter, "gdp", Gaussian(0.1, 1.0)),
    (ZcdpFilter, "zcdp", Gaussian(0.1, 1.0, grid=1e-5)),
    (ZcdpFilter, "zcdp", Laplace(0.1, 1.0)),
    (PureFilter, "basic", Laplace(0.1, 1.0, grid=1e-5)),
    (PureFilter, "basic", KNorm(0.1, 1.0, dimension=4)),
]


@pytest.mark.parametrize(("kind", "accountant", "event"), FILTERS)
def test_a_filter_allows_what_a_plan_of_the_same_events_would(kind, accountant, event):
    """Deciding as one goes costs nothing beside the plan under the same rule."""
    events = calibrate(BUDGET, event.with_multiplier(1.0), accountant, updates=10)
    # Limit and noise are both found on the safe side, so that the last of them may miss by rounding.
    slightly_more = [e.with_multiplier(e.multiplier * (1 + 1e-8)) for e in events]
    spending = kind(BUDGET)
    assert spending.epsilon_spent == 0
    for one in slightly_more:
        spending.charge(one)
    assert spending.epsilon_spent == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert spending.epsilon_spent <= BUDGET.epsilon
    assert accountant_by_name(accountant).epsilon(spending.events, BUDGET.delta) <= BUDGET.epsilon
    assert not spending.allows(events[0].with_multiplier(events[0].multiplier * 1000))
    with pytest.raises(BudgetSpent, match="stay silent"):
        spending.charge(events[0])
    assert len(spending.events) == 10


@pytest.mark.parametrize(("kind", "accountant", "event"), FILTERS)
def test_a_filter_goes_on_after_a_restart(kind, accountant, event):
    spending = kind(BUDGET)
    quiet = event.with_multiplier(50.0)
    while spending.allows(quiet):
        spending.charge(quiet)
    again = filter_from_json(spending.to_json())
    assert type(again) is kind
    assert again.events == spending.events
    assert again.epsilon_spent == spending.epsilon_spent
    assert not again.allows(quiet)


def test_ten_tenths_are_one():
    spending = PureFilter(Budget(1.0))
    for _ in range(10):
        spending.charge(Laplace(0.1, 1.0))
    assert spending.epsilon_spent == 1.0
    assert not spending.allows(Laplace(1e-12, 1.0))


def test_a_refused_charge_costs_nothing():
    spending = PureFilter(Budget(1.0))
    spending.charge(Laplace(0.6, 1.0))
    with pytest.raises(BudgetSpent):
        spending.charge(Laplace(0.6, 1.0))
    spending.charge(Laplace(0.3, 1.0))
    assert spending.epsilon_spent == pytest.approx(0.9)


def test_a_zcdp_filter_mixes_mechanisms():
    spending = ZcdpFilter(BUDGET)
    events = [Gaussian(1.0, 9.0), Laplace(1.0, 9.0), Gaussian(1.0, 9.0, grid=0.01)]
    for event in events:
        spending.charge(event)
    assert spending.epsilon_spent == accountant_by_name("zcdp").epsilon(events, BUDGET.delta)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GdpFilter(Budget(1.0)), "delta above 0"),
        (lambda: ZcdpFilter(Budget(1.0)), "delta above 0"),
        (lambda: GdpFilter(BUDGET).allows(Gaussian(1.0, 9.0, grid=0.1)), "on a grid"),
        (lambda: GdpFilter(BUDGET).allows(Laplace(1.0, 9.0)), "gaussian events"),
        (lambda: PureFilter(BUDGET).allows(Gaussian(1.0, 9.0)), "pure events"),
        (lambda: filter_from_json('{"filter": "pld"}'), "no filter"),
        (lambda: filter_from_json("[]"), "no filter"),
    ],
)
def test_what_a_filter_cannot_do_is_refused(make, words):
    with pytest.raises(PrivacyError, match=words):
        make()


def test_a_tampered_list_of_charges_does_not_load():
    spending = PureFilter(Budget(1.0), [Laplace(0.5, 1.0)] * 2)
    with pytest.raises(BudgetSpent):
        filter_from_json(spending.to_json().replace('"times": 2', '"times": 3'))


def test_the_limit_is_that_of_the_whole_budget():
    """One normal event at the exact calibration fits, and one with a hair less noise does not."""
    (event,) = calibrate(BUDGET, Gaussian(1.0, 1.0), "gdp", updates=1)
    assert GdpFilter(BUDGET).allows(event.with_multiplier(event.multiplier * (1 + 1e-9)))
    assert not GdpFilter(BUDGET).allows(event.with_multiplier(event.multiplier * (1 - 1e-9)))
    assert math.isclose(1 / event.multiplier, 0.268051, rel_tol=1e-5)
