"""The optimal composition of T equal pure steps.

Kairouz, Oh and Viswanath, "The composition theorem for differential privacy" (2017), Theorem 3.3: no
mechanism with T steps of ε is worse than T rounds of randomised response that tells the truth with
probability e^ε/(1 + e^ε). Its trade-off is known exactly, and is read off here at any δ, where the
theorem lists only the ε that are lattice points of its loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant, pure_epsilon
from flockwise.privacy.mechanisms import Mechanism

# Steps of one plan that differ by no more are rounded, not chosen: the largest stands for all.
_ROUNDING = 1e-12


class Kov(Accountant):
    """What T equal steps cost if nothing is known of them but their ε."""

    name: ClassVar[str] = "kov"
    label: ClassVar[str] = "KOV"
    least_delta: ClassVar[float] = 0.0

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        if not events:
            return 0.0
        costs = [pure_epsilon(event, self.name) for event in events]
        smallest, largest = min(costs), max(costs)
        if largest > smallest * (1 + _ROUNDING):
            raise PrivacyError(
                f"kov composes equal steps only, got step_epsilon from {smallest!r} to {largest!r}; "
                "use theorem1 or pld for unequal ones"
            )
        return compose_equal(largest, len(costs), delta)


def compose_equal(step_epsilon: float, n_updates: int, delta: float) -> float:
    """The ε at which T = n_updates rounds of randomised response have this δ.

    Of T rounds let l tell a lie. The loss (T − 2l)ε falls with l, so that the best tests are "at most i
    lies", and δ(ε') = max_i (A_i − e^ε' B_i) with their probabilities A_i, B_i in the two worlds. Hence
    ε'(δ) = max_i log((A_i − δ)/B_i).
    """
    if delta == 0:
        return math.fsum([step_epsilon] * n_updates)
    from scipy.special import gammaln  # slow to import, as in search.py

    lies = np.arange(n_updates // 2 + 1)  # with more of them the loss is negative
    log_choices = gammaln(n_updates + 1) - gammaln(lies + 1) - gammaln(n_updates - lies + 1)
    log_both = log_choices - n_updates * np.logaddexp(0.0, step_epsilon)
    # Sums of large logarithms lose digits; what they may have lost is counted against the agent.
    rounding = 8 * np.finfo(float).eps * (gammaln(n_updates + 1) + n_updates * (1 + step_epsilon))
    log_here = np.logaddexp.accumulate(log_both + (n_updates - lies) * step_epsilon) + rounding
    log_there = np.logaddexp.accumulate(log_both + lies * step_epsilon) - rounding
    above = log_here > math.log(delta)
    gains = log_here[above] + np.log(-np.expm1(math.log(delta) - log_here[above])) - log_there[above]
    return max(0.0, float(gains.max(initial=0.0)))
