"""Gaussian differential privacy: exact for real-valued normal noise, and as simple as a sum of squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.analytic_gaussian import epsilon_of, mu_of
from flockwise.privacy.accounting.base import Accountant, gaussian_mu
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism


class Gdp(Accountant):
    """Events of μ_1, …, μ_T compose to √(Σμ²) (Dong, Roth and Su 2022, Corollary 2), without any loss.

    It refuses integer normal noise, for which the curve is not proven.
    """

    name: ClassVar[str] = "gdp"
    label: ClassVar[str] = "GDP"

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        mu = math.sqrt(math.fsum(gaussian_mu(event, self.name) ** 2 for event in events))
        return epsilon_of(mu, delta) if events else 0.0

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        gaussian_mu(unit, self.name)
        if budget.delta == 0:
            raise PrivacyError("gdp: normal noise never has delta = 0; allow a delta above 0, or use laplace")
        return mu_of(budget.epsilon, budget.delta) / math.sqrt(math.fsum(cost**2 for cost in costs))
