"""Sums that are opened as a whole: the noise left to a coalition, and what it costs by SciPy's formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import ks_2samp, norm

from flockwise.errors import PrivacyError
from flockwise.privacy.budget import Budget
from flockwise.privacy.sums import (
    INTEGER_SHARE,
    ROUNDED_TO_DISCRETE,
    Crowd,
    SumNoise,
    SumPlan,
    SumSize,
    added_up,
)

BUDGET = Budget(1.0, 1e-5)
SIZE = SumSize(2.0**30, np.array([1.0, math.sqrt(0.5), 1.0]), 2.0**-30)


def alike(one: Any, other: Any) -> float:
    """p-value of a Kolmogorov-Smirnov test."""
    test: Any = ks_2samp(one, other)
    return test.pvalue


def delta_of(epsilon, mu):
    """Of one normal release whose sensitivity is mu standard deviations (Balle and Wang, 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def epsilon_of(delta, mu) -> Any:
    return brentq(lambda epsilon: delta_of(epsilon, mu) - delta, 0.0, 100.0)


def test_a_crowd_counts_those_who_may_collude_and_those_who_may_be_absent():
    crowd = Crowd(10)
    assert (crowd.honest, crowd.least_present) == (6, 9), "3 of 10 may collude, and 1 be absent"
    assert Crowd(3, 1 / 3, 0.0).honest == 2
    assert Crowd(2410).honest == 2410 - 803 - 241
    with pytest.raises(PrivacyError, match="leaves nobody to add noise; lower colluding or absent"):
        Crowd(10, 0.9, 0.1)


@pytest.mark.parametrize("shares", [[1.0], [0.9, 0.1]])
def test_the_noise_of_the_honest_agents_alone_fits_the_budget(shares):
    """Every sum is a normal release with sensitivity 1/multiplier; together they cost √Σ1/multiplier²."""
    crowd = Crowd(30, 1 / 3, 0.1)
    plan = SumPlan.fitting(BUDGET, crowd, shares)
    multipliers = []
    for number in range(1, len(shares) + 1):
        stds = plan.share_stds(number, SIZE)
        left = np.sqrt(crowd.honest) * stds / SIZE.scales / SIZE.sensitivity
        np.testing.assert_allclose(left, left[0], rtol=1e-12)
        multipliers.append(left[0])
    mu = math.sqrt(sum(1 / multiplier**2 for multiplier in multipliers))
    assert delta_of(1.0, mu) <= (1 - INTEGER_SHARE) * 1e-5
    assert delta_of(1.0, mu) == pytest.approx((1 - INTEGER_SHARE) * 1e-5, rel=1e-3)
    costs = [1 / multiplier**2 / mu**2 for multiplier in multipliers]
    np.testing.assert_allclose(costs, shares, rtol=1e-6)


def test_if_all_others_collude_one_share_of_noise_is_left():
    crowd = Crowd(100)
    plan = SumPlan.fitting(BUDGET, crowd, [1.0])
    mu = SIZE.sensitivity / plan.share_stds(1, SIZE)[0]
    least, largest = plan.if_all_collude
    assert least == largest == pytest.approx(10.88, abs=0.01)
    exact = epsilon_of((1 - INTEGER_SHARE) * 1e-5, mu)
    assert exact < largest < 1.1 * exact


@pytest.mark.parametrize("n_agents", [100, 1600])
def test_what_is_left_if_all_others_collude_is_proven_for_one_share_of_integer_noise(n_agents):
    """Zero-concentrated privacy with ρ = (Δ/σ)²/2, converted at every order from 1 on. The curve of rounded
    normal noise is no proof here: with 1600 agents the step to integers would cost e^66·.02/σ² in δ."""
    plan = SumPlan.fitting(BUDGET, Crowd(n_agents), [0.9, 0.1])
    rho = sum((SIZE.sensitivity / plan.share_stds(number, SIZE)[0]) ** 2 / 2 for number in (1, 2))
    orders = 1 + np.logspace(-3, 3, 100_000)
    left = orders * rho - (math.log(1e-5) + np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)
    assert plan.if_all_collude[1] == pytest.approx(left.min(), rel=1e-3)


def test_agents_with_smaller_budgets_add_less_and_are_hidden_by_the_same_noise():
    budgets = [Budget(1.0, 1e-5)] * 20 + [Budget(0.1, 1e-6)] * 10
    crowd = Crowd(30)
    plan = SumPlan.fitting(budgets, crowd, [0.9, 0.1])
    assert (plan.weights[:20] == 1).all()
    for weight, (epsilon, delta) in ((plan.weights[0], (1.0, 1e-5)), (plan.weights[-1], (0.1, 1e-6))):
        noises = [math.sqrt(crowd.honest) * plan.share_stds(number, SIZE)[0] for number in (1, 2)]
        mu = math.sqrt(sum((weight * SIZE.sensitivity / noise) ** 2 for noise in noises))
        assert delta_of(epsilon, mu) == pytest.approx((1 - INTEGER_SHARE) * delta, rel=1e-3)


def discrete_normal(variance, reach):
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * variance))
    return weights / weights.sum()


@pytest.mark.parametrize("std", [100.0, 137.3, 400.0])
def test_rounded_normal_noise_is_near_the_discrete_one(std):
    """By summing over all integers within 9 standard deviations."""
    reach = int(9 * std)
    edges = np.arange(-reach, reach + 2) - 0.5
    rounded = np.diff(norm.cdf(edges / std))
    distance = np.abs(rounded - discrete_normal(std**2, reach)).sum() / 2
    assert 0.9 * ROUNDED_TO_DISCRETE <= distance * std**2 <= ROUNDED_TO_DISCRETE


def test_shares_add_up_to_one_discrete_normal_variable():
    """Three shares of the least variance that is allowed, 8² steps: by convolution, to rounding."""
    share = discrete_normal(64.0, 80)
    total = np.convolve(np.convolve(share, share), share)
    expected = discrete_normal(3 * 64.0, 240)
    likely = expected > 1e-12
    # The tails of the shares are cut at ten standard deviations.
    np.testing.assert_allclose(total[likely], expected[likely], rtol=1e-9)


def test_one_noise_for_all_is_distributed_as_the_sum_of_shares():
    """4,000 numbers each; two samples of one law differ so much in one of a thousand cases."""
    noise = SumNoise(3, (np.full(4000, 50.0), np.full(4000, 200.0)))
    for number in (1, 2):
        shares = added_up([noise.share(agent, number, "any", 4000) for agent in range(7)])
        at_once = noise.whole(7, number, "any", 4000)
        assert not np.array_equal(shares, at_once)
        assert alike(shares, at_once) > 1e-3
        expected = math.sqrt(7) * noise.stds[number - 1][0]
        for drawn in (shares, at_once):
            # The relative error of a deviation from 4,000 numbers is .011.
            assert np.std(drawn) == pytest.approx(expected, rel=0.05)
            assert abs(np.mean(drawn)) < 4 * expected / math.sqrt(4000)


def test_shares_differ_between_agents_sums_and_seeds():
    stds = (np.full(100, 1000.0),) * 2
    drawn = {
        SumNoise(seed, stds).share(agent, number, "any", 100).tobytes()
        for seed in (0, 1)
        for agent in (0, 1)
        for number in (1, 2)
    }
    assert len(drawn) == 8


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3), min_size=1, max_size=8))
def test_totals_are_those_of_python_modulo_2_to_the_64(shares):
    expected = [(sum(column) + 2**63) % 2**64 - 2**63 for column in zip(*shares, strict=True)]
    assert added_up([np.array(share, np.int64) for share in shares]).tolist() == expected


def test_a_sum_that_was_not_planned_is_refused():
    """A conversation that asks for the same sum twice would spend the budget twice."""
    noise = SumNoise(0, (np.full(10, 1000.0), np.full(1, 1000.0)))
    for number, size in ((2, 10), (3, 10), (1, 1)):
        with pytest.raises(PrivacyError, match=rf"^sum {number} of {size} numbers was not planned"):
            noise.share(0, number, "any", size)
        with pytest.raises(PrivacyError, match="pays for sums of 10, 1 numbers, each opened once"):
            noise.whole(5, number, "any", size)


def test_another_request_under_the_same_number_is_refused():
    """It would be answered with the same noise, and the difference of both answers with none."""
    noise = SumNoise(0, (np.full(10, 1000.0),))

    def around(value):
        return ("spread", (np.full(3, value), 0.1))

    first = noise.share(0, 1, around(1.0), 10)
    np.testing.assert_array_equal(noise.share(0, 1, around(1.0), 10), first)
    for other in (around(2.0), ("spread", None), ("moments", around(1.0)[1])):
        for draw in (noise.share, noise.whole):
            with pytest.raises(PrivacyError, match="sum 1 was asked for before, for something else"):
                draw(7, 1, other, 10)


@pytest.mark.parametrize(
    ("budget", "size"),
    [
        (Budget(300.0, 1e-5), SIZE),
        (BUDGET, SumSize(50.0, np.ones(3), 1.0)),
        ([BUDGET] * 29 + [Budget(1.0, 1e-22)], SumSize(2.0**22, np.ones(3), 1.0)),
    ],
    ids=["large epsilon", "few steps", "one tiny delta"],
)
def test_a_grid_that_is_too_coarse_for_a_budget_is_refused(budget, size):
    plan = SumPlan.fitting(budget, Crowd(30), [1.0])
    with pytest.raises(PrivacyError, match="the grid of a sum of 3 numbers over 30 agents is too coarse"):
        plan.share_stds(1, size)


def test_a_sum_never_has_delta_0():
    with pytest.raises(PrivacyError, match="a sum needs normal noise, which never has delta = 0"):
        SumPlan.fitting(Budget(1.0), Crowd(30), [1.0])
