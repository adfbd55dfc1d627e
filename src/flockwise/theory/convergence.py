"""Prop. 1: how fast asynchronous coordinate descent is sure to converge, for the problem at hand.

Both bounds are those of randomized (block) coordinate descent: S. J. Wright, "Coordinate descent
algorithms", Mathematical Programming 151 (2015), Theorem 1. They hold for every σ that is at most
the true one, so σ is always a lower bound here and never an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import cg

from flockwise.arrays import Floats
from flockwise.errors import ObjectiveError
from flockwise.objective.problem import Problem

_LARGEST_DENSE = 2000
_MOST_STEPS = 12
_SMALL_GAIN = 1e-6


@dataclass(frozen=True)
class ConvergenceTheory:
    """The constants of Prop. 1. Agents without neighbors count in n but not in the other constants.

    Their model does not enter Q and their ticks change nothing, so the proposition holds as it is
    for the others.
    """

    n_agents: int
    strong_convexity: float
    """σ: a lower bound on the smallest eigenvalue of D − W + diag(2 μ D_ii c_i λ_i).

    It is at least the published one. Up to 2,000 agents it is that eigenvalue less rounding; beyond,
    it is what a positive vector proves, which is close to it.
    """
    published_strong_convexity: float
    """σ as printed: min_i 2 μ D_ii c_i λ_i."""
    smallest_block_smoothness: float
    """L_min."""
    largest_block_smoothness: float
    """L_max."""

    @property
    def contraction(self) -> float:
        """1 − σ/(n L_max): the factor by which one tick shrinks the expected gap."""
        return self._contraction(self.strong_convexity)

    @property
    def published_contraction(self) -> float:
        """The same with σ as printed."""
        return self._contraction(self.published_strong_convexity)

    def bound(self, initial_gap: float, ticks: float | NDArray[np.number]) -> float | Floats:
        """Prop. 1: the expected gap Q − Q* after so many ticks is at most this."""
        return initial_gap * np.exp(np.asarray(ticks) * math.log(self.contraction))[()]

    def published_bound(self, initial_gap: float, ticks: float | NDArray[np.number]) -> float | Floats:
        """Prop. 1 with σ as printed."""
        return initial_gap * np.exp(np.asarray(ticks) * math.log(self.published_contraction))[()]

    def ticks_for(self, precision: float, initial_gap: float) -> int:
        """The ticks after which the expected gap is at most `precision`, by Prop. 1."""
        _check_precision(precision)
        if initial_gap <= precision:
            return 0
        if self.contraction == 1:
            raise ObjectiveError(
                "not strongly convex (l2 = 0), so Prop. 1 gives no rate; use convex_ticks_for"
            )
        return math.ceil(math.log(precision / initial_gap) / math.log(self.contraction))

    def convex_bound(self, radius: float, ticks: float | NDArray[np.number]) -> float | Floats:
        """Without strong convexity: the expected gap after t ticks is at most 2 n L_max R₀²/t.

        radius: R₀, the largest distance from a minimum within {Θ: Q(Θ) ≤ Q(Θ(0))}.
        """
        ticks = np.asarray(ticks, dtype=np.float64)
        numerator = 2 * self.n_agents * self.largest_block_smoothness * radius**2
        return np.divide(numerator, ticks, out=np.full(ticks.shape, math.inf), where=ticks > 0)[()]

    def convex_ticks_for(self, precision: float, radius: float) -> int:
        """The ticks after which `convex_bound` is at most `precision`."""
        _check_precision(precision)
        return math.ceil(2 * self.n_agents * self.largest_block_smoothness * radius**2 / precision)

    def _contraction(self, strong_convexity: float) -> float:
        return 1 - strong_convexity / (self.n_agents * self.largest_block_smoothness)


def convergence_theory(problem: Problem) -> ConvergenceTheory:
    """Prop. 1's constants for this problem."""
    linked = np.flatnonzero(problem.neighbors.neighbor_counts)
    if linked.size == 0:
        raise ObjectiveError("no agent has a neighbor, so there is nothing to converge to; add edges")
    block_smoothness = problem.block_smoothness[linked]
    penalties = data_curvatures(problem)[linked]
    published = float(penalties.min())
    laplacian = problem.neighbors.laplacian()[linked][:, linked]
    lower_bound = sparse.csr_array(laplacian + sparse.diags_array(penalties))
    return ConvergenceTheory(
        n_agents=problem.n_agents,
        strong_convexity=max(published, _eigenvalue_bound(lower_bound, linked.size)),
        published_strong_convexity=published,
        smallest_block_smoothness=float(block_smoothness.min()),
        largest_block_smoothness=float(block_smoothness.max()),
    )


def data_curvatures(problem: Problem) -> Floats:
    """μ D_ii c_i σ_i^loc with σ_i^loc = 2 λ_i: what the penalties alone add to ∇²Q."""
    return 2 * problem.neighbors.degrees * problem.pulls * problem.l2_penalties


def _eigenvalue_bound(matrix: sparse.csr_array, size: int) -> float:
    """A number that the smallest eigenvalue is sure to reach, rounding included."""
    if size > _LARGEST_DENSE:
        return _bound_by_iteration(matrix, np.ones(size))
    largest_row = float(abs(matrix).sum(axis=1).max())
    rounding = size * float(np.finfo(float).eps) * largest_row
    return float(np.linalg.eigvalsh(matrix.toarray())[0]) - rounding


def _bound_by_iteration(matrix: sparse.csr_array, vector: Floats) -> float:
    """The best bound of `_bound_by_vector` along an inverse iteration from this vector.

    Ones prove the published σ. Below the smallest eigenvalue a shifted matrix keeps a positive
    inverse, so the vectors stay positive and, solved exactly, prove more with every step. They
    are solved roughly: that can cost tightness, but no proof, which looks at the vector alone.
    """
    best = _bound_by_vector(matrix, vector)
    for _ in range(_MOST_STEPS):
        # Not the bound itself, where the matrix may be singular.
        shift = 0.99 * max(best, 0.0)
        shifted = sparse.csr_array(matrix - shift * sparse.eye_array(vector.size))
        with np.errstate(all="ignore"):  # a singular matrix, from agents without penalty, ends below
            vector, _ = cg(shifted, vector, rtol=1e-8, maxiter=300)
        if not (np.isfinite(vector).all() and vector.min() > 0):
            break
        vector /= vector.max()
        bound = _bound_by_vector(matrix, vector)
        if bound <= best * (1 + _SMALL_GAIN):
            break
        best = bound
    return best


def _bound_by_vector(matrix: sparse.csr_array, vector: Floats) -> float:
    """Collatz and Wielandt: min_i (Mx)_i / x_i, for any x > 0, is at most the smallest eigenvalue of M.

    It needs entries of M off the diagonal that are ≤ 0, as those of D − W are.
    """
    terms = np.diff(matrix.indptr) + 3
    # Twice the rounding of the product: the degrees in M are rounded sums themselves.
    rounding = 2 * float(np.finfo(float).eps) * terms * (abs(matrix) @ vector)
    return float(((matrix @ vector - rounding) / vector).min())


def _check_precision(precision: float) -> None:
    if not precision > 0:
        raise ObjectiveError(f"precision must be positive, got precision={precision!r}")
