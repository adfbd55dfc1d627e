"""Allocations: the optimum they claim to be, found again by a general solver, and Prop. 2 as printed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from flockwise.errors import PrivacyError
from flockwise.privacy.allocation import (
    contraction_per_update,
    exponent_for,
    late_heavy,
    late_heavy_by_own_clock,
    published,
    uniform,
)
from flockwise.privacy.budget import Budget
from flockwise.privacy.plan import Plan

WAKE_TICKS = [3, 9, 10, 24, 40]
N_TICKS, CONTRACTION = 45, 0.95


def noise_that_counts(costs, weights):
    return float(np.sum(weights / np.square(costs)))


@pytest.mark.parametrize(("accountant", "power"), [("basic", 1), ("gdp", 2), ("zcdp", 2)])
def test_late_heavy_spending_is_the_optimum(accountant, power):
    """Least Σ C^(T−1−t)/ε_t² with Σε^power = 1, by a solver that knows nothing of the formula."""
    weights = CONTRACTION ** (N_TICKS - 1 - np.array(WAKE_TICKS, dtype=float))
    found = np.array(late_heavy(WAKE_TICKS, CONTRACTION, exponent_for(accountant, 1e-5)))
    found /= (found**power).sum() ** (1 / power)
    solved = minimize(
        lambda logs: noise_that_counts(np.exp(logs), weights),
        np.zeros(5),
        constraints={"type": "eq", "fun": lambda logs: np.exp(power * logs).sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert solved.success
    assert found == pytest.approx(np.exp(solved.x), rel=1e-3)
    assert noise_that_counts(found, weights) <= solved.fun * (1 + 1e-9)


def test_the_published_rule_is_prop_2_and_spends_early():
    total_epsilon = 0.7
    root = CONTRACTION ** (1 / 3)
    factor = (root - 1) / (root**N_TICKS - 1)
    share = sum(factor * root**t for t in WAKE_TICKS)
    printed = [factor * root**t * total_epsilon / share for t in WAKE_TICKS]
    costs = published(WAKE_TICKS, CONTRACTION)
    plan = Plan.fitting(Budget(total_epsilon), "laplace", costs, accountant="basic")
    steps = [1 / multiplier for multiplier in plan.multipliers]
    assert steps == pytest.approx(printed)
    assert steps == sorted(steps, reverse=True)


def test_the_published_rule_is_worse_than_uniform_and_the_corrected_one_better():
    weights = CONTRACTION ** (N_TICKS - 1 - np.array(WAKE_TICKS, dtype=float))
    noises = []
    for costs in (published(WAKE_TICKS, CONTRACTION), uniform(5), late_heavy(WAKE_TICKS, CONTRACTION, 1 / 4)):
        plan = Plan.fitting(Budget(1.0, 1e-5), "gaussian", costs, accountant="gdp")
        noises.append(noise_that_counts(plan.costs, weights))
    assert noises[2] < noises[1] < noises[0]


def test_an_agents_own_clock_is_the_global_one_in_expectation():
    """Waking every n ticks, the agent-local rule is the global one."""
    n_agents, n_updates = 20, 6
    ticks = [n_agents * k for k in range(n_updates)]
    local = late_heavy_by_own_clock(n_updates, contraction_per_update(0.999, n_agents), 1 / 4)
    assert local == pytest.approx(late_heavy(ticks, 0.999, 1 / 4))
    assert local[-1] == 1.0


def test_without_contraction_every_rule_is_uniform():
    expected = pytest.approx(uniform(5))
    assert published(WAKE_TICKS, 1.0) == expected
    assert late_heavy(WAKE_TICKS, 1.0, 1 / 3) == expected
    assert late_heavy_by_own_clock(5, 1.0, 1 / 3) == expected


def test_exponents_follow_how_costs_add_up():
    assert exponent_for("basic", 1e-5) == pytest.approx(1 / 3)
    assert exponent_for("pld", 0.0) == pytest.approx(1 / 3)
    assert {exponent_for(name, 1e-5) for name in ("gdp", "zcdp", "pld", "theorem1", "remark")} == {1 / 4}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: uniform(0), "at least 1"),
        (lambda: late_heavy([], 0.9, 1 / 3), "never wakes"),
        (lambda: late_heavy([1], 0.0, 1 / 3), "contraction must be"),
        (lambda: published([1], 1.1), "contraction must be"),
        (lambda: late_heavy([0, 10_000], 0.9, 1 / 3), "fewer updates"),
    ],
)
def test_what_cannot_be_spread_is_refused(make, words):
    with pytest.raises(PrivacyError, match=words):
        make()
