"""Private coordinate descent, Eq. (6): how much each agent may give away, and what a private run refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.objective import Problem
from flockwise.privacy.allocation import uniform
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import USUALLY_PUBLIC, Guarantee, spans
from flockwise.privacy.noise_plan import MechanismName, NoisePlan, plan_noise
from flockwise.privacy.real_noise import real_event
from flockwise.results.own import OwnModels


@dataclass(frozen=True)
class PrivateUpdates:
    """A budget for `updates` releases of a noisy mean gradient.

    budgets: (ε, δ), one for all agents or one each.
    clip: bound on the gradient of one sample, in L2 for Gaussian and K-norm noise, in L1 for Laplace.
    costs: how the budget is spread, as relative ε of each update (flockwise.privacy.allocation); evenly
    if left out.
    """

    budgets: Budget | Sequence[Budget]
    updates: int
    clip: float
    mechanism: MechanismName = "gaussian"
    accountant: str = "gdp"
    costs: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.costs is not None and len(self.costs) != self.updates:
            raise PrivacyError(
                f"costs must have one number per update, got {len(self.costs)} for updates={self.updates}"
            )

    def plan(self, problem: Problem, start: WarmStart | None = None) -> NoisePlan:
        """Everyone's events, that of a released start included; no step may tell of the data otherwise."""
        if problem.smoothness != "public":
            raise PrivacyError(
                "smoothness='exact' computes step sizes from the data, and a released step then tells of "
                "them; give Problem smoothness='public' and feature_bound, a bound on every ‖x‖₂"
            )
        costs = tuple(uniform(self.updates) if self.costs is None else self.costs)
        if start is not None and self.mechanism != "gaussian":
            raise PrivacyError(
                f"mechanism={self.mechanism!r}: a warm start is released with normal noise, and one plan "
                "covers both; use mechanism='gaussian', or start from 'zeros'"
            )
        return plan_noise(
            self.budgets,
            problem.population.sample_counts,
            self.clip,
            costs if start is None else (start.cost, *costs),
            mechanism=self.mechanism,
            accountant=self.accountant,
            dimension=problem.dimension,
            start_sensitivities=None if start is None else start.kind.sensitivities(problem),
        )

    def guarantee(self, problem: Problem, start: WarmStart | None = None) -> Guarantee:
        """What holds for everything that the agents send."""
        plan = self.plan(problem, start)
        epsilon, delta = spans(plan.budgets)
        least = min(range(len(plan.budgets)), key=lambda row: plan.budgets[row].epsilon)
        first = plan.unit_events[least][0]
        costs = [1 / event.multiplier for event in plan.unit_events[least]]
        real = real_event(plan.budgets[least], first, costs)
        return Guarantee(
            mechanism=self._mechanism(start),
            public=USUALLY_PUBLIC if start is None else USUALLY_PUBLIC[:-1],
            accountant=self.accountant,
            epsilon=epsilon,
            delta=delta,
            leaks=problem.leaks,
            noise_multiplier=first.noise_std / first.sensitivity,
            real_multiplier=None if real is None else real.noise_std / real.sensitivity,
        )

    def _mechanism(self, start: WarmStart | None) -> str:
        updates = f"{self.mechanism} noise on mean gradients clipped at {self.clip:g} a sample"
        return updates if start is None else f"{start.kind.mechanism} for the start, {updates}"


@dataclass(frozen=True)
class WarmStart:
    """Everyone's local model, released as the first event of its plan; the descent starts from it.

    cost: its relative ε, where an update costs 1 unless `PrivateUpdates.costs` says otherwise.
    noise_seed: of the simulated noise.
    """

    kind: OutputPerturbation
    cost: float = 1.0
    noise_seed: int = 0


@dataclass(frozen=True, eq=False)
class PublicModels:
    """Models to start from that tell nothing of anybody's data: known beforehand, or released by a gate."""

    models: NDArray[Any]

    def __post_init__(self) -> None:
        if isinstance(self.models, OwnModels):
            raise PrivacyError(
                "own models are made of private data without noise: they are no start for a private run; "
                "start from the released ones (run.models)"
            )


def tail_start(n_updates: int) -> int:
    """The update from which on an agent's releases are averaged: the second half of them."""
    return n_updates // 2


def tail_noise_variances(problem: Problem, plan: NoisePlan) -> NDArray[np.float64]:
    """Variance per coordinate that the noise leaves in each agent's tail average; public.

    An update takes (1 − α) of the model along and adds α·μc_i times its noise, so that the noise of
    update u counts α·μc_i·(1 − α)^(t − u) in model t. What comes back from neighbors is left out.
    """
    keep = (1 - problem.step_sizes)[:, None]
    gains = (problem.step_sizes * problem.pulls)[:, None]
    n_updates, first = plan.n_updates, tail_start(plan.n_updates)
    updates = np.arange(n_updates)[None, :]
    # Σ over t from max(u, first) to the last of keep^(t − u), a geometric series.
    begin = np.maximum(updates, first) - updates
    weights = gains * (keep**begin - keep ** (n_updates - updates)) / (1 - keep)
    return ((weights * plan.noise_stds()) ** 2).sum(axis=1) / (n_updates - first) ** 2
