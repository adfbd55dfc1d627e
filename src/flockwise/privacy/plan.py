"""A plan: all that an agent will ever spend, as noise multipliers that are fixed before the first release.

The cost of a release depends on noise/sensitivity alone. So a plan holds ratios, and the gate multiplies each
by the sensitivity of what it is given. The number of samples may grow meanwhile: a later release then has
a smaller sensitivity and less noise, at the same cost. This is adaptive composition with costs that are
fixed beforehand (docs/privacy.md).

Release k consumes multiplier k, once and in order. One that is not used is lost.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import calibrate, composed_epsilon, default_accountant
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS, Mechanism, accountants_of

# Stands for any grid: no accountant of a plan looks at its step.
_UNIT_GRID: Final = 2.0**-20


def tail_start(n_updates: int) -> int:
    """The second half of an agent's releases is averaged."""
    return n_updates // 2


@dataclass(frozen=True)
class Plan:
    """Multipliers whose composition fits the budget: there is no plan that does not."""

    budget: Budget
    mechanism: str
    accountant: str
    multipliers: tuple[float, ...]
    on_grid: bool = False

    def __post_init__(self) -> None:
        MECHANISMS[self.mechanism].check_accountant(self.accountant, on_grid=self.on_grid)
        if not self.multipliers:
            raise PrivacyError("a plan needs at least one release, got none")
        total = self.epsilon_after(len(self.multipliers))
        if not total <= self.budget.epsilon:
            raise PrivacyError(
                f"this plan of {len(self.multipliers)} releases costs epsilon={total:.9g} at "
                f"delta={self.budget.delta!r} under {self.accountant}, more than the budget of "
                f"epsilon={self.budget.epsilon!r}; add noise or drop releases"
            )

    @classmethod
    def fitting(
        cls,
        budget: Budget,
        mechanism: str,
        releases: int | Sequence[float],
        *,
        accountant: str | None = None,
        on_grid: bool = False,
    ) -> Self:
        """The least noise that the budget allows.

        releases: how many equal ones, or their relative costs: noise is inversely proportional to cost.
        accountant: by default the mechanism's first that covers the δ; `flockwise plan` compares all of them.
        """
        accountant = accountant or default_accountant(mechanism, budget.delta, on_grid=on_grid)
        MECHANISMS[mechanism].check_accountant(accountant, on_grid=on_grid)
        events = calibrate(budget, _unit(mechanism, on_grid), accountant, releases)
        return cls(budget, mechanism, accountant, tuple(event.multiplier for event in events), on_grid)

    def __len__(self) -> int:
        """How many releases it is for."""
        return len(self.multipliers)

    @property
    def costs(self) -> tuple[float, ...]:
        """The releases' relative costs."""
        return tuple(1 / multiplier for multiplier in self.multipliers)

    def event(self, number: int, sensitivity: float, dimension: int, grid: float | None = None) -> Mechanism:
        """Release `number` (from 1) of a vector of this sensitivity: no less noise, not even by rounding."""
        if (grid is not None) != self.on_grid:
            raise PrivacyError(
                f"this plan is for noise {'on' if self.on_grid else 'off'} a grid, got {grid=}"
            )
        if not 1 <= number <= len(self.multipliers):
            raise PrivacyError(f"release {number} is not one of the {len(self.multipliers)} of this plan")
        multiplier = self.multipliers[number - 1]
        scale = multiplier * sensitivity
        while scale / sensitivity < multiplier or sensitivity / scale > 1 / multiplier:
            scale = math.nextafter(scale, math.inf)
        return MECHANISMS[self.mechanism](sensitivity, scale, grid, dimension)

    def epsilon_after(self, releases: int) -> float:
        """The ε, at the budget's δ, of the first releases together."""
        if not 0 <= releases <= len(self.multipliers):
            raise PrivacyError(
                f"releases must be from 0 to the {len(self.multipliers)} of the plan, got {releases!r}"
            )
        unit = _unit(self.mechanism, self.on_grid)
        made = {multiplier: unit.with_multiplier(multiplier) for multiplier in set(self.multipliers)}
        events = tuple(made[multiplier] for multiplier in self.multipliers[:releases])
        return composed_epsilon(self.accountant, events, self.budget.delta)

    def for_real_agents(self) -> Plan | None:
        """The same budget and costs on a grid, as a real agent draws; None without an integer version."""
        if not accountants_of(self.mechanism, on_grid=True):
            return None
        return Plan.fitting(self.budget, self.mechanism, self.costs, on_grid=True)

    def to_json(self) -> str:
        runs = [[value, len(list(run))] for value, run in itertools.groupby(self.multipliers)]
        return json.dumps(
            {
                "epsilon": self.budget.epsilon,
                "delta": self.budget.delta,
                "mechanism": self.mechanism,
                "accountant": self.accountant,
                "on_grid": self.on_grid,
                "multipliers": runs,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The plan that was written; it is checked against its budget again."""
        try:
            document: dict[str, Any] = json.loads(text)
            budget = Budget(document["epsilon"], document["delta"])
            runs = [(value,) * times for value, times in document["multipliers"]]
            words = document["mechanism"], document["accountant"]
            return cls(budget, *words, tuple(itertools.chain.from_iterable(runs)), document["on_grid"])
        except (ValueError, KeyError, TypeError) as error:
            raise PrivacyError(f"cannot read the plan: {error}") from error


def _unit(mechanism: str, on_grid: bool) -> Mechanism:
    return MECHANISMS[mechanism](1.0, 1.0, _UNIT_GRID if on_grid else None)
