"""Release once and smooth: one private release per agent, then any amount of collaboration for free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.method.descent import Descent
from flockwise.method.finish import finish_along_directions, finish_own_block
from flockwise.method.objective_perturbation import ObjectivePerturbation
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.method.point_mean import PointMean, signal_power
from flockwise.method.quality import Smoothed, expected_correlations
from flockwise.method.released import Released, budget_of_each, one_release
from flockwise.method.shrinkage import ShrunkenMean, precision_confidences, shrunken_mean
from flockwise.method.smoothing import propagate, public_noise, variances_of
from flockwise.objective import Problem
from flockwise.objective.passes import neighbor_sums
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import Guarantee

Kind: TypeAlias = PointMean | OutputPerturbation | ObjectivePerturbation

# Chosen on generated instances of the paper's task (100 agents, 20 and 100 features, ε from ½ to 1),
# where results change little from .1 to .25.
PROPAGATION_TRADEOFF = 0.15
# Everyone knows it, so that everyone draws the same public noise.
PUBLIC_SEED = 0


@dataclass(frozen=True)
class ReleaseOnce:
    """Every agent releases one noisy vector within its budget; model propagation smooths them (supplement C).

    budgets: (ε, δ), one for all agents or one each; the one release spends it.
    kind: what is released: the mean of y·x/‖x‖ for two classes, or a local model.
    tradeoff: μ of the propagation, whose confidences follow the public precision of each release.
    noise_seed: of the simulated noise.

    Nothing after the release touches the data again, so that the propagation may go on for any number
    of updates. Everyone's first message is its release. The mean over all releases is shrunk as far as
    it does not stand out of its noise; agents of a network find it by gossip
    (`flockwise.method.release_once_protocol`), here it is computed at once and its messages are not counted.
    """

    budgets: Budget | Sequence[Budget]
    kind: Kind = field(default_factory=PointMean)
    tradeoff: float = PROPAGATION_TRADEOFF
    noise_seed: int = 0
    name = "release_once"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.tradeoff) and self.tradeoff > 0):
            raise PrivacyError(f"tradeoff must be positive and finite, got tradeoff={self.tradeoff!r}")

    def release(self, problem: Problem) -> Released:
        """The one step that sees the data; the same every time, by its seed."""
        if problem.population.n_samples == 0:
            raise PrivacyError("no agent has a sample, so that there is nothing to release")
        return self.kind.release(problem, budget_of_each(problem, self.budgets), self.noise_seed)

    def prepare(self, problem: Problem) -> Descent:
        released = self.release(problem)
        anchors = (
            self._mean(released)
            .replace_in(released.vectors, released.variances)
            .astype(problem.population.dtype)
        )
        pulls = self._pulls(released)
        # The local terms are 1-smooth, so α = 1/(1 + μc_i), as in model propagation.
        return Descent(problem, anchors.copy(), False, 1 / (1 + pulls), pulls, anchors=anchors)

    def finish(self, problem: Problem, models: NDArray[Any]) -> NDArray[np.float64]:
        """Everyone's own model from its data and the smoothed models of a run; never to be sent."""
        released = self.release(problem)
        mean, noise = self._mean(released), self._noise(problem, released)
        if isinstance(self.kind, PointMean):
            vectors = Smoothed(mean.replace_in(released.vectors, released.variances), np.asarray(models))
            signal = signal_power(problem.dimension)
            correlations = expected_correlations(vectors, noise, released.variances, mean.shares, signal)
            return finish_along_directions(problem, models, correlations)
        graph = problem.graph
        sums = neighbor_sums(graph.offsets, graph.neighbors, graph.weights, noise.after)
        degrees = np.where(graph.degrees > 0, graph.degrees, 1.0)
        return finish_own_block(problem, models, variances_of(sums / degrees[:, None]))

    def guarantee(self, problem: Problem) -> Guarantee:
        """What holds for everything that the agents send; a graph from private data is named as a leak."""
        is_gaussian = not isinstance(self.kind, ObjectivePerturbation)
        budgets = budget_of_each(problem, self.budgets)
        return one_release(
            problem, budgets, self.kind.mechanism, self.kind.accountant, is_gaussian=is_gaussian
        )

    def _mean(self, released: Released) -> ShrunkenMean:
        return shrunken_mean(released.vectors, released.variances)

    def _pulls(self, released: Released) -> NDArray[np.float64]:
        return self.tradeoff * precision_confidences(released.variances)

    def _noise(self, problem: Problem, released: Released) -> Smoothed:
        """Public noise, as large as that of the releases, before and after all that is done to them."""
        finite = np.where(np.isfinite(released.variances), released.variances, 0.0)
        noise = self._mean(released).replace_in_noise(public_noise(finite, PUBLIC_SEED))
        return Smoothed(noise, propagate(problem.graph, noise, self._pulls(released)))
