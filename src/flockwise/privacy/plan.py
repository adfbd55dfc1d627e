"""A plan: every event that an agent will ever spend its budget on, fixed before the first release.

Release k consumes event k, once and in order. An event that is not used is lost: planning the rest
anew, with what is left, would be spending decided as one goes, for which only a filter is proven.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import calibrate, composed_epsilon
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism, events_from_json, events_to_json


@dataclass(frozen=True)
class Plan:
    """Events whose composition fits the budget: there is no plan that does not."""

    budget: Budget
    accountant_name: str
    events: tuple[Mechanism, ...]

    def __post_init__(self) -> None:
        total = self.epsilon_spent(len(self.events))
        if not total <= self.budget.epsilon:
            raise PrivacyError(
                f"this plan of {len(self.events)} events costs epsilon={total:.9g} at "
                f"delta={self.budget.delta!r} under {self.accountant_name}, more than the budget of "
                f"epsilon={self.budget.epsilon!r}; add noise or drop events"
            )

    @classmethod
    def fitting(
        cls,
        budget: Budget,
        event: Mechanism,
        *,
        accountant: str,
        updates: int | None = None,
        costs: Sequence[float] | None = None,
    ) -> Self:
        """Events like `event`, with the least noise that the budget allows (see `calibrate`)."""
        return cls(budget, accountant, calibrate(budget, event, accountant, updates=updates, costs=costs))

    def epsilon_spent(self, consumed: int) -> float:
        """The ε, at the budget's δ, of the first `consumed` events together."""
        if not 0 <= consumed <= len(self.events):
            raise PrivacyError(
                f"consumed must be from 0 to the {len(self.events)} events of the plan, got {consumed!r}"
            )
        return composed_epsilon(self.accountant_name, self.events[:consumed], self.budget.delta)

    def to_json(self) -> str:
        return json.dumps(
            {
                "epsilon": self.budget.epsilon,
                "delta": self.budget.delta,
                "accountant": self.accountant_name,
                "events": events_to_json(self.events),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The plan that was written; it is checked against its budget again."""
        try:
            document: dict[str, Any] = json.loads(text)
            budget = Budget(document["epsilon"], document["delta"])
            accountant, entries = document["accountant"], document["events"]
        except (ValueError, KeyError, TypeError) as error:
            raise PrivacyError(f"this is no plan: {error}") from error
        return cls(budget, accountant, events_from_json(entries))
