"""Zero-concentrated differential privacy: costs ρ add up, for normal noise on a grid as well as off it.

What one event costs is known to its mechanism (flockwise.privacy.mechanisms). From ρ to (ε, δ) by the
conversion of Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (NeurIPS 2020),
Cor. 13, which is the tightest that uses nothing but Rényi divergences of one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant, root_on_safe_side
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism

_PRECISION = 1e-13


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
    """The least ε that the conversion gives for ρ and δ. Every order gives a valid one."""
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf
    from scipy.optimize import minimize_scalar  # slow to import, as in base.py

    # The best order of the simpler conversion ρ + 2√(ρ·log(1/δ)) is close to that of the tight one.
    near = math.log(-math.log(delta) / rho) / 2
    found = minimize_scalar(
        lambda log_order: _epsilon_at(math.exp(log_order), rho, delta),
        bounds=(near - 6, near + 6),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return max(0.0, float(found.fun))


def _epsilon_at(excess_order: float, rho: float, delta: float) -> float:
    """Cor. 13 at the order α = 1 + excess_order: αρ + (log(1/δ) − log α)/(α−1) + log(1 − 1/α)."""
    order = 1 + excess_order
    return order * rho - (math.log(delta) + math.log(order)) / excess_order - math.log1p(1 / excess_order)


@lru_cache(maxsize=4096)  # a host has many agents, and few kinds of budget
def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ that converts to (ε, δ)."""
    # ρ + 2√(ρ·log(1/δ)) = ε: the simpler conversion is never the smaller one.
    tail = math.sqrt(-math.log(delta))
    safe = (epsilon / (tail + math.sqrt(tail**2 + epsilon))) ** 2
    unsafe = 2 * safe
    while epsilon_of(unsafe, delta) <= epsilon:
        unsafe *= 2
    return root_on_safe_side(lambda rho: epsilon_of(rho, delta) - epsilon, safe, unsafe, _PRECISION)
