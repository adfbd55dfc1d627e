"""The plans of many simulated agents: each has that of its own budget, found once."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.privacy.proven import every_mechanism

from flockwise.errors import PrivacyError
from flockwise.privacy.budget import Budget, least_delta
from flockwise.privacy.plan import Plan
from flockwise.privacy.schedule import Schedule, distinct_budgets

LARGE, SMALL = Budget(1.0, 1e-5), Budget(0.2, 1e-4)
MIXED = [LARGE, SMALL, LARGE, SMALL, SMALL]


@every_mechanism
def test_every_agent_has_the_plan_of_its_own_budget(kind):
    schedule = Schedule.fitting(MIXED, 5, kind.name, [1.0, 2.0])
    assert (schedule.mechanism, schedule.n_releases, len(schedule.plans)) == (kind.name, 2, 2)
    for agent, budget in enumerate(MIXED):
        own = schedule.plan_of(agent)
        assert own == Plan.fitting(budget, kind.name, [1.0, 2.0])
        np.testing.assert_array_equal(schedule.multipliers[schedule.rows[agent]], own.multipliers)


@every_mechanism
@pytest.mark.parametrize("dimension", [1, 6])
def test_the_stated_deviations_are_those_of_the_events(kind, dimension):
    schedule = Schedule.fitting(MIXED, 5, kind.name, 3)
    stds = schedule.stds(dimension)
    assert stds.shape == (5, 3)
    for agent in range(5):
        events = [schedule.plan_of(agent).event(number, 0.25, dimension) for number in (1, 2, 3)]
        assert stds[agent] * 0.25 == pytest.approx([event.noise_std for event in events], rel=1e-14)


def test_one_budget_is_for_everyone():
    schedule = Schedule.fitting(LARGE, 4, "gaussian", 3, accountant="zcdp")
    assert schedule.rows.tolist() == [0] * 4
    assert schedule.plans == (Plan.fitting(LARGE, "gaussian", 3, accountant="zcdp"),)


def test_the_least_plan_is_that_of_the_least_epsilon():
    schedule = Schedule.fitting(MIXED, 5, "gaussian", 3)
    assert schedule.least.budget == SMALL
    assert schedule.least.multipliers[0] == schedule.multipliers.max()


def test_budgets_are_one_for_all_or_one_each():
    with pytest.raises(PrivacyError, match="2 budgets for 3 agents; give one for all or one each"):
        distinct_budgets([LARGE, SMALL], 3)


def test_the_least_delta_is_that_of_the_strictest_agent():
    assert least_delta(LARGE) == 1e-5
    assert least_delta([LARGE, SMALL]) == 1e-5
    assert least_delta([LARGE, Budget(1.0)]) == 0.0
