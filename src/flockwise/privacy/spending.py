"""What an agent may spend next: the next event of a plan, or whatever a filter has room for.

Either is granted once, as text in the ledger, before the first release. What is spent is read from the
ledger's entries and from nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from flockwise.errors import BudgetSpent, LedgerError, PrivacyError
from flockwise.privacy.budget import Budget
from flockwise.privacy.filters import Filter, filter_from_json
from flockwise.privacy.mechanisms import Mechanism
from flockwise.privacy.plan import Plan

Policy: TypeAlias = Plan | Filter


class Spending(Protocol):
    """The side of a plan or a filter that the gate sees."""

    text: str  # what the ledger is granted
    budget: Budget
    description: str
    consumed: int  # how many events were noted

    def planned(self) -> frozenset[Mechanism]:
        """Every event that is known beforehand."""
        ...

    def replay(self, events: Sequence[Mechanism]) -> None:
        """Note what a ledger says was spent next; refuse what this plan or filter cannot have led to."""
        ...

    def next_event(self, wanted: Mechanism | None) -> Mechanism:
        """What a release would spend after all that was noted; BudgetSpent if nothing is left for it."""
        ...

    def epsilon_spent(self, consumed: int) -> float: ...


class PlanSpending:
    """Event k for release k; when all are used the agent goes silent."""

    def __init__(self, plan: Plan, agent: str) -> None:
        self.text = plan.to_json()
        self.budget = plan.budget
        self.description = f"a plan of {len(plan.events):,}, accounted by {plan.accountant_name}"
        self.consumed = 0
        self._plan = plan
        self._agent = agent

    def planned(self) -> frozenset[Mechanism]:
        return frozenset(self._plan.events)

    def replay(self, events: Sequence[Mechanism]) -> None:
        consumed = self.consumed + len(events)
        if tuple(events) != self._plan.events[self.consumed : consumed]:
            raise LedgerError(
                f"agent {self._agent!r}: the {consumed} events in its ledger are not the first of its plan"
            )
        self.consumed = consumed

    def next_event(self, wanted: Mechanism | None) -> Mechanism:
        if wanted is not None:
            raise PrivacyError(
                f"agent {self._agent!r}: it has a plan, which says what the next event is; leave event out"
            )
        if self.consumed >= len(self._plan.events):
            raise BudgetSpent(
                f"agent {self._agent!r}: all {len(self._plan.events)} events of its plan are spent; it stays "
                "silent from now on, but may go on learning from what it receives"
            )
        return self._plan.events[self.consumed]

    def epsilon_spent(self, consumed: int) -> float:
        return self._plan.epsilon_spent(consumed)


class FilterSpending:
    """Any event that still fits. Its noise may depend on what was released, never on the data themselves."""

    def __init__(self, limit: Filter, agent: str) -> None:
        if limit.events:
            raise PrivacyError(
                f"agent {agent!r}: the filter has {len(limit.events)} charges of its own; give the gate an "
                "empty one, the charges are in the ledger"
            )
        self.text = limit.to_json()
        self.budget = limit.budget
        self.description = f"decided as it goes, under a {limit.name} filter"
        self.consumed = 0
        self._filter = filter_from_json(self.text)  # a copy that nobody else can charge
        self._agent = agent

    def planned(self) -> frozenset[Mechanism]:
        return frozenset()

    def replay(self, events: Sequence[Mechanism]) -> None:
        try:
            for event in events:
                self._filter.charge(event)
                self.consumed += 1
        except BudgetSpent as error:
            raise LedgerError(
                f"agent {self._agent!r}: its ledger holds more than its filter allows"
            ) from error

    def next_event(self, wanted: Mechanism | None) -> Mechanism:
        if wanted is None:
            raise PrivacyError(
                f"agent {self._agent!r}: it has no plan but a filter; say which event to spend"
            )
        if not self._filter.allows(wanted):
            raise BudgetSpent(
                f"agent {self._agent!r}: its {self._filter.name} filter has spent "
                f"epsilon={self._filter.epsilon_spent:.6g} of {self.budget.epsilon!r} and has no room for "
                f"{wanted!r}; stay silent, or add more noise"
            )
        return wanted

    def epsilon_spent(self, consumed: int) -> float:
        return type(self._filter)(self.budget, self._filter.events[:consumed]).epsilon_spent


def spending_by(policy: Policy, agent: str) -> Spending:
    return PlanSpending(policy, agent) if isinstance(policy, Plan) else FilterSpending(policy, agent)


def policy_from(text: str) -> Policy:
    """The plan or filter that a ledger was granted."""
    return filter_from_json(text) if "filter" in json.loads(text) else Plan.from_json(text)
