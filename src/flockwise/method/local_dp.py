"""The local-privacy baseline: every point is perturbed itself, and then all of them could be published."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from flockwise.data import Population
from flockwise.errors import PrivacyError
from flockwise.method.released import budget_of_each, release_multiplier
from flockwise.objective import Problem, solve_local_models
from flockwise.privacy.budget import Budget
from flockwise.privacy.grid import clip_rows
from flockwise.privacy.guarantee import Guarantee, spans
from flockwise.randomness.noise import GAUSSIAN, LAPLACE, standard_noise

# Of ε, for the label or target; the rest, and all of δ, is for the features.
TARGET_SHARE = 0.5
# The numbers of the two draws in an agent's stream of simulated noise.
FEATURE_DRAW, TARGET_DRAW = 0, 1
# Beyond it e^ε overflows, and a lie has probability 0 in double precision long before.
LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class LocalDP:
    """Local differential privacy (supplement D): noise on every point, then learning without privacy.

    Replacing a point changes one perturbed point, so that each may spend its agent's whole budget.

    feature_bound: points are scaled down to it, in L2 for normal noise (δ > 0), in L1 for Laplace (δ = 0).
    target_bound: for regression, targets are clipped to [−target_bound, target_bound] and get Laplace
        noise; labels get randomised response.
    noise_seed: of the simulated noise.
    """

    budgets: Budget | Sequence[Budget]
    feature_bound: float
    target_bound: float | None = None
    noise_seed: int = 0
    name = "local_dp"

    def solve(self, problem: Problem) -> NDArray[Any]:
        """Everyone's local model, Eq. (1), learned from its perturbed points."""
        return solve_local_models(self.perturbed(problem))

    def guarantee(self, problem: Problem) -> Guarantee:
        """What holds for every perturbed point, and so for all that is learned from them."""
        epsilon, delta = spans(budget_of_each(problem, self.budgets))
        return Guarantee(
            mechanism="noise on every point itself, labels by randomised response",
            accountant="basic",
            epsilon=epsilon,
            delta=delta,
            leaks=problem.leaks,
        )

    def perturbed(self, problem: Problem) -> Problem:
        """The same problem on perturbed points, which any method may use."""
        population = problem.population
        features = population.features.astype(np.float64)
        targets = population.targets.astype(np.float64)
        for agent, budget in enumerate(budget_of_each(problem, self.budgets)):
            own = slice(population.offsets[agent], population.offsets[agent + 1])
            if own.start == own.stop:
                continue
            features[own] = self._noisy_features(features[own], budget, agent)
            targets[own] = self._noisy_targets(problem, targets[own], budget, agent)
        perturbed = Population.packed(
            features.astype(population.dtype),
            targets.astype(population.dtype),
            population.offsets,
            agent_names=population.given_names,
            feature_names=population.feature_names,
        )
        # A public bound on the features holds for them no more.
        return dataclasses.replace(problem, population=perturbed, smoothness="exact", feature_bound=None)

    def _noisy_features(
        self, features: NDArray[np.float64], budget: Budget, agent: int
    ) -> NDArray[np.float64]:
        epsilon = (1 - TARGET_SHARE) * budget.epsilon
        diameter = 2 * self.feature_bound
        if budget.delta > 0:
            kind, norm = GAUSSIAN, "l2"
            scale = diameter * release_multiplier(Budget(epsilon, budget.delta))
        else:
            kind, norm = LAPLACE, "l1"
            scale = diameter / epsilon
        noise = standard_noise(kind, self.noise_seed, agent, FEATURE_DRAW, features.size)
        return clip_rows(features, self.feature_bound, norm) + scale * noise.reshape(features.shape)

    def _noisy_targets(
        self, problem: Problem, targets: NDArray[np.float64], budget: Budget, agent: int
    ) -> NDArray[np.float64]:
        epsilon = TARGET_SHARE * budget.epsilon
        if problem.loss.metric == "accuracy":
            classes = np.array([-1, 1]) if problem.loss.outputs == 1 else np.arange(problem.loss.outputs)
            uniforms = ndtr(standard_noise(GAUSSIAN, self.noise_seed, agent, TARGET_DRAW, targets.size))
            return _randomised_response(targets, classes, epsilon, uniforms)
        if self.target_bound is None or not (math.isfinite(self.target_bound) and self.target_bound > 0):
            raise PrivacyError(
                "target_bound must be positive and finite for regression, "
                f"got target_bound={self.target_bound!r}"
            )
        clipped = np.clip(targets, -self.target_bound, self.target_bound)
        noise = standard_noise(LAPLACE, self.noise_seed, agent, TARGET_DRAW, targets.size)
        return clipped + 2 * self.target_bound / epsilon * noise


def _randomised_response(
    labels: NDArray[np.float64], classes: NDArray[np.int64], epsilon: float, uniforms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The label with probability e^ε/(e^ε + k − 1), else one of the k − 1 others, all alike."""
    other = 1 / (math.exp(epsilon) + len(classes) - 1) if epsilon < LARGEST_EXPONENT else 0.0
    # From 0 to 1: the truth first, then the others in order, each as wide as it is probable.
    ends = 1 - other * np.arange(len(classes) - 1, 0, -1)
    steps = np.searchsorted(ends, uniforms, side="right")
    return classes[(np.searchsorted(classes, labels) + steps) % len(classes)].astype(np.float64)
