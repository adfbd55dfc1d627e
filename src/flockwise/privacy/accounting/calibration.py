"""The least noise for a budget, found once for all agents that share budget and schedule."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant, events_at
from flockwise.privacy.accounting.basic import Basic
from flockwise.privacy.accounting.gdp import Gdp
from flockwise.privacy.accounting.kov import Kov
from flockwise.privacy.accounting.pld import Pld
from flockwise.privacy.accounting.remark import Remark
from flockwise.privacy.accounting.theorem1 import Theorem1
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
    budget: Budget,
    event: Mechanism,
    accountant: str | Accountant,
    *,
    updates: int | None = None,
    costs: Sequence[float] | None = None,
) -> tuple[Mechanism, ...]:
    """Events like `event` with the least noise whose composition fits the budget.

    updates: that many equal events. costs: one event each, its noise inversely proportional to its cost,
    so that costs are relative step epsilons (flockwise.privacy.allocation).
    """
    name = accountant if isinstance(accountant, str) else accountant.name
    shape = _shape(updates, costs)
    ratio = None if event.grid is None else event.grid / event.sensitivity
    unit = dataclasses.replace(event, sensitivity=1.0, scale=1.0, grid=ratio)
    rate = _rate(budget, unit, name, shape)
    events = events_at(event, shape, rate)
    # Scaling to the agent's sensitivity rounds the last digit, maybe to the wrong side.
    shrink = 1e-15
    while composed_epsilon(name, events, budget.delta) > budget.epsilon:
        events = events_at(event, shape, rate * (1 - shrink))
        shrink *= 4
    return events


def _shape(updates: int | None, costs: Sequence[float] | None) -> tuple[float, ...]:
    if (updates is None) == (costs is None):
        raise PrivacyError("calibrate takes either the number of updates or their relative costs, not both")
    if costs is None:
        if updates is None or updates < 1:
            raise PrivacyError(f"updates must be at least 1, got updates={updates!r}")
        return (1.0,) * updates
    if not costs:
        raise PrivacyError("costs must not be empty; an agent without updates needs no plan")
    for number, cost in enumerate(costs):
        if not (math.isfinite(cost) and cost > 0):
            raise PrivacyError(f"costs must be positive and finite, got {cost!r} for update {number}")
    largest = max(costs)
    return tuple(float(cost / largest) for cost in costs)


@functools.lru_cache(maxsize=4096)
def _rate(budget: Budget, unit: Mechanism, accountant: str, shape: tuple[float, ...]) -> float:
    return ACCOUNTANTS[accountant].rate(unit, shape, budget)
