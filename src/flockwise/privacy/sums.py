"""Sums that are opened as a whole: everyone adds integers and a share of the noise that one release needs.

Nobody sees what one agent put in, only the total modulo 2⁶⁴. A protocol that opens nothing else is called
secure aggregation. It is not part of this package: a simulation assumes it, and its guarantee says so.

Against whom. Of n agents up to ⌊colluding·n⌋ may pool what they know, and up to ⌊absent·n⌋ may fail to
deliver; with more absent the sum is not opened. So at least h = n − both of them are honest and deliver, and
each adds integer normal noise of variance σ²/h. A coalition can subtract what its members added. The rest
is the noise of at least h agents: the protected agent's own share and those of h − 1 others.

How much. Let σ count grid steps.

1. h discrete normal variables of variance σ²/h add up to nearly one of variance σ². By Poisson summation the
   convolution of two of variances a and b has, point by point, the probabilities of one of variance a + b
   times a factor within 1 ± 5·exp(−2π²ab/(a + b)). Adding them up one after the other, the logarithm of the
   probability of a sum moves by at most 10·h·exp(−π²σ²/h) a coordinate (Kairouz, Liu and Steinke, "The
   distributed discrete Gaussian mechanism for federated learning with secure aggregation", ICML 2021).
   From σ²/h = 64 on, that is below 1e-250.
2. A normal variable rounded to an integer differs from the discrete normal one by at most .0203/σ² in total
   variation from σ = 100 on: the ratio of their probabilities at k is 1 + (k²/σ² − 1)/(24σ²) + …, and
   E|Z² − 1| = .968 for a standard normal Z.
3. Rounding real-valued normal noise on integers is post-processing, so the exact curve of normal noise
   holds for it. Replacing it by the discrete one adds (1 + e^ε)·d·.0203/σ² to δ, for d coordinates in all
   sums.

`SumPlan` sets a thousandth of δ aside for step 3, and refuses a grid that is too coarse for steps 1 and 2.

If all others collude, one share is left, and ε is so large that step 3 would cost more than δ. One share is
one discrete normal variable a coordinate, and for it zero-concentrated privacy holds as it stands, with
ρ = h/2 times what all sums together cost in 1/σ² (Canonne, Kamath and Steinke, NeurIPS 2020, Theorem 14).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.checks import Count, ShareBelowOne, check_fields
from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.zcdp import epsilon_of
from flockwise.privacy.budget import Budget, Budgets
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.origin import Adversary
from flockwise.privacy.plan import Plan
from flockwise.privacy.schedule import distinct_budgets
from flockwise.randomness.noise import standard_noise

# The share of δ that pays for integer noise in place of real-valued noise.
INTEGER_SHARE: Final = 1e-3
# Total variation between rounded and discrete normal noise, times σ².
ROUNDED_TO_DISCRETE: Final = 0.0203
# In grid steps: every share of noise, and the noise of a sum, is at least this large.
LEAST_SHARE: Final = 8.0
LEAST_NOISE: Final = 100.0
NORMAL: Final = "gaussian"
# Stands for all agents together where noise is drawn; no agent has this number.
EVERYONE: Final = 2**32 - 1
# A share such as 1/3 of 3 agents must not lose an agent to rounding.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Crowd:
    """The agents of a sum: how many, and which shares of them may collude or be absent."""

    n_agents: Count
    colluding: ShareBelowOne = 1 / 3
    absent: ShareBelowOne = 0.1

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)
        if self.honest < 1:
            raise PrivacyError(
                f"of {self.n_agents} agents {self._colluders} may collude and {self._absentees} be absent, "
                "which leaves nobody to add noise; lower colluding or absent"
            )

    @property
    def _colluders(self) -> int:
        return int(self.n_agents * self.colluding + _ROUNDING)

    @property
    def _absentees(self) -> int:
        return int(self.n_agents * self.absent + _ROUNDING)

    @property
    def honest(self) -> int:
        """h: agents that are honest and deliver, in the worst case planned for."""
        return self.n_agents - self._colluders - self._absentees

    @property
    def least_present(self) -> int:
        """With fewer the sum is not opened."""
        return self.n_agents - self._absentees

    @property
    def adversary(self) -> Adversary:
        return Adversary(
            f"Whoever sees all that is sent and every opened sum, with up to {self._colluders} of the "
            f"{self.n_agents} agents colluding,",
            (
                "only sums are opened: secure aggregation, which is not simulated",
                f"a sum is opened only if at least {self.least_present} of {self.n_agents} agents deliver",
                "agents follow the protocol: a malicious one can spoil a sum, and learns no more by it",
            ),
        )


class OpenedSum(NamedTuple):
    """A sum that was opened, in grid steps, and who delivered, by position."""

    total: NDArray[np.int64]
    present: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SumSize:
    """The public facts about a sum: how far one agent can move it, and how noise is spread over it.

    sensitivity: in grid steps, in the norm that divides each coordinate by its scale. scales: the noise's
    relative standard deviation by coordinate. step: the value of one grid step.
    """

    sensitivity: float
    scales: Floats
    step: float


@dataclass(frozen=True, eq=False)
class SumPlan:
    """The noise of a fixed number of sums that fits everyone's budget.

    plans: one for each different budget; agent i has plans[rows[i]]. The noise is that of the largest
    budget. Agents with a smaller one scale what they add, by `weights`, and so get their own protection from
    the same noise.
    """

    crowd: Crowd
    plans: tuple[Plan, ...]
    rows: NDArray[np.int32]

    @classmethod
    def fitting(cls, budgets: Budgets, crowd: Crowd, variance_shares: Sequence[float]) -> SumPlan:
        """The least noise for everyone's budget; the sums cost it in these shares."""
        distinct, rows = distinct_budgets(budgets, crowd.n_agents)
        costs = [math.sqrt(share) for share in variance_shares]
        plans = (Plan.fitting(_less_integer_share(budget), NORMAL, costs) for budget in distinct)
        return cls(crowd, tuple(plans), rows)

    @cached_property
    def plan(self) -> Plan:
        """That of the largest budget."""
        return min(self.plans, key=lambda plan: plan.multipliers)

    @property
    def largest_multiplier(self) -> float:
        """Noise over sensitivity in the first sum, for the least budget."""
        return max(plan.multipliers[0] for plan in self.plans)

    @cached_property
    def weights(self) -> Floats:
        """By which each agent scales what it adds: 1 for the largest budget."""
        least = self.plan.multipliers[0]
        return np.array([least / plan.multipliers[0] for plan in self.plans])[self.rows]

    def std(self, number: int) -> float:
        """Standard deviation of the noise in an opened sum to which everyone adds, for a sensitivity of 1."""
        return self.plan.multipliers[number - 1] * math.sqrt(self.crowd.n_agents / self.crowd.honest)

    def share_stds(self, number: int, size: SumSize) -> Floats:
        """Standard deviation of one agent's share by coordinate, in grid steps."""
        stds = self.plan.multipliers[number - 1] * size.sensitivity * size.scales
        shares = stds / math.sqrt(self.crowd.honest)
        self._check_grid(stds, shares)
        return shares

    def _check_grid(self, stds: Floats, shares: Floats) -> None:
        distance = ROUNDED_TO_DISCRETE * float((1 / stds**2).sum())
        for budget in (plan.budget for plan in self.plans):
            added = (1 + math.exp(budget.epsilon)) * distance
            allowed = INTEGER_SHARE * budget.delta / len(self.plan)
            if shares.min() < LEAST_SHARE or stds.min() < LEAST_NOISE or added > allowed:
                raise PrivacyError(
                    f"the grid of a sum of {len(stds)} numbers over {self.crowd.n_agents} agents is too "
                    f"coarse for epsilon={budget.epsilon!r} and delta={budget.delta!r}; use a smaller "
                    "epsilon, allow a larger delta, or sum fewer numbers"
                )

    @property
    def if_all_collude(self) -> tuple[float, float]:
        """The least and the largest ε if everybody else colludes: one's own share of noise is then all."""
        each = [epsilon_of(self.crowd.honest * _rho(plan), plan.budget.delta) for plan in self.plans]
        return min(each), max(each)


def _rho(plan: Plan) -> float:
    """What all releases of a plan cost together in zero-concentrated differential privacy."""
    return math.fsum(1 / (2 * multiplier**2) for multiplier in plan.multipliers)


def _less_integer_share(budget: Budget) -> Budget:
    if budget.delta == 0:
        raise PrivacyError("a sum needs normal noise, which never has delta = 0; allow a delta above 0")
    return Budget(budget.epsilon, (1 - INTEGER_SHARE) * budget.delta)


@dataclass(frozen=True, eq=False)
class SumNoise:
    """The noise of simulated sums, from a seed.

    stds: of one agent's share, for every sum by its number, in grid steps by coordinate. Two sums under one
    number would have the same noise, and their difference none: another request under a number is refused.
    """

    seed: int
    stds: tuple[Floats, ...]
    _requests: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    def share(self, agent: int, number: int, request: Any, size: int) -> NDArray[np.int64]:
        """What one agent adds to its part of a sum of so many numbers."""
        return self._drawn(agent, number, self._paid_for(number, request, size))

    def whole(self, n_agents: int, number: int, request: Any, size: int) -> NDArray[np.int64]:
        """One draw in place of the shares of so many agents, with the same variance."""
        return self._drawn(EVERYONE, number, math.sqrt(n_agents) * self._paid_for(number, request, size))

    def _paid_for(self, number: int, request: Any, size: int) -> Floats:
        """Nothing is added up that the plan did not count."""
        if number > len(self.stds) or size != len(self.stds[number - 1]):
            sizes = ", ".join(str(len(stds)) for stds in self.stds)
            raise PrivacyError(
                f"sum {number} of {size} numbers was not planned: the budget pays for sums of {sizes} "
                "numbers, each opened once"
            )
        if not _are_alike(self._requests.setdefault(number, request), request):
            raise PrivacyError(
                f"sum {number} was asked for before, for something else or at other values; the budget pays "
                "for one of them: prepare the run anew"
            )
        return self.stds[number - 1]

    def _drawn(self, agent: int, number: int, stds: Floats) -> NDArray[np.int64]:
        sampler = MECHANISMS[NORMAL].sampler()
        return np.rint(stds * standard_noise(sampler, self.seed, agent, number, len(stds))).astype(np.int64)


def _are_alike(one: Any, other: Any) -> bool:
    """Whether requests ask for the same: tuples of texts, numbers and arrays."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    return np.array_equal(one, other)


def added_up(shares: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The total modulo 2⁶⁴, read as a signed number."""
    total: NDArray[np.uint64] = np.array(shares).astype(np.uint64).sum(axis=0)
    return total.astype(np.int64)
