"""Plans: what fits is a plan, what does not is refused, and nothing changes on the way through a file."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import cast

import numpy as np
import pytest
from tests.unit.privacy.proven import WITH_INTEGERS, events_of, every_mechanism, every_noise, every_proof

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, math.exp(-5))


def fitted(mechanism, on_grid, accountant, releases=10):
    return Plan.fitting(BUDGET, mechanism, releases, accountant=accountant, on_grid=on_grid)


@every_proof
def test_a_bit_less_noise_is_not_a_plan(mechanism, on_grid, accountant):
    """A seeded bug of one part in 100,000 is caught."""
    plan = fitted(mechanism, on_grid, accountant)
    assert plan.epsilon_after(10) <= BUDGET.epsilon
    with pytest.raises(PrivacyError, match="more than the budget"):
        dataclasses.replace(plan, multipliers=tuple(m * (1 - 1e-5) for m in plan.multipliers))


@every_proof
def test_the_usual_mistakes_are_not_plans(mechanism, on_grid, accountant):
    """A forgotten factor 2 in the sensitivity, one release too many, noise made for no composition."""
    plan = fitted(mechanism, on_grid, accountant)
    alone = fitted(mechanism, on_grid, accountant, 1)
    wrong = [
        tuple(multiplier / 2 for multiplier in plan.multipliers),
        (*plan.multipliers, plan.multipliers[0]),
        alone.multipliers * 10,
    ]
    for multipliers in wrong:
        with pytest.raises(PrivacyError, match="more than the budget"):
            Plan(BUDGET, mechanism, accountant, multipliers, on_grid)


@every_proof
def test_spending_grows_with_every_release_up_to_the_budget(mechanism, on_grid, accountant):
    plan = fitted(mechanism, on_grid, accountant, 6)
    assert len(plan) == 6
    spent = [plan.epsilon_after(releases) for releases in range(7)]
    assert spent[0] == 0
    assert all(earlier < later for earlier, later in itertools.pairwise(spent))
    assert spent[-1] == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert spent[-1] <= BUDGET.epsilon


@every_proof
def test_a_plan_comes_back_from_json_as_it_was(mechanism, on_grid, accountant):
    plan = fitted(mechanism, on_grid, accountant, 7)
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("costs", [[1.0, 2.0, 3.0], [0.8**k for k in range(9, -1, -1)]])
def test_a_plan_of_unequal_releases_comes_back_from_json_as_it_was(costs):
    plan = Plan.fitting(BUDGET, "gaussian", costs)
    assert Plan.from_json(plan.to_json()) == plan
    assert len(set(plan.multipliers)) == len(costs)


def test_a_plan_of_a_thousand_equal_releases_is_short():
    plan = Plan.fitting(BUDGET, "gaussian", 1000)
    assert len(plan.to_json()) < 300
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda document: document["multipliers"][0].__setitem__(1, 8), "more than the budget"),
        (lambda document: document["multipliers"][0].__setitem__(0, 1.0), "more than the budget"),
        (lambda document: document.update(epsilon=0.9), "more than the budget"),
        (lambda document: document.update(accountant="gdp"), "not proven for laplace noise"),
        (lambda document: document.update(on_grid=True), "not proven for laplace noise on a grid"),
        (lambda document: document.update(mechanism="gaussian"), "more than the budget"),
    ],
)
def test_a_plan_that_was_tampered_with_is_refused(change, complaint):
    document = json.loads(Plan.fitting(BUDGET, "laplace", 7, accountant="pld").to_json())
    change(document)
    with pytest.raises(PrivacyError, match=rf"cannot read the plan: .*{complaint}"):
        Plan.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"epsilon": 1, "delta": 0, "accountant": "basic"}'])
def test_what_is_not_a_plan_is_refused(text):
    with pytest.raises(PrivacyError, match="cannot read the plan"):
        Plan.from_json(text)


def test_no_more_releases_can_be_consumed_than_there_are():
    plan = Plan.fitting(BUDGET, "laplace", 3, accountant="basic")
    for releases in (4, -1):
        with pytest.raises(PrivacyError, match="from 0 to the 3 of the plan"):
            plan.epsilon_after(releases)


@pytest.mark.parametrize("releases", [0, -1, []])
def test_a_plan_has_at_least_one_release(releases):
    with pytest.raises(PrivacyError, match=r"at least one release|must not be empty"):
        Plan.fitting(BUDGET, "gaussian", releases)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_a_multiplier_is_positive_and_finite(multiplier):
    with pytest.raises(PrivacyError, match="scale must be positive and finite"):
        Plan(BUDGET, "gaussian", "gdp", (50.0, multiplier))


def test_the_plan_of_a_late_heavy_schedule_follows_its_costs():
    costs = [0.8**k for k in range(9, -1, -1)]
    plan = Plan.fitting(BUDGET, "gaussian", costs, accountant="gdp")
    noises = list(plan.multipliers)
    assert noises == sorted(noises, reverse=True)
    assert noises[0] / noises[-1] == pytest.approx(0.8**-9)
    assert [cost / plan.costs[-1] for cost in plan.costs] == pytest.approx(costs)


@every_proof
def test_scaling_to_a_sensitivity_never_rounds_a_release_past_its_cost(mechanism, on_grid, accountant):
    """Not in the last digit, whichever way the ratio of noise and sensitivity is computed."""
    for epsilon, releases in ((0.15, 10), (1.05, 8), (1.0, 3)):
        budget = Budget(epsilon, math.exp(-5))
        plan = Plan.fitting(budget, mechanism, releases, accountant=accountant, on_grid=on_grid)
        multiplier = plan.multipliers[0]
        for samples in range(1, 301):
            event = events_of(plan, [samples])[0]
            assert event.multiplier >= multiplier
            assert event.sensitivity / event.scale <= 1 / multiplier
            assert event.multiplier == pytest.approx(multiplier, rel=1e-15)


@every_proof
def test_releases_of_one_number_of_samples_cost_together_what_the_plan_says(mechanism, on_grid, accountant):
    """Composed from the events themselves, for every number of samples from 1 to 300."""
    plan = fitted(mechanism, on_grid, accountant, 3)
    for samples in range(1, 301, 1 if accountant != "pld" else 29):
        found = ACCOUNTANTS[accountant].epsilon(events_of(plan, [samples] * 3), BUDGET.delta)
        assert found <= BUDGET.epsilon
        assert found == pytest.approx(plan.epsilon_after(3), rel=1e-12)


@every_noise
def test_a_plan_on_a_grid_makes_events_on_a_grid_and_no_others(mechanism, on_grid):
    if on_grid and not MECHANISMS[mechanism].grid_accountants:
        with pytest.raises(PrivacyError, match="has no integer version"):
            Plan.fitting(BUDGET, mechanism, 2, on_grid=True)
        return
    plan = Plan.fitting(BUDGET, mechanism, 2, on_grid=on_grid)
    event = plan.event(2, 0.25, 5, 2.0**-20 if on_grid else None)
    assert (event.name, event.sensitivity, event.dimension) == (mechanism, 0.25, 5)
    assert event.grid == (2.0**-20 if on_grid else None)
    with pytest.raises(PrivacyError, match=r"this plan is for noise o(n|ff) a grid"):
        plan.event(2, 0.25, 5, None if on_grid else 2.0**-20)


@every_mechanism
def test_a_plan_for_real_agents_has_the_same_budget_and_relative_costs(kind):
    plan = Plan.fitting(BUDGET, kind.name, [1.0, 2.0, 4.0])
    real = plan.for_real_agents()
    if kind not in WITH_INTEGERS:
        assert real is None
        return
    assert real is not None
    assert (real.budget, real.mechanism, real.on_grid) == (BUDGET, kind.name, True)
    relative = [cost / real.costs[0] for cost in real.costs]
    assert relative == pytest.approx([1.0, 2.0, 4.0])
    assert real.epsilon_after(3) == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert real.multipliers[0] >= plan.multipliers[0], "what is proven for integers costs no less"


def test_a_plan_without_a_release_is_refused():
    with pytest.raises(PrivacyError, match="at least one release, got none"):
        Plan(BUDGET, "gaussian", "gdp", ())


@pytest.mark.parametrize("number", [-1, 0, 4])
def test_a_release_that_is_not_in_the_plan_has_no_event(number):
    with pytest.raises(PrivacyError, match=f"release {number} is not one of the 3 of this plan"):
        Plan.fitting(BUDGET, "gaussian", 3).event(number, 1.0, 2)


def test_numbers_of_numpy_are_numbers():
    assert Plan.fitting(BUDGET, "gaussian", cast(int, np.int64(3))) == Plan.fitting(BUDGET, "gaussian", 3)
