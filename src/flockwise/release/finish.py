"""The silent finish: an agent's own model, by an exact solve on its own data, never sent.

What the network gave it is post-processing of releases; what it adds from its own data stays with
it. So the own model costs no privacy, as long as nobody else sees it or its predictions, and it must
never be the base of a later release. How far an agent trusts what it received follows from noise
levels that everyone knows, and not from cross-validation on its few points, which does worse.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import ObjectiveError
from flockwise.graph import SimilarityGraph
from flockwise.objective import Problem
from flockwise.objective.passes import neighbor_sums
from flockwise.solve.anchored import solve_anchored_models

# A separator that is known exactly is given scores θᵀx of this standard deviation, and one of which
# nothing is known a prior of variance 8/E‖x‖² per coordinate. For x uniform in [−1, 1]^p these are the
# length 3 and the variance 24/p; both were chosen on generated instances of that task.
SCORE_SPREAD = math.sqrt(3)
PRIOR_SCORE_VARIANCE = 8.0
# No direction is ever trusted fully: the prior's variance has to stay positive.
LARGEST_QUALITY = 0.999


def finish_along_directions(
    problem: Problem, directions: NDArray[Any], qualities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Own separators, anchored at the directions received: for losses that judge by accuracy.

    θ_i = argmin Σ_k ℓ(θ; x_k, y_k) + ‖θ − ρ_i·length·a_i/‖a_i‖‖²/(2τ_i), τ_i = 8(1 − ρ_i²)/E‖x‖²,
    where ρ_i, the quality, is the correlation that a_i is expected to have with the true separator and
    length = √3·√(p/E‖x‖²). The agent takes E‖x‖² from its own points, so that features may have any
    scale. With ρ_i = 0 it learns alone.
    """
    if problem.loss.outputs != 1 or problem.loss.metric != "accuracy":
        raise ObjectiveError(
            f"directions separate two classes, got loss={problem.loss!r}; use finish_own_block"
        )
    trust = np.clip(qualities, 0.0, LARGEST_QUALITY)
    square_lengths = _mean_square_lengths(problem)
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
    sums = neighbor_sums(
        graph.offsets, graph.neighbors, graph.weights, np.ascontiguousarray(models, np.float64)
    )
    is_linked = graph.degrees > 0
    means = sums / np.where(is_linked, graph.degrees, 1.0)[:, None]
    return finish_around_means(problem, means, is_linked, noise_variances)


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
        raise ObjectiveError(f"agent {agent!r} has no neighbor and l2 = 0, so that nothing holds its model")
    return solve_anchored_models(problem, (pulls / strengths)[:, None] * means, strengths)


def neighbor_mean_variances(
    graph: SimilarityGraph, variances: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Variance per coordinate of Σ_j W_ij/D_ii·Θ_j for independent noise of the given variances in Θ_j."""
    per_agent = np.broadcast_to(np.asarray(variances, np.float64), (graph.n_agents,))
    shares = graph.to_scipy().power(2) @ per_agent
    return shares / np.where(graph.degrees > 0, graph.degrees, 1.0) ** 2


def _mean_square_lengths(problem: Problem) -> NDArray[np.float64]:
    """E‖x‖² over each agent's own points; 1 where it has none, or only zeros."""
    population = problem.population
    squares = np.einsum("kj,kj->k", population.features, population.features, dtype=np.float64)
    owners = np.repeat(np.arange(population.n_agents), population.sample_counts)
    sums = np.bincount(owners, squares, population.n_agents)
    return np.where(sums > 0, sums / np.maximum(population.sample_counts, 1), 1.0)
