"""The private start at the paper's ε: what it costs alone, under the accountant of the updates."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from scipy.optimize import brentq

from flockwise.method import PrivateUpdates, WarmStart
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.allocation import ADDS_EPSILONS, exponent_for
from flockwise.privacy.budget import Budget
from flockwise.privacy.plan import Plan


@lru_cache(maxsize=256)
def warm_start(privacy: PrivateUpdates, epsilon: float) -> WarmStart:
    """The one whose release alone has this ε, at the δ of the whole: a share is in noise, and not in ε."""

    def excess(share: float) -> float:
        return start_epsilon(privacy, WarmStart(share=share)) - epsilon

    share: Any = brentq(excess, 1e-4, 0.99, xtol=1e-7)
    return WarmStart(share=float(share))


def start_epsilon(privacy: PrivateUpdates, start: WarmStart) -> float:
    """What the release of the start costs alone, in a run with one budget for all agents."""
    budget, accountant = privacy.budgets, privacy.accountant
    assert isinstance(budget, Budget)
    assert accountant is not None
    costs = privacy.costs()
    adds_epsilons = exponent_for(accountant, budget.delta) == ADDS_EPSILONS
    before = start.cost(costs, adds_epsilons=adds_epsilons)
    plan = Plan.fitting(budget, privacy.mechanism, (before, *costs), accountant=accountant)
    return ACCOUNTANTS[accountant].epsilon([plan.event(1, 1.0, 1)], budget.delta)
