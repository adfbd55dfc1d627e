"""One release of the mean of y·x/‖x‖₂: the direction in which an agent's two classes differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flockwise.data.samples import Samples
from flockwise.objective import Objective, Problem
from flockwise.objective.losses import has_two_classes, loss_name
from flockwise.privacy.budget import Budgets
from flockwise.privacy.gate import Rows
from flockwise.privacy.grid import clip_rows
from flockwise.release.statistic import STATISTICS, Misfit, Released, check_fits, release_once

# No y·x/‖x‖ is longer.
CLIP = 1.0


@STATISTICS.register
@dataclass(frozen=True)
class PointMean:
    """Releases (1/m_i) Σ_k y_k·x_k/‖x_k‖₂ with normal noise, for labels −1 and +1.

    Every term has length at most 1 whatever the sample is, so replacing one moves the mean by at
    most 2/m_i in L2.
    """

    name: ClassVar[str] = "mean"
    mechanism: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "Gaussian noise"
    bounded_by_loss: ClassVar[bool] = False

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        if not has_two_classes(objective.loss):
            yield Misfit(
                "method.kind",
                f'got "mean"; it is for two classes, and loss = "{loss_name(objective.loss)}" is not: '
                'use kind = "output"',
            )

    def of(self, samples: Samples, objective: Objective, at: NDArray[Any] | None = None) -> Rows:
        return Rows.of(unit_rows(*samples), CLIP)

    def release(self, problem: Problem, budgets: Budgets, seed: int) -> Released:
        check_fits(self, problem.objective)
        counts = problem.population.sample_counts
        sensitivities = 2 * CLIP / np.maximum(counts, 1)
        return release_once(self, _mean_directions(problem), counts, sensitivities, budgets, seed)

    def signal_power(self, dimension: int) -> float | None:
        """A public guess of ‖E[y·x/‖x‖]‖²: about ½/p.

        For x of uniform direction and labels sign(θᵀx), flipped with probability q, it is
        (1 − 2q)²·2/(π·p), which is .64/p without flips and .52/p at q = .05.
        """
        return 0.5 / dimension


def unit_rows(features: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.float64]:
    """y·x/‖x‖₂, one row per sample: what a gate averages, clipped at 1."""
    lengths = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return targets[:, None] * features / np.where(lengths > 0, lengths, 1.0)


def _mean_directions(problem: Problem) -> NDArray[np.float64]:
    population = problem.population
    means = np.zeros((population.n_agents, population.n_features))
    if population.n_samples == 0:
        return means
    terms = clip_rows(unit_rows(population.features, population.targets), CLIP, "l2")
    occupied = np.flatnonzero(population.sample_counts)
    sums = np.add.reduceat(terms, population.offsets[occupied])
    means[occupied] = sums / population.sample_counts[occupied, None]
    return means
