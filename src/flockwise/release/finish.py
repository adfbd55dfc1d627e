"""The silent finish: an agent's own model, by an exact solve on its own data, never sent.

The part from the network is post-processing of releases. The part from its own data stays with
it. So the own model costs no privacy, as long as nobody else sees it or its predictions, and it must
never be the base of a later release. How far an agent trusts what it received follows from noise
levels that everyone knows, and not from cross-validation on its few samples, which does worse.

**Around smoothed models**, for losses of one residual, judged by RMSE: the quadratic loss has no bounded
statistic like y·x/‖x‖, since targets have no bound. Its counterpart is a model,
θ̂_i = argmin (1/m) Σ_k H(y_k − θᵀx_k) + λ‖θ‖², where H is Huber's loss of width w, quadratic for residuals up
to w and linear beyond, and λ one constant for all:

- Sensitivity. |H'| ≤ 2w and ‖x‖ ≤ R give gradients of at most C = 2wR. The objective is 2λ-strongly convex,
  and replacing a sample moves its gradient by at most 2C/m, hence the minimum by at most Δ = C/(λm).
- Public variance. The noise has (z·Δ)² per coordinate, z being the budget's multiplier. To first order the
  model is a mean of m independent terms, of which each moves it by at most Δ/2, so other samples of the
  same kind would vary it by m·Δ²/4 in all: s² = (z·Δ)² + m·Δ²/(4p).
- Power. How large the models are nobody knows beforehand: S is the mean of ‖v_i‖² less the noise in it.
- Finish. The loss of the problem itself, in which residuals are normal with a variance that the agent sees on
  its own samples, and a normal prior around the smoothed model, whose variance is public: ridge regression
  around an anchor instead of around 0. The penalty made released models shorter, and each agent lengthens
  what it received by what that penalty does to its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import ObjectiveError
from flockwise.graph import SimilarityGraph
from flockwise.objective import Problem
from flockwise.objective.passes import all_scores, neighbor_sums
from flockwise.solve.local import solve_anchored_models, solve_local_models

# A separator that is known exactly is given scores θᵀx of this standard deviation, and one of which
# nothing is known a prior of variance 8/E‖x‖² per coordinate. For x uniform in [−1, 1]^p these are the
# length 3 and the variance 24/p; both were chosen on generated instances of that task.
SCORE_SPREAD = math.sqrt(3)
PRIOR_SCORE_VARIANCE = 8.0
# No direction is ever trusted fully: the prior's variance has to stay positive.
LARGEST_QUALITY = 0.999
# A released model is shorter than the truth by what its penalty takes, and by what clipping takes.
# Each agent stretches its anchor by what its own samples say, around 1 with this standard deviation.
STRETCH_SPREAD = 0.5
# Log-losses are minus a log-likelihood: as much as Σ(y − θᵀx)²/(2σ²) with σ² = ½.
LOG_LIKELIHOOD = 0.5
# By how much an own model is held at least, as a share of E‖x‖².
LEAST_STRENGTH = 1e-6
# Of the mean squared residual that an agent sees around its anchor, at least this share is taken to
# be noise that no model explains.
LEAST_NOISE_SHARE = 0.25
SMALLEST = 1e-12


def finish_along_directions(
    problem: Problem, directions: NDArray[Any], qualities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Own separators, anchored at the directions received: for losses that judge by accuracy.

    θ_i = argmin Σ_k ℓ(θ; x_k, y_k) + ‖θ − ρ_i·length·a_i/‖a_i‖‖²/(2τ_i), τ_i = 8(1 − ρ_i²)/E‖x‖²,
    where ρ_i, the quality, is the correlation that a_i is expected to have with the true separator and
    length = √3·√(p/E‖x‖²). The agent takes E‖x‖² from its own samples, so features may have any
    scale. With ρ_i = 0 it learns alone.
    """
    if problem.loss.outputs != 1 or problem.loss.metric != "accuracy":
        raise ObjectiveError(
            f"directions separate two classes, got loss={problem.loss!r}; use finish_own_block"
        )
    trust = np.clip(qualities, 0.0, LARGEST_QUALITY)
    square_lengths = _OwnSamples(problem).square_lengths()
    # 1 for an agent that has no samples, or only zeros.
    square_lengths = np.where(square_lengths > 0, square_lengths, 1.0)
    lengths = SCORE_SPREAD * np.sqrt(problem.dimension / square_lengths)
    norms = np.linalg.norm(directions, axis=1)
    scales = trust * lengths / np.where(norms > 0, norms, 1.0)
    variances = PRIOR_SCORE_VARIANCE * (1 - trust**2) / square_lengths
    counts = np.maximum(problem.population.sample_counts, 1)
    return solve_anchored_models(problem, scales[:, None] * directions, 1 / (2 * variances * counts))


def finish_own_block(
    problem: Problem, models: NDArray[Any], noise_variances: NDArray[np.float64] | float = 0.0
) -> NDArray[np.float64]:
    """Own models: the exact minimum of each agent's block of Eq. (2), given its neighbors' released models.

    θ_i = argmin ½ Σ_j W_ij‖θ − Θ_j‖² + μ_i D_ii c_i ℒ_i(θ). Times m_max/(μ_i D_ii), the data term is
    the sum of the agent's losses and the first one a normal prior of variance μ_i/m_max around the
    neighbors' mean. Noise of variance v_i per coordinate in that mean (`noise_variances`, public; see
    `neighbor_mean_variances`) adds to the prior's: μ_i = μ + m_max·v_i. Without noise it is Eq. (2) as
    it stands; under much noise the agent learns alone, by Eq. (1).
    """
    graph = problem.neighbors
    means = neighbor_means(graph.offsets, graph, models)
    return finish_around_means(problem, means, graph.degrees > 0, noise_variances)


def neighbor_means(offsets: NDArray[np.int64], edges: Any, models: NDArray[Any]) -> NDArray[np.float64]:
    """Σ_j W_ij/D_ii·Θ_j for everyone who has edges; models may hold more agents behind these."""
    known = np.ascontiguousarray(models, np.float64)
    sums = neighbor_sums(offsets, edges.neighbors, edges.weights, known)[: len(edges.degrees)]
    return sums / np.where(edges.degrees > 0, edges.degrees, 1.0)[:, None]


def finish_around_means(
    problem: Problem,
    means: NDArray[np.float64],
    is_linked: NDArray[np.bool_],
    noise_variances: NDArray[np.float64] | float = 0.0,
) -> NDArray[np.float64]:
    """`finish_own_block` for agents who know their neighbors' mean, and whether they have any neighbors."""
    variances = np.broadcast_to(np.asarray(noise_variances, np.float64), (problem.n_agents,))
    if not (np.isfinite(variances) & (variances >= 0)).all():
        raise ObjectiveError("noise_variances must be finite and at least 0")
    tradeoffs = problem.tradeoff + problem.sample_cap * variances
    # Divided by μ_i D_ii c_i: mean loss + λ‖θ‖² + pull·‖θ − mean‖², two penalties that make one.
    pulls = np.where(is_linked, 1 / (2 * tradeoffs * problem.confidences), 0.0)
    strengths = problem.l2_penalties + pulls
    if not (strengths > 0).all():
        agent = problem.population.agent_names[int(np.argmin(strengths))]
        raise ObjectiveError(f"agent {agent!r} has no neighbor and l2 = 0, so nothing holds its model")
    return solve_anchored_models(problem, (pulls / strengths)[:, None] * means, strengths)


def neighbor_mean_variances(
    graph: SimilarityGraph, variances: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Variance per coordinate of Σ_j W_ij/D_ii·Θ_j for independent noise of the given variances in Θ_j."""
    per_agent = np.broadcast_to(np.asarray(variances, np.float64), (graph.n_agents,))

    def terms(entries: slice) -> NDArray[np.float64]:
        return graph.weights[entries] ** 2 * per_agent[graph.neighbors[entries]]

    shares = graph.row_sums(terms)
    return shares / np.where(graph.degrees > 0, graph.degrees, 1.0) ** 2


def finish_around_models(
    problem: Problem, anchors: NDArray[np.float64], variances: NDArray[np.float64], l2: float | None = None
) -> NDArray[np.float64]:
    """θ_i = argmin −log-likelihood + ‖θ − anchor_i‖²/(2τ_i), under the problem's own loss.

    τ_i, the variance of the truth around the anchor per coordinate, is public. l2: λ of released models,
    which made them, and so anchors, shorter than the truth; anchors and τ_i are lengthened by as much. An
    anchor that then holds the model less than its own penalty of Eq. (1) is left aside: the agent learns
    alone. Nothing of this is ever sent.
    """
    own = _OwnSamples(problem)
    lengths = own.lengthening(l2 or 0.0)
    anchors, variances = lengths[:, None] * anchors, lengths**2 * variances
    if problem.loss.outputs == 1 and problem.loss.metric == "rmse":
        anchors, variances, noise = _seen_residuals(problem, own, anchors, variances)
    else:
        noise = LOG_LIKELIHOOD
    strengths = np.maximum(noise / np.maximum(variances * own.counts, SMALLEST), own.least_strengths())
    # With no samples of its own an agent takes the anchor, unless 0 is likely to be nearer to the truth.
    is_vague = (anchors**2).sum(axis=1) <= problem.dimension * variances
    is_alone = np.where(own.are_there, strengths <= problem.l2_penalties, is_vague)
    return solve_anchored_models(
        problem, np.where(is_alone[:, None], 0.0, anchors), np.maximum(strengths, problem.l2_penalties)
    )


def _seen_residuals(
    problem: Problem, own: _OwnSamples, anchors: NDArray[np.float64], variances: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Anchors and their variances, stretched, and σ_i² of Σ(y − θᵀx)²/(2σ_i²), as each agent's samples show.

    σ_i² is the mean square of y − anchorᵀx less τ_i·E‖x‖², and no more than what the local model leaves by
    generalized cross-validation, for else a bad anchor would seem to be noise in the labels.
    """
    stretches = own.stretches(anchors)
    # Stretched, an anchor is as much less certain; shortened it is not more so, for that may show it is bad.
    anchors, variances = stretches[:, None] * anchors, np.maximum(stretches, 1.0) ** 2 * variances
    residuals = own.square_residuals(anchors)
    noise = np.maximum(residuals - variances * own.square_lengths(), LEAST_NOISE_SHARE * residuals)
    # A model of p weights from m samples has about m·p/(m + p) degrees of freedom under a penalty 1/m.
    inflation = 1 + problem.dimension / own.counts
    return (
        anchors,
        variances,
        np.minimum(noise, inflation**2 * own.square_residuals(solve_local_models(problem))),
    )


class _OwnSamples:
    """Means over each agent's own samples."""

    def __init__(self, problem: Problem) -> None:
        population = problem.population
        self.features, self.targets = population.features, population.targets.astype(np.float64)
        self.are_there = population.sample_counts > 0
        self.counts = np.maximum(population.sample_counts, 1)
        self._problem = problem
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

    def least_strengths(self) -> NDArray[np.float64]:
        """The least penalty around an anchor, which makes a model unique; without samples any will do."""
        return np.where(self.are_there, LEAST_STRENGTH * self.square_lengths(), 1.0)

    def lengthening(self, l2: float) -> NDArray[np.float64]:
        """By what factor a model is shorter for a penalty λ: (h + 2λ)/h, h being the mean curvature.

        Where a loss is flatter than at its most curved, models are shorter still.
        """
        loss, features = self._problem.loss, self._problem.exchanged.features
        squares = self.means(np.einsum("kj,kj->k", features, features, dtype=np.float64))
        curvatures = loss.curvature * squares / features.shape[1]
        has_curvature = curvatures > 0
        return 1 + np.where(has_curvature, 2 * l2 / np.where(has_curvature, curvatures, 1.0), 0.0)

    def stretches(self, anchors: NDArray[np.float64]) -> NDArray[np.float64]:
        """argmin_s Σ_k (y_k − s·anchorᵀx_k)²/(2σ²) + (s − 1)²/(2·spread²); at least 0."""
        scores = self.scores(anchors)
        noise = self.square_residuals(anchors) / (STRETCH_SPREAD**2 * self.counts)
        squares = self.means(scores**2) + noise
        products = self.means(self.targets * scores) + noise
        return np.maximum(np.where(squares > 0, products / np.where(squares > 0, squares, 1.0), 1.0), 0.0)
