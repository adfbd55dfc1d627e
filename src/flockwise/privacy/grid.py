"""Clipping, and the integer grid on which a real agent sums and draws its noise.

Floating-point noise is attackable: its low bits tell which sums are possible. So a real agent rounds
onto multiples of a step, sums exactly in 64-bit integers, adds integer noise and scales back. The
step is a power of two, so dividing by it and multiplying by it change no digit.

All bounds here hold for the numbers as computed, not only for those on paper: a clipped row is made
shorter by more than all rounding errors of the clipping together.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.arrays import Floats
from flockwise.errors import PrivacyError
from flockwise.privacy.mechanisms import Norm

# The step is finer than the sensitivity by these bits: nothing is lost that the noise would not hide.
FINENESS_BITS: Final = 20
# Room for noise on both sides of a sum; see MAX_STEPS_OF_NOISE in flockwise.privacy.noise.
MAX_STEPS: Final = 2.0**61
UNIT_ROUNDOFF: Final = 2.0**-53


def finite(values: ArrayLike, dimensions: int, name: str) -> Floats:
    """Values as float64; the error for those that are not finite shows none of them."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise PrivacyError(f"{name} must have {dimensions} dimension(s), got shape {array.shape}")
    if array.size == 0:
        raise PrivacyError(f"{name} must not be empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise PrivacyError(
            f"{name} must be finite: a value is infinite or not a number; clean the data first"
        )
    return array


def positive(value: float, name: str) -> float:
    """A public quantity that has to be positive and finite."""
    if not (math.isfinite(value) and value > 0):
        raise PrivacyError(f"{name} must be positive and finite, got {name}={value!r}")
    return value


def clip_rows(points: ArrayLike, bound: float, norm: Norm) -> Floats:
    """Each row, scaled down where it is longer than `bound`.

    The rounding errors of norm, factor and product amount to less than (p + 8) units in the last
    place (Higham, Accuracy and Stability of Numerical Algorithms, §3.1), so rows end that much
    and more below the bound.
    """
    rows = finite(points, 2, "points")
    positive(bound, "bound")
    inside = bound * (1 - 4 * (rows.shape[1] + 8) * UNIT_ROUNDOFF)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    # Relative to its largest entry no row overflows; a row of zeros stays as it is.
    relative = rows / np.where(largest > 0, largest, 1.0)
    lengths = _lengths(relative, norm)
    is_long = largest > inside / lengths
    return np.where(is_long, relative * (inside / lengths), rows)


def _lengths(rows: Floats, norm: Norm) -> Floats:
    if norm == "l1":
        lengths = np.abs(rows).sum(axis=1, keepdims=True)
    else:
        lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.where(lengths > 0, lengths, 1.0)


def sum_on_grid(points: ArrayLike, bound: float, norm: Norm, grid: float) -> NDArray[np.int64]:
    """The mean of the clipped rows in steps of `grid`, exactly: replacing a row moves it by 2·bound/(m·grid).

    Each row is rounded toward zero onto multiples of m·grid, which never makes it longer, so the
    sum of the m integer rows counts steps of `grid` of the mean.
    """
    clipped = clip_rows(points, bound, norm)
    check_grid(grid)
    if bound / grid > MAX_STEPS:
        raise PrivacyError(
            f"bound={bound!r} is more than 2^61 steps of grid={grid!r}: the sum would overflow; use grid_for"
        )
    return np.trunc(clipped / (len(clipped) * grid)).astype(np.int64).sum(axis=0)


def round_to_grid(vector: ArrayLike, grid: float) -> NDArray[np.int64]:
    """A finished vector in steps of `grid`, to the nearest; see `rounded_sensitivity`.

    Coordinates beyond 2^61 steps end there: that moves no two vectors apart, and, unlike an error,
    it tells nobody that the vector was that long.
    """
    values = finite(vector, 1, "vector")
    check_grid(grid)
    with np.errstate(over="ignore"):
        steps = np.clip(values / grid, -MAX_STEPS, MAX_STEPS)
    return np.rint(steps).astype(np.int64)


def rounded_sensitivity(sensitivity: float, dimension: int, grid: float, norm: Norm) -> float:
    """Sensitivity after rounding to the nearest multiples of `grid`.

    Each of two neighboring vectors moves by at most grid/2 a coordinate, so together they move
    apart by at most p·grid in L1 and √p·grid in L2.
    """
    return sensitivity + grid * (dimension if norm == "l1" else math.sqrt(dimension))


def grid_for(sensitivity: float, parts: float) -> float:
    """A step for the mean of so many clipped samples, or for a finished vector of so many coordinates.

    It is a power of two, finer than sensitivity/parts by at least 2²⁰. Rounding toward zero moves a
    coordinate of a mean by less than m·grid, at most 2⁻²⁰ of the sensitivity; the noise is of the order of
    the sensitivity, or more. To a vector's sensitivity rounding adds at most 2⁻²⁰ of it, in either norm.
    """
    share = positive(sensitivity, "sensitivity") / positive(parts, "parts")
    return math.ldexp(1.0, math.frexp(share)[1] - 1 - FINENESS_BITS)


def check_grid(grid: Any) -> None:
    """Dividing by another step than a normal power of two would round once more."""
    if not (isinstance(grid, float) and grid >= 2.0**-900 and math.frexp(grid)[0] == 0.5):
        raise PrivacyError(f"grid must be a power of two, got grid={grid!r}; use grid_for")
