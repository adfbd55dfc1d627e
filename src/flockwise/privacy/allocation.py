"""How a budget is spread over updates: relative costs, which `calibrate` scales to the budget.

Noise of an early update is forgotten as the descent goes on, noise of the last one stays: unrolling
P(t+1) ≤ C·P(t) + a(t) weighs the noise of tick t by C^(T−1−t), where C < 1 is the contraction of one
tick. So the budget should grow with time. Theorem 2 of the paper has the weight C^t, and Prop. 2
therefore spends early: `published` is that rule, kept for reproductions.

Least Σ_t w_t/ε_t², which is the noise that counts, has ε_t ∝ w_t^(1/3) where Σε is limited, and
ε_t ∝ w_t^(1/4) where Σε² is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import ACCOUNTANTS

# Exponents of the best allocation, by what adds up.
ADDS_EPSILONS: Final = 1 / 3
ADDS_SQUARES: Final = 1 / 4


def exponent_for(accountant: str, delta: float) -> float:
    """1/3 where costs add up as Σε, 1/4 where they add up as Σε².

    The latter is exact for gdp and zcdp, and the leading term of the others for many small steps.
    """
    return ADDS_EPSILONS if delta == 0 or ACCOUNTANTS[accountant].adds_epsilons else ADDS_SQUARES


def uniform(n_updates: int) -> tuple[float, ...]:
    """The same for every update."""
    if n_updates < 1:
        raise PrivacyError(f"n_updates must be at least 1, got n_updates={n_updates!r}")
    return (1.0,) * n_updates


def published(wake_ticks: Sequence[int], contraction: float) -> tuple[float, ...]:
    """Prop. 2 as printed: ε_i(t) ∝ C^(t/3) at the ticks t at which the agent wakes. It spends early."""
    first = min(_checked(wake_ticks, contraction))
    return _powers([tick - first for tick in wake_ticks], contraction, 1 / 3)


def late_heavy(wake_ticks: Sequence[int], contraction: float, exponent: float) -> tuple[float, ...]:
    """Prop. 2 corrected: ε_i(t) ∝ C^((T−1−t)·exponent), exponent as of `exponent_for`.

    contraction: of one tick; proven (ConvergenceTheory.contraction) or measured on public data. Only
    the ticks between the agent's updates matter, so T itself is not needed.
    """
    last = max(_checked(wake_ticks, contraction))
    return _powers([last - tick for tick in wake_ticks], contraction, exponent)


def late_heavy_by_own_clock(n_updates: int, update_contraction: float, exponent: float) -> tuple[float, ...]:
    """The corrected rule for an agent that knows no clock but its own: k-th of n_updates updates.

    update_contraction: of the time between two of its updates (see `contraction_per_update`).
    """
    _checked(uniform(n_updates), update_contraction)
    return _powers([n_updates - 1 - update for update in range(n_updates)], update_contraction, exponent)


def contraction_per_update(contraction: float, n_agents: int) -> float:
    """C^n: each agent wakes once in n ticks on average. With C = 1 − σ/(n·L_max) it is about e^(−σ/L_max)."""
    _checked(uniform(n_agents), contraction)
    return contraction**n_agents


def _checked(wake_ticks: Sequence[float], contraction: float) -> Sequence[float]:
    if not wake_ticks:
        raise PrivacyError("an agent that never wakes has nothing to spread its budget over")
    if not 0 < contraction <= 1:
        raise PrivacyError(f"contraction must be above 0 and at most 1, got contraction={contraction!r}")
    return wake_ticks


def _powers(steps: Sequence[float], contraction: float, exponent: float) -> tuple[float, ...]:
    costs = tuple(math.exp(exponent * count * math.log(contraction)) for count in steps)
    if min(costs) < 1e-9 * max(costs):
        raise PrivacyError(
            f"contraction={contraction!r} leaves less than a billionth of the budget of one update to "
            "another; plan fewer updates, or use a contraction nearer to 1"
        )
    return costs
