"""LowPass: one private release per agent, a low-pass filter over many hops, and an anchored silent finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.method.finish import finish_along_directions
from flockwise.method.lowpass.central import Smoothing, smooth
from flockwise.method.lowpass.filter import DEGREES
from flockwise.method.lowpass.finish import finish_around_models
from flockwise.method.lowpass.traffic import Traffic, foretold_traffic
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.method.point_mean import PointMean, signal_power
from flockwise.method.released import Released, budget_of_each, one_release
from flockwise.objective import Problem
from flockwise.objective.solitary import solve_local_models
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import Guarantee


class LowPassResult(NamedTuple):
    """What agents believe after smoothing, which anyone may see, and their own models, never sent."""

    smoothing: Smoothing
    own_models: NDArray[np.float64]


@dataclass(frozen=True)
class LowPass:
    """Every agent releases one noisy vector; a graph filter of many hops smooths them; each finishes alone.

    budgets: (ε, δ), one for all agents or one each; the one release spends it.
    kind: what is released: the mean of y·x/‖x‖ for two classes, or else a local model of bounded
        sensitivity, for instance OutputPerturbation(l2, feature_bound, Huber(width)) for a quadratic loss.
    noise_seed: of the simulated noise.

    How far to smooth, how much of the result to believe, and whether to use it at all are decided from
    the releases and public quantities, so that they cost no privacy. Here the network is computed at
    once; `flockwise.method.lowpass.protocol` does the same by messages between neighbors.
    """

    budgets: Budget | Sequence[Budget]
    kind: PointMean | OutputPerturbation = field(default_factory=PointMean)
    noise_seed: int = 0
    name = "lowpass"

    def release(self, problem: Problem) -> Released:
        """The one look at the data whose result leaves an agent; the same every time, by its seed."""
        if problem.population.n_samples == 0:
            raise PrivacyError("no agent has a sample, so that there is nothing to release")
        return self.kind.release(problem, budget_of_each(problem, self.budgets), self.noise_seed)

    def signal_power(self, problem: Problem) -> float | None:
        """‖t_i‖² of what is released, where it is known beforehand."""
        return signal_power(problem.dimension) if isinstance(self.kind, PointMean) else None

    def smooth(self, problem: Problem, degree: int | None = None) -> Smoothing:
        """What follows from everyone's release, without another look at the data.

        degree: of the filter, if it is not to be decided by the releases.
        """
        released = self.release(problem)
        return smooth(
            problem.graph,
            released.vectors,
            released.variances,
            released.noise_variances,
            self.signal_power(problem),
            degree,
        )

    def traffic(self, problem: Problem, smoothing: Smoothing) -> Traffic:
        """All that the protocol sends to get there, set-up included."""
        return foretold_traffic(
            problem.graph,
            self.release(problem).variances,
            problem.dimension,
            smoothing.hops,
            measures_power=self.signal_power(problem) is None,
        )

    def solve(self, problem: Problem, degree: int | None = None) -> LowPassResult:
        """Release, smooth and finish."""
        smoothing = self.smooth(problem, degree)
        return LowPassResult(smoothing, self.finish(problem, smoothing))

    def by_hops(self, problem: Problem) -> dict[int, LowPassResult]:
        """The result of each number of hops among which the agents decide: what a hop more is worth."""
        most = int(self.smooth(problem).hops.max(initial=0))
        return {degree: self.solve(problem, degree) for degree in DEGREES if degree <= most}

    def finish(self, problem: Problem, smoothing: Smoothing) -> NDArray[np.float64]:
        """Everyone's own model, from its data and its beliefs; the local one if it does not collaborate.

        Directions are taken without what the agent's own release added to them by smoothing, so that its data
        count once; what it added to the mean over all agents, a share of about 1/n, is left in.
        """
        beliefs = smoothing.beliefs
        alone = np.flatnonzero(~beliefs.collaborates)
        if isinstance(self.kind, PointMean):
            of_others = beliefs.vectors - beliefs.own_weights[:, None] * self.release(problem).vectors
            models = finish_along_directions(problem, of_others, np.sqrt(beliefs.shares))
        else:
            models = finish_around_models(problem, beliefs.vectors, beliefs.variances)
        if alone.size:
            models[alone] = solve_local_models(problem, agents=alone)
        return models

    def guarantee(self, problem: Problem) -> Guarantee:
        """What holds for everything that the agents send; a graph from private data is named as a leak."""
        budgets = budget_of_each(problem, self.budgets)
        return one_release(problem, budgets, self.kind.mechanism, self.kind.accountant)
