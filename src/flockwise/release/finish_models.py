"""The silent finish around smoothed models: for losses of one residual, judged by RMSE.

The quadratic loss has no bounded statistic like y·x/‖x‖, since targets have no bound. Its counterpart is
a model, θ̂_i = argmin (1/m) Σ_k H(y_k − θᵀx_k) + λ‖θ‖², where H is Huber's loss of width w, quadratic for
residuals up to w and linear beyond, and λ one constant for all:

- Sensitivity. |H'| ≤ 2w and ‖x‖ ≤ R give gradients of at most C = 2wR. The objective is 2λ-strongly convex,
  and replacing a point moves its gradient by at most 2C/m, hence the minimum by at most Δ = C/(λm).
- Public variance. The noise has (z·Δ)² per coordinate, z being the budget's multiplier. To first order the
  model is a mean of m independent terms, of which each moves it by at most Δ/2, so that other points of the
  same kind would vary it by m·Δ²/4 in all: s² = (z·Δ)² + m·Δ²/(4p).
- Power. How large the models are nobody knows beforehand: S is the mean of ‖v_i‖² less the noise in it.
- Finish. The loss of the problem itself, in which residuals are normal with a variance that the agent sees on
  its own points, and a normal prior around the smoothed model, whose variance is public: ridge regression
  around an anchor instead of around 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import ObjectiveError
from flockwise.objective import Problem
from flockwise.objective.passes import all_scores
from flockwise.solve.anchored import solve_anchored_models
from flockwise.solve.local import solve_local_models

# A released model is shorter than the truth by what its penalty takes; by how much depends on the features.
# Each agent stretches its anchor by what its own points say, around 1 with this standard deviation.
STRETCH_SPREAD = 0.5
# Of the mean squared residual that an agent sees around its anchor, at least this share is taken to
# be noise that no model explains.
LEAST_NOISE_SHARE = 0.25
SMALLEST = 1e-12


def finish_around_models(
    problem: Problem, anchors: NDArray[np.float64], variances: NDArray[np.float64]
) -> NDArray[np.float64]:
    """θ_i = argmin Σ_k (y_k − θᵀx_k)²/(2σ_i²) + ‖θ − anchor_i‖²/(2τ_i), for the problem's own loss.

    τ_i, the variance of the truth around the anchor per coordinate, is public. σ_i² is what the agent's
    own points show: the mean square of y − anchorᵀx less τ_i·E‖x‖², and no more than what its local model
    leaves by generalised cross-validation, for else a bad anchor would seem to be noise in the labels. An
    anchor that holds the model less than its own penalty of Eq. (1) is left aside: the agent learns alone.
    Nothing of this is ever sent.
    """
    if problem.loss.outputs != 1 or problem.loss.metric != "rmse":
        raise ObjectiveError(f"anchored models are for losses of a residual, got loss={problem.loss!r}")
    own = _OwnPoints(problem)
    stretches = own.stretches(anchors)
    # Stretched, an anchor is as much less certain; shortened it is not more so, for that may show it is bad.
    anchors, variances = stretches[:, None] * anchors, np.maximum(stretches, 1.0) ** 2 * variances
    residuals = own.square_residuals(anchors)
    noise = np.maximum(residuals - variances * own.square_lengths(), LEAST_NOISE_SHARE * residuals)
    # A model of p weights from m points has about m·p/(m + p) degrees of freedom under a penalty 1/m.
    inflation = 1 + problem.dimension / own.counts
    noise = np.minimum(noise, inflation**2 * own.square_residuals(solve_local_models(problem)))
    strengths = noise / np.maximum(variances * own.counts, SMALLEST)
    is_alone = strengths <= problem.l2_penalties
    return solve_anchored_models(
        problem, np.where(is_alone[:, None], 0.0, anchors), np.maximum(strengths, problem.l2_penalties)
    )


class _OwnPoints:
    """Means over each agent's own points."""

    def __init__(self, problem: Problem) -> None:
        population = problem.population
        self.features, self.targets = population.features, population.targets.astype(np.float64)
        self.counts = np.maximum(population.sample_counts, 1)
        self._offsets = population.offsets
        self._owners = np.repeat(np.arange(population.n_agents), population.sample_counts)

    def means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._owners, values, len(self.counts)) / self.counts

    def scores(self, models: NDArray[np.float64]) -> NDArray[np.float64]:
        return all_scores(self.features, self._offsets[:-1], self._offsets, models[:, None, :])[:, 0]

    def square_residuals(self, models: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.means((self.targets - self.scores(models)) ** 2)

    def square_lengths(self) -> NDArray[np.float64]:
        """E‖x‖²."""
        return self.means(np.einsum("kj,kj->k", self.features, self.features, dtype=np.float64))

    def stretches(self, anchors: NDArray[np.float64]) -> NDArray[np.float64]:
        """argmin_s Σ_k (y_k − s·anchorᵀx_k)²/(2σ²) + (s − 1)²/(2·spread²); at least 0."""
        scores = self.scores(anchors)
        noise = self.square_residuals(anchors) / (STRETCH_SPREAD**2 * self.counts)
        squares = self.means(scores**2) + noise
        products = self.means(self.targets * scores) + noise
        return np.maximum(np.where(squares > 0, products / np.where(squares > 0, squares, 1.0), 1.0), 0.0)
