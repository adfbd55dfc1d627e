"""Every agent's summed losses with a normal prior: what the most probable models minimize.

With θ = θ₀ + Rψ and RRᵀ = Σ the prior is ½‖ψ‖². So nothing divides by Σ: where it is singular R has fewer
columns, and models differ from θ₀ only where Σ lets them. A step is judged by its length in posterior
standard deviations, which does not depend on anybody's units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.errors import ObjectiveError
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.passes import all_curvatures, hessian_sums
from flockwise.objective.problem import Problem
from flockwise.solve.local import MAX_ITERATIONS, steps_along

# In posterior standard deviations. Newton's method squares the error, so the last step leaves far less.
TOLERANCE = 1e-6
# Of the loss's curvature: what rounding may take away from it.
_RIDGE = 1e-9


class SummedLosses:
    """Σ_k ℓ(θ; x_k, y_k) of every agent at its own model: values, gradients and dense Hessians.

    The samples are those that stay at home, and the l2 of the problem plays no part.
    """

    def __init__(self, problem: Problem, agents: NDArray[np.integer] | None = None) -> None:
        self.problem = problem
        self._means = LocalObjectives(problem, agents, l2_penalties=np.zeros(problem.n_agents))
        self.agents = self._means.agents
        self.counts = problem.population.sample_counts[self.agents]

    def only(self, which: NDArray[np.integer] | slice) -> SummedLosses:
        """The same for some of these agents, by their positions here."""
        return SummedLosses(self.problem, self.agents[which])

    def values(self, models: Floats) -> Floats:
        return self.counts * self._means.values(models)

    def gradients(self, models: Floats) -> Floats:
        return self.counts[:, None] * self._means.gradients(models)

    def hessians(self, models: Floats) -> Floats:
        """Shape (agents, dimension, dimension)."""
        features, places = self.problem.population.features, self._means.places
        return hessian_sums(features, self._means.starts, places, self._curvatures(models))

    def _curvatures(self, models: Floats) -> Floats:
        """Second derivatives in the scores, (outputs, outputs) per sample, never negative."""
        loss: Any = self.problem.loss
        constant = getattr(loss, "constant_curvature", None)
        if constant is not None:
            return np.full((self._means.places[-1], 1, 1), constant)
        population, outputs = self.problem.population, loss.outputs
        blocks = self._means.checked(models).reshape(len(models), outputs, -1)
        found = all_curvatures(
            loss, population.features, population.targets, self._means.starts, self._means.places, blocks
        )
        return np.maximum(found, 0.0) if outputs == 1 else found + _RIDGE * loss.curvature * np.eye(outputs)


class PosteriorObjectives:
    """F_i(ψ) = Σ_k ℓ(θ₀ + Rψ; x_k, y_k)/φ + ½‖ψ‖² of every agent, entry i at its own ψ."""

    def __init__(self, losses: SummedLosses, mean: Floats, root: Floats, dispersion: float) -> None:
        self.losses, self.mean, self.root, self.dispersion = losses, mean, root, dispersion

    def only(self, which: NDArray[np.integer] | slice) -> PosteriorObjectives:
        return PosteriorObjectives(self.losses.only(which), self.mean, self.root, self.dispersion)

    def models(self, away: Floats) -> Floats:
        return self.mean + away @ self.root.T

    def values(self, away: Floats) -> Floats:
        penalties = 0.5 * np.einsum("ij,ij->i", away, away)
        return self.losses.values(self.models(away)) / self.dispersion + penalties

    def gradients(self, away: Floats) -> Floats:
        return self.losses.gradients(self.models(away)) @ self.root / self.dispersion + away

    def hessians(self, away: Floats) -> Floats:
        data = self.losses.hessians(self.models(away)) / self.dispersion
        return self.root.T @ data @ self.root + np.eye(self.root.shape[1])

    def minimize(self, away: Floats) -> None:
        """Moves every ψ to its minimum by Newton's method, in place."""
        values = self.values(away)
        active = np.arange(len(away))
        for _ in range(MAX_ITERATIONS):
            remaining = self.only(active)
            gradients = remaining.gradients(away[active])
            hessians = remaining.hessians(away[active])
            directions: NDArray[Any] = -np.linalg.solve(hessians, gradients[..., None])[..., 0]
            slopes = np.einsum("ij,ij->i", gradients, directions)
            steps, values[active] = steps_along(remaining, away[active], values[active], slopes, directions)
            away[active] += steps[:, None] * directions
            active = active[(steps > 0) & (-slopes > TOLERANCE**2)]
            if active.size == 0:
                return
        names = self.losses.problem.population.agent_names
        raise ObjectiveError(
            f"agent {names[self.losses.agents[active[0]]]!r}: no most probable model after {MAX_ITERATIONS} "
            "Newton steps; scale the features, or give a prior with a smaller covariance"
        )
