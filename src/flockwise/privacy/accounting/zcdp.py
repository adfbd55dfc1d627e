"""Zero-concentrated differential privacy: costs ρ add up, for normal noise on a grid as well as off it.

What one event costs:
- normal noise, real-valued or integer (drawn by the discrete Gaussian, any dimension): ρ = μ²/2, with
  μ = sensitivity/σ. Bun and Steinke, "Concentrated differential privacy" (TCC 2016), Prop. 1.6;
  Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (NeurIPS 2020), Thm. 4.
- real-valued Laplace noise: ρ = ε + e^(−ε) − 1. Harrison and Manurangsi, "Exact zCDP characterizations
  for fundamental differentially private mechanisms" (FORC 2026); for vectors by the domination argument
  of flockwise.privacy.accounting.pld.
- any other pure event: ρ = ε²/2. Bun and Steinke, Prop. 1.4.

From ρ to (ε, δ) by the conversion of Canonne, Kamath and Steinke, Cor. 13, which is the tightest that
uses nothing but Rényi divergences of one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant, pure_epsilon
from flockwise.privacy.accounting.search import root_on_safe_side
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Gaussian, Laplace, Mechanism

_PRECISION = 1e-13
# Below this ε the terms of ε + e^(−ε) − 1 cancel to fewer digits than its series has.
_SMALL_EPSILON = 0.01


class Zcdp(Accountant):
    """The accountant of real agents: what the integer sampler is certified for."""

    name: ClassVar[str] = "zcdp"

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        return epsilon_of(math.fsum(rho(event) for event in events), delta)

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        if budget.delta == 0:
            raise PrivacyError("zcdp: needs a delta above 0; account pure events with delta = 0 by basic")
        if not isinstance(unit, Gaussian):
            return super().rate(unit, costs, budget)
        return math.sqrt(2 * rho_of(budget.epsilon, budget.delta) / math.fsum(cost**2 for cost in costs))


def rho(event: Mechanism) -> float:
    """What one event costs."""
    if isinstance(event, Gaussian):
        return 0.5 / event.multiplier**2
    epsilon = pure_epsilon(event, Zcdp.name)
    if isinstance(event, Laplace) and event.grid is None:
        return _rho_of_laplace(epsilon)
    return epsilon**2 / 2


def _rho_of_laplace(epsilon: float) -> float:
    """ε + e^(−ε) − 1; for small ε by ε²/2! − ε³/3! + …, which is no smaller when a positive term ends it."""
    if epsilon >= _SMALL_EPSILON:
        return epsilon + math.expm1(-epsilon)
    x = epsilon
    return x**2 * (1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x / 720))))


def epsilon_of(rho: float, delta: float) -> float:
    """The least ε that the conversion gives for ρ and δ. Every order gives a valid one."""
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf
    from scipy.optimize import minimize_scalar  # slow to import, as in search.py

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


@lru_cache(maxsize=4096)  # a gateway has many agents, and few kinds of budget
def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ that converts to (ε, δ)."""
    # ρ + 2√(ρ·log(1/δ)) = ε: the simpler conversion is never the smaller one.
    tail = math.sqrt(-math.log(delta))
    safe = (epsilon / (tail + math.sqrt(tail**2 + epsilon))) ** 2
    unsafe = 2 * safe
    while epsilon_of(unsafe, delta) <= epsilon:
        unsafe *= 2
    return root_on_safe_side(lambda rho: epsilon_of(rho, delta) - epsilon, safe, unsafe, _PRECISION)
