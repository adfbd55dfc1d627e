"""Composition of pure steps: basic, Theorem 1 of the paper, and the optimum for equal steps.

Theorem 1 has the three terms of Kairouz, Oh and Viswanath, "The composition theorem for differential
privacy" (IEEE Transactions on Information Theory 63, 2017), Theorem 3.5. The optimum is their Theorem 3.3: no
mechanism with T steps of ε is worse than T rounds of randomized response that tells the truth with
probability e^ε/(1 + e^ε). Its trade-off is known exactly, and is read off here at any δ, where the theorem
lists only the ε that are lattice points of its loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism

# Steps of one plan that differ by no more are rounded, not chosen: the largest stands for all.
_ROUNDING = 1e-12


class Basic(Accountant):
    """Σ_t ε(t), with δ = 0. The only one that stays exact when nothing may ever go wrong."""

    name: ClassVar[str] = "basic"
    label: ClassVar[str] = "basic"
    least_delta: ClassVar[float] = 0.0
    adds_epsilons: ClassVar[bool] = True

    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        return math.fsum(event.epsilon for event in events)

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        return budget.epsilon / math.fsum(costs)


class Theorem1(Accountant):
    """The paper's accountant: the least of three bounds on the composition of pure steps."""

    name: ClassVar[str] = "theorem1"
    label: ClassVar[str] = "Theorem 1"
    least_delta: ClassVar[float] = 0.0

    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        return theorem_1([event.epsilon for event in events], delta)


class Kov(Accountant):
    """What T equal steps cost if nothing is known of them but their ε."""

    name: ClassVar[str] = "kov"
    label: ClassVar[str] = "KOV"
    least_delta: ClassVar[float] = 0.0
    equal_steps_only: ClassVar[bool] = True

    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        costs = [event.epsilon for event in events]
        smallest, largest = min(costs), max(costs)
        if largest > smallest * (1 + _ROUNDING):
            raise PrivacyError(
                f"kov composes equal steps only, got step_epsilon from {smallest!r} to {largest!r}; "
                "use theorem1 or pld for unequal ones"
            )
        return _equal_steps(largest, len(costs), delta)


def theorem_1(step_epsilons: Sequence[float], slack_delta: float) -> float:
    """Theorem 1: min{Σε, A + √(2Σε²·log(e + √(Σε²)/δ̄)), A + √(2Σε²·log(1/δ̄))}, A = Σ ε(e^ε−1)/(e^ε+1)."""
    total = math.fsum(step_epsilons)
    if slack_delta == 0:
        return total
    # (e^ε − 1)/(e^ε + 1), in a form that does not overflow for large steps.
    mean_loss = math.fsum(epsilon * math.tanh(epsilon / 2) for epsilon in step_epsilons)
    squares = math.fsum(epsilon**2 for epsilon in step_epsilons)
    second = mean_loss + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack_delta))
    third = mean_loss + math.sqrt(2 * squares * math.log(1 / slack_delta))
    return min(total, second, third)


def _equal_steps(step_epsilon: float, n_updates: int, delta: float) -> float:
    """The ε at which T = n_updates rounds of randomized response have this δ.

    Of T rounds let l tell a lie. The loss (T − 2l)ε falls with l, so the best tests are "at most i
    lies", and δ(ε') = max_i (A_i − e^ε' B_i) with their probabilities A_i, B_i in the two worlds. Hence
    ε'(δ) = max_i log((A_i − δ)/B_i).
    """
    if delta == 0:
        return math.fsum([step_epsilon] * n_updates)
    from scipy.special import gammaln  # slow to import, and only for this accountant

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
