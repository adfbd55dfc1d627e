"""How much may ever be learned about one sample of an agent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeAlias

from flockwise.errors import PrivacyError


@dataclass(frozen=True)
class Budget:
    """(ε, δ)-differential privacy for all that an agent ever sends, when one of its samples is replaced."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, Real) and math.isfinite(self.epsilon) and self.epsilon > 0):
            raise PrivacyError(f"epsilon must be positive and finite, got epsilon={self.epsilon!r}")
        if not (isinstance(self.delta, Real) and 0 <= self.delta < 1):
            raise PrivacyError(f"delta must be from 0 to below 1, got delta={self.delta!r}")


# One for all agents, or one each.
Budgets: TypeAlias = Budget | Sequence[Budget]


def least_delta(budgets: Budgets) -> float:
    """0 if any agent allows no δ."""
    return budgets.delta if isinstance(budgets, Budget) else min(budget.delta for budget in budgets)


def default_delta(max_samples: int) -> float:
    """One δ for all agents: min(1e-5, 1/m_max²), where m_max is the public cap on an agent's samples."""
    if max_samples < 1:
        raise PrivacyError(f"max_samples must be at least 1, got max_samples={max_samples!r}")
    return min(1e-5, 1 / max_samples**2)
