"""The checks of every way into a Population, and the words of their refusals.

Rows are counted from 1 in messages: row 1 is the first sample, in a file the line after the header.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flockwise.errors import DataError

FloatArray: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

# np.isfinite writes one byte per number: blocks of this many numbers keep that out of the memory bill.
NUMBERS_PER_BLOCK = 1 << 20


def float_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """float32 or float64; any other type is refused."""
    problem = DataError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        raise problem from None
    if wanted not in (np.float32, np.float64):
        raise problem
    return wanted


def as_floats(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A conversion in which a number too large for `dtype` becomes infinite, for the caller to find."""
    with np.errstate(over="ignore"):
        return numbers.astype(dtype, copy=False)


def first_nonfinite(numbers: NDArray[Any]) -> tuple[int, int] | None:
    """Row and column of the first NaN or infinity of a table (rows, columns), or None."""
    rows_per_block = max(1, NUMBERS_PER_BLOCK // max(1, numbers.shape[1]))
    for start in range(0, len(numbers), rows_per_block):
        finite = np.isfinite(numbers[start : start + rows_per_block])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            return start + int(row), int(column)
    return None


def nonfinite_words(value: float, dtype: np.dtype[Any]) -> str:
    """Why a NaN, an infinity or a number that does not fit `dtype` is refused, and what to do."""
    if math.isnan(value):
        return "missing value; fill it or drop the row"
    if math.isinf(value):
        return f"infinite value ({value}); replace it by a finite one or drop the row"
    return f"{value} does not fit {dtype.name}; rescale the column or use dtype='float64'"


def cell_error(agent: str | None, column: str, row: int, problem: str) -> DataError:
    """The refusal of one cell; `row` counts from 0 here and from 1 in the message."""
    owner = f"agent {agent!r}, " if agent else ""
    return DataError(f"{owner}column {column!r}, row {row + 1}: {problem}")


def distinct(names: Iterable[str], what: str) -> tuple[str, ...]:
    """The names as a tuple; an empty name or one that occurs twice is refused."""
    kept = tuple(names)
    seen: set[str] = set()
    for name in kept:
        if not isinstance(name, str) or not name:
            raise DataError(f"{what} {name!r} is not a name; use non-empty text")
        if name in seen:
            raise DataError(f"{what} {name!r} occurs twice; give every one its own name")
        seen.add(name)
    return kept


def quoted(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, cut off after `most` of them."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"
