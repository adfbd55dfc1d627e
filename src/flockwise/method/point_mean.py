"""One release of the mean of y·x/‖x‖₂: the direction in which an agent's two classes differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.method.released import Budgets, Released, released_with_noise, whole_budget
from flockwise.objective import Problem
from flockwise.privacy.grid import clip_rows


@dataclass(frozen=True)
class PointMean:
    """Releases (1/m_i) Σ_k y_k·x_k/‖x_k‖₂ with normal noise, for labels −1 and +1.

    Every term has length at most 1 whatever the point is, so that replacing one moves the mean by at
    most 2/m_i in L2.
    """

    name = "mean"
    mechanism = "Gaussian noise"
    accountant = "gdp"

    def release(self, problem: Problem, budgets: Budgets, noise_seed: int) -> Released:
        """Everyone's mean, for its whole budget."""
        if problem.loss.outputs != 1 or problem.loss.metric != "accuracy":
            raise PrivacyError(
                f"the mean of y·x is for two classes -1 and +1, got loss={problem.loss!r}; "
                "release a model instead (OutputPerturbation)"
            )
        counts = problem.population.sample_counts
        sensitivities = 2 / np.maximum(counts, 1)
        means = _mean_directions(problem)
        return released_with_noise(means, counts, sensitivities, whole_budget(budgets), noise_seed)


def unit_rows(features: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.float64]:
    """y·x/‖x‖₂, one row per point: what a gate averages, clipped at 1."""
    lengths = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return targets[:, None] * features / np.where(lengths > 0, lengths, 1.0)


def signal_power(dimension: int) -> float:
    """A public guess of ‖E[y·x/‖x‖]‖²: about ½/p.

    For x of uniform direction and labels sign(θᵀx), flipped with probability q, it is
    (1 − 2q)²·2/(π·p), which is .64/p without flips and .52/p at q = .05.
    """
    return 0.5 / dimension


def _mean_directions(problem: Problem) -> NDArray[np.float64]:
    population = problem.population
    means = np.zeros((population.n_agents, population.n_features))
    if population.n_samples == 0:
        return means
    terms = clip_rows(unit_rows(population.features, population.targets), 1.0, "l2")
    occupied = np.flatnonzero(population.sample_counts)
    sums = np.add.reduceat(terms, population.offsets[occupied])
    means[occupied] = sums / population.sample_counts[occupied, None]
    return means
