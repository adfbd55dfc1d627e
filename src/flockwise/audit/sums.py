"""The attack on sums over all agents: what a coalition sees of the one agent that it does not know.

The coalition knows what everyone adds, and the noise of its own members. From an opened sum it subtracts all
of that. The rest is what the attacked agent added, under the noise of the honest agents alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flockwise.audit.bounds import Attack
from flockwise.audit.gate import Floats
from flockwise.audit.methods import FEATURE_BOUND, Pair
from flockwise.data import Population
from flockwise.data.samples import Samples
from flockwise.method import LearnedPrior
from flockwise.method.rules import Contributions, Rounds
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.protocol.conversation import SumRequest
from flockwise.protocol.prior import Around, Spread

# Of ten agents seven collude and one is absent: two add noise that the coalition does not know.
AGENTS, COLLUDING, ABSENT, HONEST = 10, 0.7, 0.1, 2
# Enough samples that the sums are worth opening.
SAMPLES = 50
FAR = 1e3
# How much a second sum stretches what it looks at: one sample then counts for far more than it may.
STRETCH = 10.0
OTHER_TARGETS = 0.345 / STRETCH


def far_and_opposite(direction: Floats, other_targets: float = OTHER_TARGETS) -> Pair:
    """One sample as long as it may be, with a target far beyond its range or the opposite one.

    A longer sample would have its target scaled down with it. By default the others pull as far as they may
    without being clipped, where a sum of squares moves most.
    """
    features, above = np.tile(FEATURE_BOUND * direction, (SAMPLES, 1)), np.full(SAMPLES, other_targets)
    below = above.copy()
    above[0], below[0] = FAR, -FAR
    return Samples(features, above), Samples(features, below)


@dataclass(frozen=True, eq=False)
class SumAttack(Attack):
    """A learned prior: one opened sum, or up to three.

    The score is the likelihood ratio of what is left, were the noise normal and as large as it is said to be.

    others: the budget of all other agents; by default that of the attacked one.
    """

    spread: Spread
    pair: Pair
    others: Budget | None = None

    def ratios(self, which: int, runs: int, seed: int) -> Floats:
        first, second = (self._sums(samples) for samples in self.pair)
        total = np.zeros(runs)
        for number, request in enumerate(self._requests(), start=1):
            parts = [sums.part(0, request).astype(np.float64) for sums in (first, second)]
            shift, stds = parts[1] - parts[0], first.noise.stds[number - 1]
            noise = self._noise_of_the_honest(first, number, request, runs, seed + which)
            left = parts[which] - parts[0] + noise
            total += left @ (shift / (HONEST * stds**2))
        return total

    def _sums(self, samples: Samples) -> Contributions:
        """The first agent has the samples under attack, all others the same ones."""
        others = [self.pair[0]] * (AGENTS - 1)
        population = Population.packed(
            np.concatenate([one.features for one in (samples, *others)]),
            np.concatenate([one.targets for one in (samples, *others)]),
            np.arange(AGENTS + 1) * SAMPLES,
        )
        # Some sums are asked for only where the last feature is called an intercept; none relies on it.
        population = replace(population, has_intercept=True)
        objective = Objective(Quadratic(), feature_bound=FEATURE_BOUND, target_range=(-1.0, 1.0))
        budgets = [self.budget, *[self.others or self.budget] * (AGENTS - 1)]
        method = LearnedPrior(budgets, self.spread, COLLUDING, ABSENT)
        rule = method.prepare(Problem(population, None, objective), 0).rule
        assert isinstance(rule, Rounds)
        assert rule.sums is not None
        return rule.sums

    def _requests(self) -> list[SumRequest]:
        """What sums may be asked for, at public values that anybody may have chosen."""
        dimension = self.pair[0].features.shape[1]
        around = Around(np.zeros(dimension), STRETCH * np.eye(dimension), 0.1)
        return [SumRequest("moments"), *[SumRequest("spread", around)] * (self.updates - 1)]

    def _noise_of_the_honest(
        self, sums: Contributions, number: int, request: SumRequest, runs: int, seed: int
    ) -> Floats:
        noises = (replace(sums.noise, seed=seed * runs + run) for run in range(runs))
        size = len(sums.noise.stds[number - 1])
        drawn = [
            sum(noise.share(agent, number, request, size) for agent in range(HONEST)) for noise in noises
        ]
        return np.array(drawn, dtype=np.float64)
