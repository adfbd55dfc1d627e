"""Private gradient descent on one common model: a noisy sum over everybody's samples in every step.

The same adversary and the same sums as for a learned prior: nobody's gradient is opened, only the sum of all,
and every agent adds a share of the noise. The shares of the agents that neither collude nor stay away are
already enough for the budget. Each agent then finishes alone, around the common model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from flockwise.objective import Problem
from flockwise.objective.losses import has_two_classes
from flockwise.privacy.accounting.gaussian import mu_of
from flockwise.privacy.budget import Budget
from flockwise.solve.local import solve_anchored_models

STEPS = 10
COLLUDING, ABSENT = 1 / 3, 0.1
# First word of the seed of the noise.
NOISE = 202


@dataclass(frozen=True)
class DescentSettings:
    """What is public about a run, samples being scaled to ‖x‖ ≤ 1.

    rate: the step, times the mean of the gradients of ½(xᵀθ − y)² or of the logistic loss. clip: the length
    that the gradient of one sample is clipped to. weight: of ‖θ − common model‖² against the sum of an
    agent's losses in its finish, samples being as they are.
    """

    rate: float
    clip: float
    weight: float


# The best are chosen on splits that are not reported, as if that cost no privacy, which favors this baseline.
CHOICES = tuple(
    DescentSettings(rate, clip, weight)
    for rate, clip, weight in product((1.0, 4.0), (0.25, 0.5, 1.0), (1.0, 4.0, 16.0, 64.0))
)


def noise_deviation(budget: Budget, clip: float, steps: int = STEPS) -> float:
    """Of the noise in each coordinate of a sum, all agents' shares together.

    Replacing a sample moves a sum by 2·clip at most. Normal noise composes exactly: steps equal releases
    need √steps times the noise of one. The noise of n agents is √(n/honest) times what the honest ones add.
    """
    inflation = math.sqrt(1 / (1 - COLLUDING - ABSENT))
    return 2 * clip * math.sqrt(steps) / mu_of(budget.epsilon, budget.delta) * inflation


def common_models(
    problem: Problem, budget: Budget | None, rate: float, clip: float, seed: int, steps: int = STEPS
) -> NDArray[np.float64]:
    """One model for all, in the scale of the samples as they are; without a budget there is no noise."""
    bound = problem.objective.feature_bound
    assert bound is not None
    features, targets = problem.exchanged.features / bound, problem.exchanged.targets
    slopes = _logistic_slopes if has_two_classes(problem.loss) else _residuals
    deviation = 0.0 if budget is None else noise_deviation(budget, clip, steps)
    generator = np.random.default_rng([NOISE, seed])
    lengths = np.linalg.norm(features, axis=1)
    model = np.zeros(problem.dimension)
    for _ in range(steps):
        pulls = slopes(features @ model, targets)
        # ‖x·slope‖ ≤ clip
        pulls *= np.minimum(1.0, clip / np.maximum(np.abs(pulls) * lengths, 1e-300))
        total = features.T @ pulls + deviation * generator.standard_normal(len(model))
        model -= rate * total / len(targets)
    return model / bound


def _residuals(scores: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
    return scores - targets


def _logistic_slopes(scores: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
    return -targets * expit(-targets * scores)


def finish_around(problem: Problem, model: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """Everyone's own model: the sum of its losses + weight·‖θ − model‖², on its samples as they are."""
    counts = np.maximum(problem.population.sample_counts, 1)
    return solve_anchored_models(problem, np.tile(model, (problem.n_agents, 1)), weight / counts)


def own_models(problem: Problem, budget: Budget, settings: DescentSettings, seed: int) -> NDArray[np.float64]:
    model = common_models(problem, budget, settings.rate, settings.clip, seed)
    return finish_around(problem, model, settings.weight)
