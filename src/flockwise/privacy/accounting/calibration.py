"""The least noise for a budget, found once for all agents that share budget and schedule."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Iterable, Sequence

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant, events_at
from flockwise.privacy.accounting.gaussian import Gdp, Remark
from flockwise.privacy.accounting.pld import Pld
from flockwise.privacy.accounting.pure import Basic, Kov, Theorem1
from flockwise.privacy.accounting.zcdp import Zcdp
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism, accountants_of
from flockwise.registry import Registry

ACCOUNTANTS: Registry[Accountant] = Registry("accountant", PrivacyError)
for _accountant in (Basic(), Theorem1(), Remark(), Kov(), Zcdp(), Gdp(), Pld()):
    ACCOUNTANTS.register(_accountant)


def default_accountant(mechanism: str, delta: float, *, on_grid: bool = False) -> str:
    """What accounts this noise unless one is named: the first of those proven for it that covers the δ."""
    proven = accountants_of(mechanism, on_grid=on_grid)
    for name in proven:
        if ACCOUNTANTS[name].least_delta <= delta:
            return name
    if not proven:
        raise PrivacyError(f"{mechanism} noise has no integer version; real agents use gaussian or laplace")
    raise PrivacyError(
        f"{mechanism} noise needs delta > 0, got delta={delta!r}; give a delta (default_delta says which), "
        "or use laplace or knorm noise"
    )


@functools.lru_cache(maxsize=4096)
def composed_epsilon(accountant: str, events: tuple[Mechanism, ...], delta: float) -> float:
    """The ε of these events together, remembered: agents with equal plans share the answer."""
    return ACCOUNTANTS[accountant].epsilon(events, delta)


def calibrate(
    budget: Budget, event: Mechanism, accountant: str, releases: int | Sequence[float]
) -> tuple[Mechanism, ...]:
    """Events like `event` with the least noise whose composition fits the budget.

    releases: how many equal ones, or their relative costs (flockwise.privacy.allocation): noise is inversely
    proportional to cost.
    """
    event.check_accountant(accountant, on_grid=event.grid is not None)
    costs = _relative_costs(releases)
    ratio = None if event.grid is None else event.grid / event.sensitivity
    unit = dataclasses.replace(event, sensitivity=1.0, scale=1.0, grid=ratio)
    rate = _rate(budget, unit, accountant, costs)
    events = events_at(event, costs, rate)
    # Scaling to the agent's sensitivity rounds the last digit, maybe to the wrong side.
    shrink = 1e-15
    while composed_epsilon(accountant, events, budget.delta) > budget.epsilon:
        events = events_at(event, costs, rate * (1 - shrink))
        shrink *= 4
    return events


def _relative_costs(releases: int | Sequence[float]) -> tuple[float, ...]:
    """The largest is 1."""
    costs = tuple(releases) if isinstance(releases, Iterable) else (1.0,) * operator.index(releases)
    if not costs:
        raise PrivacyError(f"a plan needs at least one release, got releases={releases!r}")
    for number, cost in enumerate(costs, start=1):
        if not (math.isfinite(cost) and cost > 0):
            raise PrivacyError(f"costs must be positive and finite, got {cost!r} for release {number}")
    largest = max(costs)
    return tuple(float(cost / largest) for cost in costs)


@functools.lru_cache(maxsize=4096)
def _rate(budget: Budget, unit: Mechanism, accountant: str, costs: tuple[float, ...]) -> float:
    return ACCOUNTANTS[accountant].rate(unit, costs, budget)
