"""Plans: what fits is a plan, what does not is refused, and nothing changes on the way through a file."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest

from flockwise.errors import PrivacyError
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace
from flockwise.privacy.noise_plan import plan_noise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, math.exp(-5))
PLANS = [
    *((name, Laplace(0.02, 1.0)) for name in ("basic", "theorem1", "kov", "zcdp", "pld")),
    *((name, Gaussian(0.02, 1.0)) for name in ("remark", "zcdp", "gdp", "pld")),
    ("zcdp", Gaussian(0.02, 1.0, grid=1e-4)),
    ("pld", Laplace(0.02, 1.0, grid=1e-4)),
    ("basic", KNorm(0.02, 1.0, dimension=5)),
]


@pytest.mark.parametrize(("name", "event"), PLANS)
def test_a_bit_less_noise_is_no_plan(name, event):
    """A seeded bug of one part in 100,000 is caught, and so is each event of a plan that has it."""
    plan = Plan.fitting(BUDGET, event, accountant=name, updates=10)
    assert plan.epsilon_spent(10) <= BUDGET.epsilon
    with pytest.raises(PrivacyError, match="more than the budget"):
        dataclasses.replace(
            plan, events=tuple(e.with_multiplier(e.multiplier * (1 - 1e-5)) for e in plan.events)
        )


@pytest.mark.parametrize(("name", "event"), PLANS)
def test_the_usual_mistakes_are_no_plans(name, event):
    """A forgotten factor 2 in the sensitivity, one update too many, noise made for no composition."""
    plan = Plan.fitting(BUDGET, event, accountant=name, updates=10)
    (alone,) = Plan.fitting(BUDGET, event, accountant=name, updates=1).events
    wrong = [
        tuple(dataclasses.replace(e, sensitivity=2 * e.sensitivity) for e in plan.events),
        (*plan.events, plan.events[0]),
        (alone,) * 10,
    ]
    for events in wrong:
        with pytest.raises(PrivacyError, match="more than the budget"):
            Plan(BUDGET, name, events)


@pytest.mark.parametrize(("name", "event"), PLANS)
def test_spending_grows_with_every_event_up_to_the_budget(name, event):
    plan = Plan.fitting(BUDGET, event, accountant=name, updates=6)
    spent = [plan.epsilon_spent(consumed) for consumed in range(7)]
    assert spent[0] == 0
    assert all(earlier < later for earlier, later in itertools.pairwise(spent))
    assert spent[-1] == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert spent[-1] <= BUDGET.epsilon


def test_a_plan_may_mix_mechanisms():
    warm_start = Laplace(0.1, 2.0)
    steps = Plan.fitting(Budget(0.8, 1e-5), Gaussian(0.02, 1.0), accountant="pld", updates=5).events
    plan = Plan(Budget(1.0, 1e-5), "pld", (warm_start, *steps))
    assert 0.8 < plan.epsilon_spent(6) <= 1.0
    assert plan.epsilon_spent(1) == pytest.approx(0.05, rel=1e-2)


@pytest.mark.parametrize(("name", "event"), PLANS)
def test_a_plan_comes_back_from_json_as_it_was(name, event):
    plan = Plan.fitting(BUDGET, event, accountant=name, updates=7)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_of_a_thousand_equal_events_is_short():
    plan = Plan.fitting(BUDGET, Gaussian(0.02, 1.0), accountant="gdp", updates=1000)
    assert len(plan.to_json()) < 300
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_that_was_tampered_with_is_refused():
    document = json.loads(Plan.fitting(BUDGET, Laplace(0.02, 1.0), accountant="pld", updates=7).to_json())
    document["events"][0]["times"] = 8
    with pytest.raises(PrivacyError, match="more than the budget"):
        Plan.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"epsilon": 1, "delta": 0, "accountant": "basic"}'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(PrivacyError, match="no plan"):
        Plan.from_json(text)


def test_no_more_events_can_be_consumed_than_there_are():
    plan = Plan.fitting(BUDGET, Laplace(0.02, 1.0), accountant="basic", updates=3)
    with pytest.raises(PrivacyError, match="from 0 to the 3 events"):
        plan.epsilon_spent(4)


def test_the_plan_of_a_late_heavy_schedule_follows_its_costs():
    costs = [0.8**k for k in range(9, -1, -1)]
    plan = Plan.fitting(BUDGET, Gaussian(0.02, 1.0), accountant="gdp", costs=costs)
    noises = [event.scale for event in plan.events]
    assert noises == sorted(noises, reverse=True)
    assert noises[0] / noises[-1] == pytest.approx(0.8**-9)


@pytest.mark.parametrize(
    ("mechanism", "accountant"), [("laplace", "theorem1"), ("gaussian", "gdp"), ("gaussian", "zcdp")]
)
def test_scaling_a_plan_to_an_agents_sensitivity_never_rounds_it_past_the_budget(mechanism, accountant):
    """A plan that costs more than its budget is refused when it is made: none of these is."""
    counts = np.arange(1, 301)
    for epsilon, updates in ((0.15, 10), (1.05, 8), (1.0, 3)):
        plan = plan_noise(
            Budget(epsilon, math.exp(-5)),
            counts,
            1.0,
            [1.0] * updates,
            mechanism=mechanism,
            accountant=accountant,
            dimension=4,
        )
        for agent in range(len(counts)):
            own = plan.plan_of(agent)
            assert own is not None
            assert own.events[0].multiplier == pytest.approx(plan.multipliers[0, 0], rel=1e-15)
