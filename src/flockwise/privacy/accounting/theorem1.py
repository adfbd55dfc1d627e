"""Theorem 1 of the paper: composition of pure steps, each with a cost of its own.

The three terms are those of Kairouz, Oh and Viswanath, "The composition theorem for differential
privacy" (IEEE Transactions on Information Theory 63, 2017), Theorem 3.5. The paper prints the third
one with its root inside the sum; it stands outside, as here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from flockwise.privacy.accounting.base import Accountant, pure_epsilon
from flockwise.privacy.mechanisms import Mechanism


class Theorem1(Accountant):
    """The paper's accountant: the least of three bounds on the composition of pure steps."""

    name: ClassVar[str] = "theorem1"
    label: ClassVar[str] = "Theorem 1"
    least_delta: ClassVar[float] = 0.0

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        return compose([pure_epsilon(event, self.name) for event in events], delta)


def compose(step_epsilons: Sequence[float], slack_delta: float) -> float:
    """Theorem 1: min{Σε, A + √(2Σε²·log(e + √(Σε²)/δ̄)), A + √(2Σε²·log(1/δ̄))}, A = Σ ε(e^ε−1)/(e^ε+1)."""
    total = math.fsum(step_epsilons)
    if slack_delta == 0:
        return total
    # (e^ε − 1)/(e^ε + 1), written so that no large step overflows.
    mean_loss = math.fsum(epsilon * math.tanh(epsilon / 2) for epsilon in step_epsilons)
    squares = math.fsum(epsilon**2 for epsilon in step_epsilons)
    second = mean_loss + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack_delta))
    third = mean_loss + math.sqrt(2 * squares * math.log(1 / slack_delta))
    return min(total, second, third)
