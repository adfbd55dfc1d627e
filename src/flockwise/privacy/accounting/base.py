"""What every accountant is: it composes events, and finds the least noise whose composition fits a budget."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.search import root_on_safe_side
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism

_STRIDE = 1.5


class Accountant(ABC):
    """A proven rule for what a sequence of events costs together.

    What the events release may depend on earlier outputs; their multipliers are fixed up front.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    precision: ClassVar[float] = 1e-9
    """How near to the least noise `rate` comes, relative to it; always on the safe side."""
    least_delta: ClassVar[float] = sys.float_info.min
    """The smallest δ at which it states an ε."""

    @abstractmethod
    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        """The ε for which all these events together are (ε, δ)-differentially private; may be infinite.

        Raises PrivacyError for an event that this rule does not cover.
        """

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        """The largest r for which events like `unit` with multipliers 1/(r·cost) fit the budget."""

        def excess(rate: float) -> float:
            return self.epsilon(events_at(unit, costs, rate), budget.delta) - budget.epsilon

        safe = self.first_guess(unit, costs, budget)
        if safe == 0 or math.isinf(excess(safe)):
            raise PrivacyError(
                f"{self.name} cannot bound {unit.name} noise at delta={budget.delta!r}; "
                "allow a delta above 0, or use a pure mechanism (laplace or knorm) with basic accounting"
            )
        while excess(safe) > 0:
            safe /= _STRIDE
        unsafe = _STRIDE * safe
        while excess(unsafe) <= 0:
            safe, unsafe = unsafe, _STRIDE * unsafe
        return root_on_safe_side(excess, safe, unsafe, self.precision)

    def first_guess(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        """Where `rate` begins to look: what basic composition allows, if these are pure events."""
        return budget.epsilon / math.fsum(costs)


def events_at(unit: Mechanism, costs: Sequence[float], rate: float) -> tuple[Mechanism, ...]:
    """One event per relative cost; equal costs share one object."""
    made = {cost: unit.with_multiplier(1 / (rate * cost)) for cost in set(costs)}
    return tuple(made[cost] for cost in costs)


def pure_epsilon(event: Mechanism, accountant: str) -> float:
    """The ε of an event with δ = 0. On a grid it is the same: the integer law has the same ratios."""
    if event.is_pure:
        return event.epsilon
    raise PrivacyError(
        f"{accountant} accounts pure events (laplace, knorm), got a {event.name} event; "
        "use gdp, zcdp, pld or remark for gaussian noise"
    )


def gaussian_mu(event: Mechanism, accountant: str) -> float:
    """Sensitivity over standard deviation of a real-valued normal event."""
    if event.mu is not None:
        return event.mu
    if event.grid is not None:
        raise PrivacyError(
            f"{accountant} is proven for real-valued noise only, got a {event.name} event on a grid; "
            "account integer normal noise by zcdp"
        )
    raise PrivacyError(
        f"{accountant} accounts gaussian events, got a {event.name} event; use pld or zcdp for a mixture"
    )
