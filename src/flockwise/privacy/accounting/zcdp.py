"""Zero-concentrated differential privacy: costs ρ add up, for normal noise on a grid as well as off it.

What one event costs is known to its mechanism (flockwise.privacy.mechanisms). From ρ to (ε, δ) by the
conversion of Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (NeurIPS 2020),
Cor. 13, which is the tightest that uses nothing but Rényi divergences of one order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism


class Zcdp(Accountant):
    """The accountant of real agents: what the integer sampler is certified for."""

    name: ClassVar[str] = "zcdp"
    label: ClassVar[str] = "zCDP"

    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        return epsilon_of(math.fsum(event.rho for event in events), delta)

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        if budget.delta == 0:
            raise PrivacyError("zcdp: needs a delta above 0; account pure events with delta = 0 by basic")
        if unit.is_pure:
            return super().rate(unit, costs, budget)
        # ρ of normal noise is the square of its cost.
        return math.sqrt(2 * rho_of(budget.epsilon, budget.delta) / math.fsum(cost**2 for cost in costs))


def epsilon_of(rho: float, delta: float) -> float:
    """The least ε that the conversion gives for ρ and δ. Every order gives a valid one.

    The derivative by x = α − 1 is ρ − (log(1/δ) − log(1 + x))/x²: it has one zero, where ρx² + log(1 + x)
    reaches log(1/δ).
    """
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf
    tail = -math.log(delta)
    best = _last_at_most(tail, lambda x: rho * x**2 + math.log1p(x), math.sqrt(tail / rho))
    return max(0.0, _epsilon_at(best, rho, delta))


def _epsilon_at(excess_order: float, rho: float, delta: float) -> float:
    """Cor. 13 at the order α = 1 + excess_order: αρ + (log(1/δ) − log α)/(α−1) + log(1 − 1/α)."""
    order = 1 + excess_order
    return order * rho - (math.log(delta) + math.log(order)) / excess_order - math.log1p(1 / excess_order)


@lru_cache(maxsize=4096)  # a host has many agents, and few kinds of budget
def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ that converts to (ε, δ)."""
    # ρ + 2√(ρ·log(1/δ)) = ε: the simpler conversion is never the smaller one.
    tail = math.sqrt(-math.log(delta))
    unsafe = 2 * (epsilon / (tail + math.sqrt(tail**2 + epsilon))) ** 2
    while epsilon_of(unsafe, delta) <= epsilon:
        unsafe *= 2
    return _last_at_most(epsilon, lambda rho: epsilon_of(rho, delta), unsafe)


def _last_at_most(limit: float, rising: Callable[[float], float], high: float) -> float:
    """The last number from 0 to `high` at which a rising function is within its limit.

    By bisection, down to neighboring numbers. Every agent's process plans with this; SciPy would add 43 MB.
    """
    low = 0.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) <= limit else (low, middle)
    return low
