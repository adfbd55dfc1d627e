"""A truncated Newton method for one large convex function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from flockwise.errors import ObjectiveError

Point: TypeAlias = NDArray[np.float64]

MAX_ITERATIONS = 200
MAX_HALVINGS = 40
_SUFFICIENT_DECREASE = 1e-4
# A decrease below this share of the value is lost in its rounding, and no reason to shorten a step.
_ROUNDING = 1e-15
# Of the Hessian's diagonal: keeps steps finite where the function is nearly flat.
_RIDGE = 1e-9


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


def decrease_wanted(height: Any, descent: Any) -> Any:
    """The change of value that a step has to undercut: a share of what the slope promises."""
    return _SUFFICIENT_DECREASE * descent + _ROUNDING * abs(height)


def _newton_direction(
    product: Callable[[Point], Point], diagonal: Point, slope: Point, share: float
) -> Point:
    """Solves H·direction = −slope until the residual's norm is at most `share` of the slope's."""
    # A coordinate without curvature takes a plain gradient step.
    ridge = np.where(diagonal > 0, _RIDGE * diagonal, 1.0)
    scales = diagonal + ridge

    def flat(apply: Callable[[Point], Point]) -> LinearOperator:
        """A linear map on points of any shape, as SciPy wants it."""
        square = (slope.size, slope.size)
        return LinearOperator(square, lambda x: apply(x.reshape(slope.shape)).ravel(), dtype=np.float64)

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
