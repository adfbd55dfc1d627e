"""Basic composition: pure costs add up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from flockwise.privacy.accounting.base import Accountant, pure_epsilon
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism


class Basic(Accountant):
    """Σ_t ε(t), with δ = 0. The only one that stays exact when nothing may ever go wrong."""

    name: ClassVar[str] = "basic"
    label: ClassVar[str] = "basic"
    least_delta: ClassVar[float] = 0.0

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        return math.fsum(pure_epsilon(event, self.name) for event in events)

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        pure_epsilon(unit, self.name)
        return budget.epsilon / math.fsum(costs)
