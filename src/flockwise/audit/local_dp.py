"""The attack on local privacy: a perturbed point and its perturbed label, both published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.audit.samples import AgentSamples, repeated
from flockwise.method import LocalDP
from flockwise.method.local_dp import TARGET_SHARE
from flockwise.objective import Objective, Problem
from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.budget import Budget
from flockwise.privacy.plan import Plan

FEATURE_BOUND = 1.0


@dataclass(frozen=True, eq=False)
class LocalDPAttack:
    """A point and its label, or its opposite with the other label; the score is the likelihood ratio."""

    name: str
    budget: Budget
    runs: int
    direction: NDArray[np.float64]
    updates: int = 1

    def scores(self, runs: int, seed: int) -> Scores:
        return Scores(*(self._ratios(sign, runs, seed + which) for which, sign in enumerate((1.0, -1.0))))

    def _ratios(self, sign: float, runs: int, seed: int) -> NDArray[np.float64]:
        """Of all runs on the point of this sign: normal noise on the point, sometimes a lie on the label."""
        samples = AgentSamples(sign * self.direction[None, :], np.array([sign]))
        problem = Problem(*repeated(samples, runs), Objective(feature_bound=FEATURE_BOUND))
        published = LocalDP(self.budget).perturbed(problem, seed).population
        label_epsilon = TARGET_SHARE * self.budget.epsilon
        share = Budget(self.budget.epsilon - label_epsilon, self.budget.delta)
        (multiplier,) = Plan.fitting(share, "gaussian", 1).multipliers
        deviation = 2 * FEATURE_BOUND * multiplier
        along = published.features @ self.direction
        return -2 * FEATURE_BOUND * along / deviation**2 - label_epsilon * published.targets
