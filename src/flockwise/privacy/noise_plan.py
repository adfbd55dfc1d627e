"""What the gate lets the agents of a simulation add to their mean gradients, release by release.

An engine adds what stands here and knows no ε of its own. One calibration serves all agents with the
same budget: what an event costs depends on the ratio of noise to sensitivity alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting import calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace, Mechanism
from flockwise.privacy.plan import Plan

MechanismName: TypeAlias = Literal["gaussian", "laplace", "knorm"]


@dataclass(frozen=True, eq=False)
class NoisePlan:
    """Events for every agent: unit events by budget, times each agent's sensitivity.

    clip: bound on the gradient of one point, in the norm of the mechanism.
    schedules[i]: which row of unit events is agent i's; sensitivities[i]: 2·clip/m_i, and 0 for an agent
    without points, whose messages tell nothing of any.
    start_sensitivities: where the start itself is released, as the first event, how far it may move.
    """

    clip: float
    accountant: str
    budgets: tuple[Budget, ...]
    unit_events: tuple[tuple[Mechanism, ...], ...]
    schedules: NDArray[np.int32]
    sensitivities: NDArray[np.float64]
    start_sensitivities: NDArray[np.float64] | None = None

    @property
    def n_before(self) -> int:
        """Events that are spent before the first update."""
        return 0 if self.start_sensitivities is None else 1

    @property
    def n_updates(self) -> int:
        return len(self.unit_events[0]) - self.n_before

    @property
    def mechanism(self) -> Mechanism:
        """An event of the kind that all are."""
        return self.unit_events[0][0]

    @property
    def multipliers(self) -> NDArray[np.float64]:
        """Noise for a sensitivity of 1: one row per schedule, one column per update."""
        return self._all_multipliers[:, self.n_before :]

    @property
    def start_multipliers(self) -> NDArray[np.float64]:
        """Noise for a start of sensitivity 1, by agent."""
        return self._all_multipliers[self.schedules, 0]

    @property
    def _all_multipliers(self) -> NDArray[np.float64]:
        return np.array([[event.multiplier for event in events] for events in self.unit_events])

    def noise_stds(self) -> NDArray[np.float64]:
        """Standard deviation of one coordinate of the noisy mean gradient, by agent and update."""
        units = np.array([[e.noise_std for e in events[self.n_before :]] for events in self.unit_events])
        return units[self.schedules] * self.sensitivities[:, None]

    def plan_of(self, agent: int) -> Plan | None:
        """What one agent's own gate is granted; None for an agent without points."""
        sensitivity = float(self.sensitivities[agent])
        if sensitivity == 0:
            return None
        schedule = int(self.schedules[agent])
        starts = self.start_sensitivities
        start = None if starts is None else float(starts[agent])
        return _scaled_plan(
            self.budgets[schedule], self.accountant, self.unit_events[schedule], sensitivity, start
        )


def plan_noise(
    budgets: Budget | Sequence[Budget],
    sample_counts: NDArray[np.int64],
    clip: float,
    costs: Sequence[float],
    *,
    mechanism: MechanismName = "gaussian",
    accountant: str = "gdp",
    dimension: int,
    start_sensitivities: NDArray[np.float64] | None = None,
) -> NoisePlan:
    """The least noise that the budgets allow for events of these relative costs.

    With `start_sensitivities` the first event is the release of the start, the others are updates.
    """
    if not (np.isfinite(clip) and clip > 0):
        raise PrivacyError(f"clip must be positive and finite, got clip={clip!r}")
    distinct, schedules = _distinct(budgets, len(sample_counts))
    unit = unit_event(mechanism, dimension)
    return NoisePlan(
        clip,
        accountant,
        distinct,
        tuple(calibrate(budget, unit, accountant, costs=tuple(costs)) for budget in distinct),
        schedules,
        np.where(sample_counts > 0, 2 * clip / np.maximum(sample_counts, 1), 0.0),
        start_sensitivities,
    )


def unit_event(mechanism: MechanismName, dimension: int) -> Mechanism:
    """An event of sensitivity 1, whose noise is still to be calibrated."""
    match mechanism:
        case "gaussian":
            return Gaussian(1.0, 1.0)
        case "laplace":
            return Laplace(1.0, 1.0)
        case "knorm":
            return KNorm(1.0, 1.0, dimension=dimension)
    raise PrivacyError(f"mechanism must be gaussian, laplace or knorm, got mechanism={mechanism!r}")


def _distinct(
    budgets: Budget | Sequence[Budget], n_agents: int
) -> tuple[tuple[Budget, ...], NDArray[np.int32]]:
    if isinstance(budgets, Budget):
        return (budgets,), np.zeros(n_agents, np.int32)
    if len(budgets) != n_agents:
        raise PrivacyError(f"budgets: got {len(budgets)} for {n_agents} agents; give one for all or one each")
    rows = {budget: row for row, budget in enumerate(dict.fromkeys(budgets))}
    return tuple(rows), np.array([rows[budget] for budget in budgets], np.int32)


@lru_cache(maxsize=4096)
def _scaled_plan(
    budget: Budget, accountant: str, units: tuple[Mechanism, ...], sensitivity: float, start: float | None
) -> Plan:
    """The unit events for other sensitivities; agents with as many points share it."""
    before = [] if start is None else [start]
    sensitivities = before + [sensitivity] * (len(units) - len(before))
    events = (_scaled_event(unit, value) for unit, value in zip(units, sensitivities, strict=True))
    return Plan(budget, accountant, tuple(events))


def _scaled_event(unit: Mechanism, sensitivity: float) -> Mechanism:
    """An event for another sensitivity, with no less noise in proportion, not even by rounding."""
    scale = unit.multiplier * sensitivity
    while scale / sensitivity < unit.multiplier or sensitivity / scale > 1 / unit.multiplier:
        scale = math.nextafter(scale, math.inf)
    return dataclasses.replace(unit, sensitivity=sensitivity, scale=scale)
