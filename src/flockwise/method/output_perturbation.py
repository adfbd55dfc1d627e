"""One release of the local model, by output perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.errors import PrivacyError
from flockwise.method.released import Budgets, Released, released_with_noise, whole_budget
from flockwise.objective import Huber, Loss, Problem, gradient_bound
from flockwise.objective.finish import AnchoredLocalObjectives
from flockwise.objective.solitary import minimize_each
from flockwise.privacy.grid import clip_rows

# The gradient that a solver may leave, as a share of one point's largest gradient: it enters the
# sensitivity. The solver is asked for far less, so that the check behind it does not fail.
SOLVER_SHARE = 1e-6
SOLVER_TOLERANCE = 1e-9


@dataclass(frozen=True)
class OutputPerturbation:
    """Releases argmin_θ (1/m_i) Σ ℓ(θ; x, y) + l2·‖θ‖² with normal noise.

    The objective is 2·l2-strongly convex. Replacing a point changes its gradient by at most 2C/m_i,
    C being the largest gradient of one point, and so moves the minimum by at most C/(m_i·l2). A solver
    that stops at a gradient of norm γ is within γ/(2·l2) of the minimum, on either side: γ/l2 more.

    l2: λ, one constant; it must not fall with m_i: with λ_i = 1/m_i the sensitivity is C whatever m_i is.
    feature_bound: R; longer points are scaled down to it, so that C = R·(slope bound of the loss).
    loss: the loss of the release, by default that of the problem; its slope must be bounded.
    """

    l2: float
    feature_bound: float
    loss: Loss | None = None
    name = "output"
    mechanism = "Gaussian noise (output perturbation)"
    accountant = "gdp"

    def release(self, problem: Problem, budgets: Budgets, noise_seed: int) -> Released:
        """Everyone's model, for its whole budget."""
        return self.release_with(problem, whole_budget(budgets), noise_seed)

    def release_with(self, problem: Problem, multipliers: NDArray[np.float64], noise_seed: int) -> Released:
        """Everyone's model, with noise of so many times its sensitivity."""
        task = bounded_problem(problem, self.loss, self.l2, self.feature_bound)
        largest = point_gradient_bound(task, self.feature_bound)
        models = solved_within(task, np.zeros((task.n_agents, task.dimension)), SOLVER_SHARE * largest)
        counts = problem.population.sample_counts
        return released_with_noise(models, counts, self.sensitivities(problem), multipliers, noise_seed)

    def sensitivities(self, problem: Problem) -> NDArray[np.float64]:
        """How far each agent's model may move when one of its points is replaced."""
        largest = point_gradient_bound(problem, self.feature_bound, self.loss)
        counts = np.maximum(problem.population.sample_counts, 1)
        return largest * (1 / counts + SOLVER_SHARE) / self.l2


def bounded_problem(problem: Problem, loss: Loss | None, l2: float, feature_bound: float) -> Problem:
    """The problem whose minima are released: clipped features, a loss of bounded slope, one constant λ."""
    if isinstance(l2, bool) or not isinstance(l2, int | float) or not (math.isfinite(l2) and l2 > 0):
        raise PrivacyError(
            f"l2 must be one positive number for all agents, got l2={l2!r}; with λ_i = 1/m_i or without "
            "penalty one point can move the model by its whole gradient, whatever m_i is"
        )
    if not (math.isfinite(feature_bound) and feature_bound > 0):
        raise PrivacyError(f"feature_bound must be positive and finite, got feature_bound={feature_bound!r}")
    population = problem.population
    # In double precision, whatever that of the data: rounded, a clipped point could be too long again.
    features = population.features.astype(np.float64)
    if population.n_samples:
        features = clip_rows(features, feature_bound, "l2")
    loss = loss or problem.loss
    bounded = Population.packed(
        features,
        _bounded_targets(population.targets.astype(np.float64), loss, l2, feature_bound),
        population.offsets,
        agent_names=population.given_names,
    )
    return Problem(bounded, problem.graph, loss, l2=float(l2))


def _bounded_targets(
    targets: NDArray[np.float64], loss: Loss, l2: float, feature_bound: float
) -> NDArray[np.float64]:
    """Targets clamped to where they make no difference any more: a solver must not fail for one far away.

    A minimum has ‖θ‖ ≤ C/(2λ), so that scores are at most R·C/(2λ), and beyond that by the width of the
    Huber loss its slope is at its bound. Failing, or not, would tell of the point.
    """
    if loss.metric == "accuracy" or math.isinf(loss.slope_bound("l2")):
        return targets
    if not isinstance(loss, Huber):
        raise PrivacyError(f"a model for regression is released under the Huber loss, got loss={loss!r}")
    limit = feature_bound * gradient_bound(loss, feature_bound, "l2") / (2 * l2) + loss.width
    return np.clip(targets, -limit, limit)


def point_gradient_bound(problem: Problem, feature_bound: float, loss: Loss | None = None) -> float:
    """C: the largest L2 norm of one point's gradient, under the loss that is given or that of the problem."""
    loss = loss or problem.loss
    largest = gradient_bound(loss, feature_bound, "l2")
    if math.isinf(largest):
        raise PrivacyError(
            f"one point's gradient has no bound under {loss!r}, so that no noise hides it; "
            "use Huber or CappedLogistic"
        )
    return largest


def solved_within(task: Problem, tilts: NDArray[np.float64], gradient_norm: float) -> NDArray[np.float64]:
    """argmin ℒ_i(θ) + tilt_iᵀθ for every agent, with a gradient of at most the given norm; else refused.

    λ‖θ‖² + tiltᵀθ is λ‖θ + tilt/(2λ)‖² up to a constant.
    """
    anchors = -tilts / (2 * task.l2_penalties[:, None])
    objectives = AnchoredLocalObjectives(task, anchors, task.l2_penalties)
    models = objectives.zeros()
    minimize_each(objectives, models, SOLVER_TOLERANCE)
    norms = np.linalg.norm(objectives.gradients(models), axis=1)
    unsolved = np.flatnonzero(~(norms <= gradient_norm))
    if unsolved.size:
        name = task.population.agent_names[unsolved[0]]
        raise PrivacyError(
            f"agent {name!r}: its model was not solved as exactly as its sensitivity supposes; raise l2"
        )
    return models
