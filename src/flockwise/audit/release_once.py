"""The attack on release once: one noisy vector per agent, and many agents with the same data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.audit.samples import AgentSamples, repeated
from flockwise.method import ReleaseOnce
from flockwise.objective import CappedLogistic, Objective, Problem
from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.budget import Budget
from flockwise.release import Statistic

FEATURE_BOUND = 1.0


@dataclass(frozen=True, eq=False)
class ReleaseOnceAttack:
    """The score is the position of a release along the line between the two releases without noise.

    For normal noise on the released vector that is the likelihood ratio, but for a constant factor.
    """

    name: str
    statistic: Statistic
    budget: Budget
    runs: int
    pair: tuple[AgentSamples, AgentSamples]
    updates: int = 1

    def scores(self, runs: int, seed: int) -> Scores:
        shift = self._shift(seed)
        return Scores(
            *(
                self._releases(samples, runs, seed + 1 + which) @ shift
                for which, samples in enumerate(self.pair)
            )
        )

    def _shift(self, seed: int) -> NDArray[np.float64]:
        """With the same seed the noise is the same and drops out."""
        first, second = (self._releases(samples, 1, seed)[0] for samples in self.pair)
        return (second - first) / np.linalg.norm(second - first)

    def _releases(self, samples: AgentSamples, runs: int, seed: int) -> NDArray[np.float64]:
        problem = Problem(*repeated(samples, runs), Objective(CappedLogistic(), feature_bound=FEATURE_BOUND))
        return ReleaseOnce(self.budget, self.statistic).release(problem, seed).vectors
