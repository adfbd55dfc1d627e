"""The minimum of Eq. (2) by a second-order method that shares nothing with the engines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.objective.collaborative import CollaborativeObjective
from flockwise.objective.problem import Problem
from flockwise.solve.local import solve_local_models
from flockwise.solve.newton import minimize_convex
from flockwise.theory.convergence import convergence_theory, data_curvatures


@dataclass(frozen=True, eq=False)
class Optimum:
    """Models at the minimum of Eq. (2), with a proof of how close."""

    models: NDArray[np.float64]
    value: float
    gap_bound: float
    """Q(models) − Q* is at most this; infinite if no agent has a penalty, for want of a proof."""


def solve_optimum(
    problem: Problem, *, tolerance: float = 1e-10, start: NDArray[Any] | None = None
) -> Optimum:
    """Eq. (2) minimised until the certified gap is at most `tolerance` times its value.

    Where nothing is strongly convex (l2 = 0 for all agents) the gradient's norm has shrunk to
    `tolerance` times that at zero models instead. Agents without neighbors get their local model.
    """
    objective = CollaborativeObjective(problem)
    zeros = objective.local_objectives.zeros()
    gap_bound = _gap_bound(problem)
    smallest_slope = tolerance * float(np.linalg.norm(objective.gradient(zeros)))

    def reached(value: float, gradient: NDArray[np.float64]) -> bool:
        bound = gap_bound(gradient)
        if math.isinf(bound):
            return float(np.linalg.norm(gradient)) <= smallest_slope
        return bound <= tolerance * value

    first = zeros if start is None else objective.local_objectives.checked(start)
    found = minimize_convex(objective.value, objective.gradient, objective.hessian, first, reached)
    models, isolated = found.point.copy(), problem.neighbors.isolated
    if isolated.size:
        models[isolated] = solve_local_models(problem, agents=isolated)
    return Optimum(models, found.value, gap_bound(found.gradient))


def _gap_bound(problem: Problem) -> Callable[[NDArray[np.float64]], float]:
    """A function of the gradient that bounds Q − Q*.

    Where ∇²Q ⪰ M everywhere, the gap is at most ½ gᵀM⁻¹g. M is diagonal if every agent has a
    penalty, which is better than its smallest entry; otherwise M = σI with σ from the graph.
    """
    linked = problem.neighbors.neighbor_counts > 0
    curvatures = data_curvatures(problem)[linked]
    if curvatures.size == 0:
        return lambda gradient: 0.0
    if curvatures.min() == 0:
        sigma = convergence_theory(problem).strong_convexity if curvatures.max() > 0 else 0.0
        curvatures = np.full(curvatures.shape, sigma)
    if curvatures.min() <= 0:
        return lambda gradient: math.inf
    return lambda gradient: float(0.5 * ((gradient[linked] ** 2).sum(axis=1) / curvatures).sum())
