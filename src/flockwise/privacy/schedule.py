"""The plans of many simulated agents: one calibration for all agents with the same budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import default_accountant
from flockwise.privacy.budget import Budget, Budgets, least_delta
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.plan import Plan


@dataclass(frozen=True, eq=False)
class Schedule:
    """Everyone's plan: agent i has plans[rows[i]]. All have the same mechanism and number of releases."""

    plans: tuple[Plan, ...]
    rows: NDArray[np.int32]

    @classmethod
    def fitting(
        cls,
        budgets: Budgets,
        n_agents: int,
        mechanism: str,
        releases: int | Sequence[float],
        *,
        accountant: str | None = None,
    ) -> Schedule:
        """The least noise for everyone's budget, all under one accountant; see `Plan.fitting`."""
        distinct, rows = distinct_budgets(budgets, n_agents)
        accountant = accountant or default_accountant(mechanism, least_delta(distinct))
        plans = (Plan.fitting(budget, mechanism, releases, accountant=accountant) for budget in distinct)
        return cls(tuple(plans), rows)

    @property
    def mechanism(self) -> str:
        return self.plans[0].mechanism

    @property
    def n_releases(self) -> int:
        return len(self.plans[0])

    @property
    def multipliers(self) -> Floats:
        """Noise for a sensitivity of 1: one row per plan, one column per release."""
        return np.array([plan.multipliers for plan in self.plans])

    def stds(self, dimension: int) -> Floats:
        """Standard deviation of one coordinate for a sensitivity of 1, by agent and release."""
        unit = MECHANISMS[self.mechanism](1.0, 1.0, None, dimension).noise_std
        # One release of everyone lies after the other, as they are used.
        return np.take(unit * self.multipliers.T, self.rows, axis=1).T

    def plan_of(self, agent: int) -> Plan:
        return self.plans[int(self.rows[agent])]

    @property
    def least(self) -> Plan:
        """The plan of the least ε: the one with most noise, which a guarantee states."""
        return min(self.plans, key=lambda plan: plan.budget.epsilon)


def distinct_budgets(budgets: Budgets, n_agents: int) -> tuple[tuple[Budget, ...], NDArray[np.int32]]:
    """The different budgets, and which of them is each agent's; from one for all or one each."""
    if isinstance(budgets, Budget):
        return (budgets,), np.zeros(n_agents, np.int32)
    if len(budgets) != n_agents:
        raise PrivacyError(f"{len(budgets)} budgets for {n_agents} agents; give one for all or one each")
    rows = {budget: row for row, budget in enumerate(dict.fromkeys(budgets))}
    return tuple(rows), np.array([rows[budget] for budget in budgets], np.int32)
