"""Filters: for an agent that decides as it goes what to spend, and stops when nothing fits any more.

A filter keeps a running sum of costs under a limit that the budget sets beforehand. Then the whole is
within the budget even if the noise of every event was chosen in view of all earlier outputs. That is
proven for pure ε (Rogers, Roth, Ullman and Vadhan, NeurIPS 2016), for zCDP (Feldman and Zrnic, NeurIPS
2021) and for Gaussian differential privacy (Smith and Thakurta, 2022; Koskela, Tobaben and Honkela,
ICLR 2023), and not for privacy loss distributions, which take a plan.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from flockwise.errors import BudgetSpent, PrivacyError
from flockwise.privacy.accounting import analytic_gaussian, zcdp
from flockwise.privacy.accounting.base import gaussian_mu, pure_epsilon
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism, events_from_json, events_to_json


class _Filter(ABC):
    """A running sum of costs that never passes its limit."""

    name: ClassVar[str]

    def __init__(self, budget: Budget, events: Iterable[Mechanism] = ()) -> None:
        """events: what was charged before, for a filter that goes on after a restart."""
        self.budget = budget
        self._limit = self._limit_of(budget)
        self._events: list[Mechanism] = []
        # Exact, so that neither the order nor the number of charges makes any difference.
        self._spent = Fraction(0)
        for event in events:
            self.charge(event)

    @property
    def events(self) -> tuple[Mechanism, ...]:
        """What was charged, in order."""
        return tuple(self._events)

    @property
    def epsilon_spent(self) -> float:
        """What the events so far cost at the budget's δ, as if they had been planned.

        The proven guarantee of a filter is its budget; this is how much of it is used.
        """
        return self._epsilon_of(float(self._spent))

    def allows(self, event: Mechanism) -> bool:
        """Whether the budget has room for this event."""
        return float(self._spent + Fraction(self._cost(event))) <= self._limit

    def charge(self, event: Mechanism) -> None:
        """Spend it; to be stored before anything computed with it leaves the agent."""
        if not self.allows(event):
            raise BudgetSpent(
                f"the {self.name} filter has spent epsilon={self.epsilon_spent:.6g} of "
                f"{self.budget.epsilon!r} at delta={self.budget.delta!r} on {len(self._events)} events and "
                f"has no room for {event!r}; the agent has to stay silent, or add more noise"
            )
        self._spent += Fraction(self._cost(event))
        self._events.append(event)

    def to_json(self) -> str:
        return json.dumps(
            {
                "filter": self.name,
                "epsilon": self.budget.epsilon,
                "delta": self.budget.delta,
                "events": events_to_json(self._events),
            }
        )

    @abstractmethod
    def _limit_of(self, budget: Budget) -> float: ...

    @abstractmethod
    def _cost(self, event: Mechanism) -> float: ...

    @abstractmethod
    def _epsilon_of(self, spent: float) -> float: ...


class GdpFilter(_Filter):
    """Σμ² for real-valued normal noise: exact, so that deciding as one goes costs nothing extra."""

    name: ClassVar[str] = "gdp"

    def _limit_of(self, budget: Budget) -> float:
        return analytic_gaussian.mu_of(budget.epsilon, _positive_delta(budget, self.name)) ** 2

    def _cost(self, event: Mechanism) -> float:
        return gaussian_mu(event, "the gdp filter") ** 2

    def _epsilon_of(self, spent: float) -> float:
        return analytic_gaussian.epsilon_of(math.sqrt(spent), self.budget.delta) if spent else 0.0


class ZcdpFilter(_Filter):
    """Σρ for any mixture of mechanisms, on a grid or not: the filter of real agents."""

    name: ClassVar[str] = "zcdp"

    def _limit_of(self, budget: Budget) -> float:
        return zcdp.rho_of(budget.epsilon, _positive_delta(budget, self.name))

    def _cost(self, event: Mechanism) -> float:
        return zcdp.rho(event)

    def _epsilon_of(self, spent: float) -> float:
        return zcdp.epsilon_of(spent, self.budget.delta)


class PureFilter(_Filter):
    """Σε for Laplace and K-norm noise; it never uses the budget's δ."""

    name: ClassVar[str] = "pure"

    def _limit_of(self, budget: Budget) -> float:
        return budget.epsilon

    def _cost(self, event: Mechanism) -> float:
        return pure_epsilon(event, "the pure filter")

    def _epsilon_of(self, spent: float) -> float:
        return spent


Filter: TypeAlias = GdpFilter | ZcdpFilter | PureFilter
_FILTERS: dict[str, type[Filter]] = {kind.name: kind for kind in (GdpFilter, ZcdpFilter, PureFilter)}


def filter_from_json(text: str) -> Filter:
    """What to_json wrote, with all its charges."""
    try:
        document: dict[str, Any] = json.loads(text)
        kind = _FILTERS[document["filter"]]
        budget, entries = Budget(document["epsilon"], document["delta"]), document["events"]
    except (ValueError, KeyError, TypeError) as error:
        raise PrivacyError(f"this is no filter: {error}") from error
    return kind(budget, events_from_json(entries))


def _positive_delta(budget: Budget, name: str) -> float:
    if budget.delta == 0:
        raise PrivacyError(f"the {name} filter needs a delta above 0; with delta = 0 use the pure filter")
    return budget.delta
