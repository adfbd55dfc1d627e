"""Minima over all agents together, by a truncated Newton method that shares nothing with the engines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from flockwise.arrays import Floats
from flockwise.errors import ObjectiveError
from flockwise.objective.collaborative import CollaborativeObjective
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.problem import Problem
from flockwise.solve.local import MAX_HALVINGS, MAX_ITERATIONS, decrease_wanted, solve_local_models
from flockwise.theory.convergence import convergence_theory, data_curvatures

Point: TypeAlias = Floats

# Of the Hessian's diagonal: keeps steps finite where the function is nearly flat.
_RIDGE = 1e-9
# Whose objective is so much of its value above the minimum is far from it.
FAR = 0.02


@dataclass(frozen=True, eq=False)
class Optimum:
    """Models at the minimum of Eq. (2), with a proof of how close."""

    models: Floats
    value: float
    gap_bound: float
    """Q(models) − Q* is at most this; infinite if no agent has a penalty, for want of a proof."""


def solve_optimum(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    start: NDArray[Any] | None = None,
    anchors: Floats | None = None,
) -> Optimum:
    """Eq. (2) minimized until the certified gap is at most `tolerance` times its value.

    Where nothing is strongly convex (l2 = 0 for all agents) the gradient's norm has shrunk to
    `tolerance` times that at zero models instead. Agents without neighbors get their local model.
    anchors: one per agent, if λ_i is to weigh ‖Θ_i − anchor_i‖² in place of ‖Θ_i‖².
    """
    objective = CollaborativeObjective(problem, anchors=anchors)
    zeros = objective.local_objectives.zeros()
    gap_bound = _gap_bound(problem)
    smallest_slope = tolerance * float(np.linalg.norm(objective.gradient(zeros)))

    def reached(value: float, gradient: Floats) -> bool:
        bound = gap_bound(gradient)
        if math.isinf(bound):
            return float(np.linalg.norm(gradient)) <= smallest_slope
        return bound <= tolerance * value

    first = zeros if start is None else objective.local_objectives.checked(start)
    found = minimize_convex(objective.value, objective.gradient, objective.hessian, first, reached)
    models, isolated = found.point.copy(), problem.neighbors.isolated
    if isolated.size:
        models[isolated] = solve_local_models(problem, agents=isolated, anchors=anchors)
    return Optimum(models, found.value, gap_bound(found.gradient))


class Gap(NamedTuple):
    """How far Eq. (2) is above its minimum, as shares of its value: certified from both sides.

    least: by how much a better point is lower. most: a bound from the gradient and the penalties, infinite
    if no agent has one; with small penalties it is far too large.
    """

    least: float
    most: float

    @property
    def is_far(self) -> bool:
        return self.least > FAR

    @property
    def words(self) -> str:
        most = f" and at most {self.most:.2g}" if math.isfinite(self.most) else ""
        return (
            f"the run stopped far from the optimum: its objective is above the minimum by at least "
            f"{self.least:.2g}{most} of its value; run longer, or take solve_optimum(problem)"
        )


def certified_gap(problem: Problem, models: NDArray[Any]) -> Gap:
    """From one gradient, and where that leaves it open whether models are near, one Newton step."""
    objective = CollaborativeObjective(problem)
    point = objective.local_objectives.checked(models)
    value, slope = objective.value(point), objective.gradient(point)
    most = _gap_bound(problem)(slope) / value if value > 0 else 0.0
    if most <= FAR:
        return Gap(0.0, most)
    direction = _newton_direction(*objective.hessian(point), slope, share=0.1)
    better = _step(objective.value, point, value, slope, direction)[1]
    return Gap((value - better) / value, most)


def _gap_bound(problem: Problem) -> Callable[[Floats], float]:
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


def solve_global_model(problem: Problem, *, tolerance: float = 1e-8) -> Floats:
    """argmin over one θ of Σ_i D_ii c_i ℒ_i(θ), the limit of Eq. (2) as μ → 0 on a connected graph.

    tolerance: the gradient's norm is at most this times its norm at the start, θ = 0.
    """
    shares = problem.neighbors.degrees * problem.confidences
    if not shares.any():
        raise ObjectiveError("no agent has a neighbor, so the global model is undefined; add edges")
    shares /= shares.sum()
    objectives = LocalObjectives(problem)

    def for_all(model: Floats) -> Floats:
        return np.tile(model, (problem.n_agents, 1))

    def value(model: Floats) -> float:
        return float(shares @ objectives.values(for_all(model)))

    def gradient(model: Floats) -> Floats:
        return shares @ objectives.gradients(for_all(model))

    def hessian(model: Floats) -> tuple[Callable[[Any], Any], Floats]:
        hessians = objectives.hessians(for_all(model))
        return lambda direction: shares @ hessians.products(for_all(direction)), shares @ hessians.diagonals()

    start = np.zeros(problem.dimension)
    goal = tolerance * float(np.linalg.norm(gradient(start)))
    return minimize_convex(
        value, gradient, hessian, start, reached=lambda _, slope: float(np.linalg.norm(slope)) <= goal
    ).point


class Minimum(NamedTuple):
    point: Point
    value: float
    gradient: Point


def minimize_convex(
    value: Callable[[Point], float],
    gradient: Callable[[Point], Point],
    hessian: Callable[[Point], tuple[Callable[[Point], Point], Point]],
    start: Point,
    reached: Callable[[float, Point], bool],
) -> Minimum:
    """Newton steps with conjugate gradients inside, until `reached(value, gradient)`.

    hessian: gives the product with a direction, and the diagonal, which preconditions.
    Points may have any shape.
    """
    point, height, slope = start, value(start), gradient(start)
    norm = first = float(np.linalg.norm(slope))
    for _ in range(MAX_ITERATIONS):
        if norm == 0 or reached(height, slope):
            return Minimum(point, height, slope)
        direction = _newton_direction(*hessian(point), slope, share=min(0.1, (norm / first) ** 0.5))
        point, height = _step(value, point, height, slope, direction)
        slope = gradient(point)
        norm = float(np.linalg.norm(slope))
    raise ObjectiveError(
        f"no minimum within the tolerance after {MAX_ITERATIONS} Newton steps (gradient norm {norm:.1e}, "
        f"at the start {first:.1e}); raise l2 (with l2 = 0 there may be no minimum) or relax the tolerance"
    )


def _newton_direction(
    product: Callable[[Point], Point], diagonal: Point, slope: Point, share: float
) -> Point:
    """Solves H·direction = −slope until the residual's norm is at most `share` of the slope's."""
    # A coordinate without curvature takes a plain gradient step.
    ridge = np.where(diagonal > 0, _RIDGE * diagonal, 1.0)
    scales = diagonal + ridge

    def flat(apply: Callable[[Point], Point]) -> LinearOperator:
        """A linear map on points of any shape, as SciPy wants it."""
        operator: Any = LinearOperator  # made by a function of the same name
        return operator((slope.size,) * 2, lambda x: apply(x.reshape(slope.shape)).ravel(), dtype=np.float64)

    regularized = flat(lambda direction: product(direction) + ridge * direction)
    preconditioner = flat(lambda residual: residual / scales)
    direction, _ = cg(regularized, -slope.ravel(), rtol=share, maxiter=10 * slope.size, M=preconditioner)
    return direction.reshape(slope.shape)


def _step(
    value: Callable[[Point], float], point: Point, height: float, slope: Point, direction: Point
) -> tuple[Point, float]:
    """Goes along the direction, halving the step until the value decreases enough."""
    descent = float(np.vdot(slope, direction))
    length = 1.0
    for _ in range(MAX_HALVINGS):
        reached = point + length * direction
        reached_height = value(reached)
        if reached_height <= height + decrease_wanted(height, length * descent):
            return reached, reached_height
        length /= 2
    raise ObjectiveError("no step decreases the objective any more; relax the tolerance")
