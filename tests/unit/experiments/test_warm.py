"""A start that costs the paper's ε alone."""

from __future__ import annotations

import math

import pytest
from experiments.synthetic import instance
from experiments.warm import warm_start

from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.method.rules import Descent
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget


@pytest.mark.parametrize(("mechanism", "accountant"), [("gaussian", "gdp"), ("laplace", "theorem1")])
def test_the_release_of_the_start_costs_what_was_asked_for(mechanism, accountant):
    """As an agent of a prepared run spends it."""
    budget = Budget(0.55, math.exp(-5))
    privacy = PrivateUpdates(budget, 8, 1.0, mechanism, accountant)
    problem = instance(5, 1_000_000, 1, 1.0, public=True).problem
    rule = CoordinateDescent(warm_start(privacy, 0.05), privacy).prepare(problem, 0).rule
    assert isinstance(rule, Descent)
    assert rule.noise is not None
    account = ACCOUNTANTS[accountant]
    events = rule.noise.events_of(0, 9)
    assert account.epsilon(events[:1], budget.delta) == pytest.approx(0.05, rel=1e-3)
    assert account.epsilon(events, budget.delta) == pytest.approx(0.55, rel=1e-3)
