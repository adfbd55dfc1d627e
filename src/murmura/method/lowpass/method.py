"""LowPass: one private release per agent, a low-pass filter over many hops, and an anchored silent finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmura.errors import PrivacyError
from murmura.method.finish import finish_along_directions
from murmura.method.lowpass.central import Smoothing, smooth
from murmura.method.lowpass.finish import finish_around_models
from murmura.method.output_perturbation import OutputPerturbation
from murmura.method.point_mean import PointMean, signal_power
from murmura.method.released import Released, budget_of_each, release_multiplier
from murmura.objective import Problem
from murmura.objective.solitary import solve_local_models
from murmura.privacy.budget import Budget
from murmura.privacy.guarantee import Guarantee
from murmura.privacy.mechanisms import Gaussian
from murmura.privacy.real_noise import real_event


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
    once; `murmura.method.lowpass.protocol` does the same by messages between neighbors.
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

    def smooth(self, problem: Problem) -> Smoothing:
        """What follows from everyone's release, without another look at the data."""
        released = self.release(problem)
        return smooth(
            problem.graph,
            released.vectors,
            released.variances,
            released.noise_variances,
            self.signal_power(problem),
        )

    def solve(self, problem: Problem) -> LowPassResult:
        """Release, smooth and finish."""
        smoothing = self.smooth(problem)
        return LowPassResult(smoothing, self.finish(problem, smoothing))

    def finish(self, problem: Problem, smoothing: Smoothing) -> NDArray[np.float64]:
        """Everyone's own model, from its data and its beliefs; the local one if it does not collaborate."""
        beliefs = smoothing.beliefs
        alone = np.flatnonzero(~beliefs.collaborates)
        if isinstance(self.kind, PointMean):
            models = finish_along_directions(problem, beliefs.vectors, np.sqrt(beliefs.shares))
        else:
            models = finish_around_models(problem, beliefs.vectors, beliefs.variances)
        if alone.size:
            models[alone] = solve_local_models(problem, agents=alone)
        return models

    def guarantee(self, problem: Problem) -> Guarantee:
        """What holds for everything that the agents send; a graph from private data is named as a leak."""
        budgets = set(budget_of_each(problem, self.budgets))
        least = min(budgets, key=lambda budget: budget.epsilon)
        event = Gaussian(1.0, release_multiplier(least))
        real = real_event(least, event, [1.0])
        epsilons, deltas = [b.epsilon for b in budgets], [b.delta for b in budgets]
        return Guarantee(
            mechanism=self.kind.mechanism,
            accountant=self.kind.accountant,
            epsilon=(min(epsilons), max(epsilons)),
            delta=(min(deltas), max(deltas)),
            leaks=problem.leaks,
            noise_multiplier=event.multiplier,
            real_multiplier=None if real is None else real.multiplier,
        )
