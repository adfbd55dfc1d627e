"""Prop. 1: how fast asynchronous coordinate descent is sure to converge, for the problem at hand.

Both bounds are those of randomised (block) coordinate descent: S. J. Wright, "Coordinate descent
algorithms", Mathematical Programming 151 (2015), Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from murmura.errors import ObjectiveError
from murmura.objective.problem import Problem

_LARGEST_DENSE = 2000


@dataclass(frozen=True)
class ConvergenceTheory:
    """The constants of Prop. 1. Agents without neighbors count in n but not in the other constants.

    Their model does not enter Q and their ticks change nothing, so the proposition holds as it is
    for the others.
    """

    n_agents: int
    strong_convexity: float
    """σ: the smallest eigenvalue of D − W + diag(2 μ D_ii c_i λ_i), at least the published one."""
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

    def bound(self, initial_gap: float, ticks: float | NDArray[np.number]) -> float | NDArray[np.float64]:
        """Prop. 1: the expected gap Q − Q* after so many ticks is at most this."""
        return initial_gap * np.exp(np.asarray(ticks) * math.log(self.contraction))[()]

    def published_bound(
        self, initial_gap: float, ticks: float | NDArray[np.number]
    ) -> float | NDArray[np.float64]:
        """Prop. 1 with σ as printed."""
        return initial_gap * np.exp(np.asarray(ticks) * math.log(self.published_contraction))[()]

    def ticks_for(self, precision: float, initial_gap: float) -> int:
        """The ticks after which the expected gap is at most `precision`, by Prop. 1."""
        _check_precision(precision)
        if initial_gap <= precision:
            return 0
        if self.contraction == 1:
            raise ObjectiveError(
                "not strongly convex (l2 = 0), so that Prop. 1 gives no rate; use convex_ticks_for"
            )
        return math.ceil(math.log(precision / initial_gap) / math.log(self.contraction))

    def convex_bound(self, radius: float, ticks: float | NDArray[np.number]) -> float | NDArray[np.float64]:
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
    linked = np.flatnonzero(problem.graph.neighbor_counts)
    if linked.size == 0:
        raise ObjectiveError("no agent has a neighbor, so that there is nothing to converge to; add edges")
    block_smoothness = problem.block_smoothness[linked]
    penalties = data_curvatures(problem)[linked]
    published = float(penalties.min())
    laplacian = problem.graph.laplacian()[linked][:, linked]
    lower_bound = sparse.csr_array(laplacian + sparse.diags_array(penalties))
    return ConvergenceTheory(
        n_agents=problem.n_agents,
        strong_convexity=max(published, _smallest_eigenvalue(lower_bound, linked.size)),
        published_strong_convexity=published,
        smallest_block_smoothness=float(block_smoothness.min()),
        largest_block_smoothness=float(block_smoothness.max()),
    )


def data_curvatures(problem: Problem) -> NDArray[np.float64]:
    """μ D_ii c_i σ_i^loc with σ_i^loc = 2 λ_i: what the penalties alone add to ∇²Q."""
    return 2 * problem.graph.degrees * problem.pulls * problem.l2_penalties


def _smallest_eigenvalue(matrix: sparse.csr_array, size: int) -> float:
    """The smallest eigenvalue, less the error of its computation; 0 if it could not be computed."""
    if size <= _LARGEST_DENSE:
        largest_row = float(abs(matrix).sum(axis=1).max())
        rounding = size * float(np.finfo(float).eps) * largest_row
        return float(np.linalg.eigvalsh(matrix.toarray())[0]) - rounding
    try:
        values, vectors = eigsh(matrix, k=1, which="SA", v0=np.ones(size), maxiter=200, tol=1e-6)  # pyright: ignore[reportArgumentType]
    except ArpackNoConvergence:
        return 0.0
    residual = matrix @ vectors[:, 0] - values[0] * vectors[:, 0]
    return float(values[0] - np.linalg.norm(residual))


def _check_precision(precision: float) -> None:
    if not precision > 0:
        raise ObjectiveError(f"precision must be positive, got precision={precision!r}")
