"""Data frames in and out. Their libraries are told apart by name, and none is imported unless it is yours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flockwise.data.tables import as_table, check_present, columns_of, is_table, is_text
from flockwise.errors import DataError

# Numbers as float64 with NaN for gaps; text and categories as objects, each text or None.
Columns: TypeAlias = Mapping[str, NDArray[Any]]


def is_frame(data: Any) -> bool:
    """Whether it has columns with names: a pandas, polars or Arrow table."""
    return is_table(data) and not isinstance(data, dict)


NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def columns_of_array(values: NDArray[np.float64]) -> Columns:
    """The columns of an array, called x0, x1, …"""
    return {f"x{place}": values[:, place] for place in range(values.shape[1])}


def columns_of_frame(frame: Any, without: str | None) -> Columns:
    """All columns but this one, numbers as numbers and all else as text."""
    table = as_table(frame)
    if not table.num_rows:
        raise DataError("the frame has no rows; give it at least one")
    names = [name for name in columns_of(table) if name != without]
    if not names:
        raise DataError("there is no column to learn from; give the frame at least one feature")
    return {name: _values(table[name], name) for name in names}


def agent_column(frame: Any, agent: str) -> pa.ChunkedArray:
    """The column that says whose row it is."""
    table = as_table(frame)
    check_present(table, [agent], "agent")
    return table[agent]


def _values(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        shown = _interval_text(kind.value_type) or text_of
        return np.array([shown(value) for value in column.to_pylist()], dtype=object)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if is_text(column.type):
        return np.array(column.to_pylist(), dtype=object)
    if not any(test(column.type) for test in NUMBERS):
        raise DataError(
            f"column {name!r}: a value of type {kind} is neither number nor text; convert it, for instance "
            "to a number of days, or drop the column"
        )
    numbers = column.cast(pa.float64()).to_numpy().astype(np.float64)
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise DataError(f"column {name!r}, row {row + 1}: infinite value; replace it or drop the row")
    return numbers


def _interval_text(kind: Any) -> Callable[[Any], str | None] | None:
    """How pandas writes the intervals of pandas.cut; None for values of another kind."""
    if getattr(kind, "extension_name", None) != "pandas.interval":
        return None
    left = "[" if kind.closed in ("left", "both") else "("
    right = "]" if kind.closed in ("right", "both") else ")"
    return lambda value: None if value is None else f"{left}{value['left']}, {value['right']}{right}"


def text_of(value: Any) -> str | None:
    """A category as text, the same whether it came as text, a whole number, a fraction or a truth value.

    None for a gap.
    """
    if value is None or value != value:  # NaN
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value)


def library_of(data: Any) -> str:
    """The library whose frames go out: that of the data, or pandas where it is installed."""
    name = type(data).__module__.partition(".")[0]
    if name in ("pandas", "polars", "pyarrow"):
        return name
    return "pandas" if find_spec("pandas") else "pyarrow"


def frame_of(library: str, columns: Mapping[str, Any], index: str) -> Any:
    """A frame of that library; one of its columns is the index where frames have one."""
    table = pa.table({name: pa.array(np.asarray(values)) for name, values in columns.items()})
    if library == "polars":
        return import_module("polars").from_arrow(table)
    return table.to_pandas().set_index(index) if library == "pandas" else table
