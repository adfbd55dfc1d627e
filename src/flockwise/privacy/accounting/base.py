"""What every accountant is: it composes events, and finds the least noise whose composition fits a budget."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, cast

import numpy as np

from flockwise.errors import PrivacyError
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism

_STRIDE = 1.5


class Accountant(ABC):
    """A proven rule for what a sequence of events costs together.

    Released values may depend on earlier outputs; the multipliers are fixed up front.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    precision: ClassVar[float] = 1e-9
    """How near to the least noise `rate` comes, relative to it; always on the safe side."""
    least_delta: ClassVar[float] = sys.float_info.min
    """The smallest δ at which it states an ε."""
    takes_zero: ClassVar[bool] = False
    """Whether it also takes δ = 0, below its least one, for pure events."""
    equal_steps_only: ClassVar[bool] = False
    adds_epsilons: ClassVar[bool] = False
    """Whether costs add up as Σε; for others they do as Σε², at least for many small steps."""

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        """The ε for which all these events together are (ε, δ)-differentially private; may be infinite.

        An event for which this rule is not proven is refused: its mechanism says for which it is.
        """
        for kind, on_grid in {(type(event), event.grid is not None) for event in events}:
            kind.check_accountant(self.name, on_grid=on_grid)
        return self.compose(events, delta) if events else 0.0

    @abstractmethod
    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        """The ε of one or more events, for each of which the rule is proven."""

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        """The largest r for which events like `unit` with multipliers 1/(r·cost) fit the budget."""

        def excess(rate: float) -> float:
            return self.compose(events_at(unit, costs, rate), budget.delta) - budget.epsilon

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


def root_on_safe_side(
    excess: Callable[[float], float], safe: float, unsafe: float, precision: float
) -> float:
    """A point next to the root at which excess ≤ 0, where excess(safe) ≤ 0 < excess(unsafe).

    Neither is negative. precision: the relative distance to the root, at most.
    """
    # Slow to import, and of no use to someone who only reads a plan.
    from scipy.optimize import brentq

    low, high = sorted((safe, unsafe))
    tolerance = np.float64(max(precision, 1e-15))
    root = cast(float, brentq(excess, low, high, xtol=precision * max(low, 1e-300), rtol=tolerance))
    step = precision * root
    # Brent's method may end on either side, and rounding may make the function uneven at the last digits.
    while excess(root) > 0:
        root = max(root - step, safe) if safe < unsafe else min(root + step, safe)
        step *= 2
    return root
