"""Tables as Arrow: from files, data frames, dictionaries and arrays. Tables of samples as populations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import DTypeLike, NDArray

from flockwise.data.checks import as_floats, cell_error, distinct, float_dtype, nonfinite_words, quoted
from flockwise.data.labels import encode_labels, names_of, packing_order
from flockwise.data.population import Population
from flockwise.errors import DataError

SUFFIXES = (".csv", ".parquet")
# What pandas calls an index without a name; a person never put it there.
UNNAMED = "__index_level_"


def read_table(file: Path, text_columns: Iterable[str] = ()) -> pa.Table:
    """A .csv or .parquet file; in CSV the text columns are taken as written, so "007" is not 7."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"cannot read a {file.suffix!r} file; use {' or '.join(SUFFIXES)}")
    if not file.is_file():
        raise DataError("there is no such file")
    try:
        if suffix == ".csv":
            types = {column: pa.string() for column in text_columns}
            return pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(column_types=types))
        # ParquetFile reads this one file; read_table would also take columns from folder names like "x=1".
        with pyarrow.parquet.ParquetFile(file) as opened:
            return opened.read()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as {file.suffix} ({error})") from error


def is_table(data: Any) -> bool:
    """Whether it has columns with names: a pandas, polars or Arrow table, or a dictionary of columns."""
    return isinstance(data, dict) or hasattr(data, "__arrow_c_stream__")


def as_table(table: Any) -> pa.Table:
    """A pandas, polars or Arrow table, a dictionary of columns, or an array with columns "0", "1", …"""
    converted = _converted(table)
    names = converted.column_names
    if len(set(names)) < len(names):
        check_present(converted, names)
    return converted


def _converted(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise DataError(f"an array has one row per agent or sample, got shape {table.shape}")
        return pa.table({str(place): column for place, column in enumerate(table.T)})
    if not is_table(table):
        raise DataError(
            f"cannot read a {type(table).__name__} as a table; give a pandas, polars or Arrow table "
            "(collect a lazy one first), a dictionary of columns or an array"
        )
    try:
        return pa.table(table)
    except (pa.ArrowException, ValueError, TypeError) as error:
        words = "; ".join(str(part) for part in error.args)
        raise DataError(
            f"the table cannot be read; give every column one type and one name ({words})"
        ) from error


def columns_of(table: pa.Table) -> list[str]:
    """The columns that a person put there, without an index that pandas added."""
    index = [column for column in _index_columns(table) if isinstance(column, str)]
    return [name for name in table.column_names if name not in index]


def with_range_index(table: pa.Table, name: str) -> pa.Table:
    """With a column for an index of this name that pandas keeps as a mere range."""
    for index in _index_columns(table):
        if isinstance(index, dict) and index["name"] == name and name not in table.column_names:
            values = range(index["start"], index["stop"], index["step"])
            return table.append_column(name, pa.array(values, pa.int64()))
    return table


def index_in_words(table: pa.Table) -> str | None:
    """What pandas calls the rows, if it is more than their numbers 0, 1, …; None without such an index."""
    for index in _index_columns(table):
        if isinstance(index, str):
            return f"has an index ({quoted(table[index][:3].to_pylist())}, …)"
        if (index["start"], index["step"]) != (0, 1):
            return f"has an index that begins with {index['start']} in steps of {index['step']}"
    return None


def index_labels(table: pa.Table) -> list[Any] | None:
    """What pandas calls each row; None without an index, or if it is the numbers 0, 1, …"""
    indexes = _index_columns(table)
    if len(indexes) > 1:
        raise DataError(f"the frame has an index of {len(indexes)} levels; name each agent by one label")
    for index in indexes:
        if isinstance(index, str):
            return table[index].to_pylist()
        if (index["start"], index["step"]) != (0, 1):
            return list(range(index["start"], index["stop"], index["step"]))
    return None


def _index_columns(table: pa.Table) -> list[Any]:
    return (table.schema.pandas_metadata or {}).get("index_columns", [])


def check_present(table: pa.Table, columns: Iterable[str], role: str = "") -> None:
    """Every column is there, once. role: what the columns are for, in words."""
    for column in columns:
        found = table.column_names.count(column)
        if found == 0:
            wanted = f" for the {role}" if role else ""
            available = quoted([name for name in table.column_names if not name.startswith(UNNAMED)])
            raise DataError(f"there is no column {column!r}{wanted}; the columns are {available}")
        if found > 1:
            raise DataError(f"column {column!r} occurs {found} times; rename or drop the others")


def rows_by_agent(
    table: pa.Table, column: str, names: Sequence[str] | None
) -> tuple[pa.Table, tuple[str, ...]]:
    """A table with exactly one row per agent, in the order of the names if they are given; and the names."""
    codes, known = encode_labels(table[column], column, names)
    rows_of = np.bincount(codes, minlength=len(known))
    if (rows_of != 1).any():
        wrong = int(np.argmax(rows_of != 1))
        found = f"agent {known[wrong]!r}, column {column!r}: {rows_of[wrong]} rows"
        raise DataError(f"{found}; every agent needs exactly one")
    if names is None:
        return table, tuple(known[code] for code in codes)
    return table.take(pa.array(np.argsort(codes))), known


def population_from_frame(
    frame: Any,
    *,
    agent: str = "agent",
    target: str,
    features: Sequence[str] | None = None,
    agents: Iterable[str | int] | None = None,
    dtype: DTypeLike = "float64",
) -> Population:
    """A population from a table with one sample per row.

    frame: pandas, polars or Arrow table, or a dictionary of columns.
    agent, target: the columns that name each row's agent (text or integers) and what is to be predicted.
    features: the columns to learn from; by default all the others.
    agents: all agents in the wanted order, those without a row included; by default those found, sorted.

    Booleans count as 0 and 1. Text, categories and missing values are refused.
    """
    table, kept = as_table(frame), float_dtype(dtype)
    columns = feature_columns(table, agent, target, features)
    if table.num_rows == 0:
        raise DataError("the table has no rows; give at least one sample")
    known = None if agents is None else names_of(agents)
    codes, names = encode_labels(table[agent], agent, known)
    order, offsets = packing_order(codes, len(names))
    packed = np.empty((table.num_rows, len(columns)), dtype=kept)

    def owner(row: int) -> str:
        return names[codes[row]]

    for place, column in enumerate(columns):
        packed[:, place] = finite_numbers(table[column], column, owner, kept)[order]
    targets = np.array(finite_numbers(table[target], target, owner, kept)[order])
    return Population.packed(packed, targets, offsets, agent_names=names, feature_names=columns)


def read_population(
    path: str | os.PathLike[str],
    *,
    agent: str = "agent",
    target: str,
    features: Sequence[str] | None = None,
    agents: Iterable[str | int] | None = None,
    dtype: DTypeLike = "float64",
) -> Population:
    """A population from a .csv (with a header) or .parquet file; see `population_from_frame`."""
    file = Path(path)
    try:
        table = read_table(file, text_columns=[agent])
        return population_from_frame(
            table, agent=agent, target=target, features=features, agents=agents, dtype=dtype
        )
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def feature_columns(
    table: pa.Table, agent: str, target: str, features: Sequence[str] | None
) -> tuple[str, ...]:
    """The feature columns, once it is sure that every column asked for is there, once and in one role."""
    if isinstance(features, str):
        raise DataError(f"features must be a list of column names, got the text {features!r}")
    if agent == target:
        raise DataError(f"column {agent!r} cannot be both the agent and the target")
    if features is None:
        columns = tuple(name for name in columns_of(table) if name not in (agent, target))
    else:
        columns = distinct(features, "feature")
    if not columns:
        raise DataError(f"there is no feature column beside {agent!r} and {target!r}")
    for role, names in (("agent", [agent]), ("target", [target]), ("feature", columns)):
        check_present(table, names, role)
    for role, column in (("agent", agent), ("target", target)):
        if column in columns:
            raise DataError(f"column {column!r} is the {role} and cannot be a feature as well")
    return columns


def finite_numbers(
    column: pa.ChunkedArray,
    name: str,
    owner: Callable[[int], str | None],
    dtype: np.dtype[Any],
    numbers_of_rows: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """The column as finite floats; the first cell that is not one is refused by agent, column and row.

    numbers_of_rows: what messages count the rows by, if not by their place in the column.
    """

    def refused(row: int, problem: str) -> DataError:
        number = row if numbers_of_rows is None else int(numbers_of_rows[row])
        return cell_error(owner(row), name, number, problem)

    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not _is_numeric(kind):
        raise refused(*_why_not_numbers(column))
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise refused(row, "missing value; fill it or drop the row")
    numbers = column.to_numpy()
    converted = as_floats(numbers, dtype)
    finite = np.isfinite(converted)
    if not finite.all():
        row = int(np.argmin(finite))
        raise refused(row, nonfinite_words(float(numbers[row]), dtype))
    return converted


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_numeric(kind: pa.DataType) -> bool:
    # A column of type null has nothing but missing values; those are reported as such.
    tests = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


def _why_not_numbers(column: pa.ChunkedArray) -> tuple[int, str]:
    """The row to blame, and what is wrong with a column that does not hold numbers."""
    kind = column.type
    leave_out = "or leave the column out of features"
    if pa.types.is_dictionary(kind):
        return 0, f"category {column[0].as_py()!r} is not a number; encode categories as numbers {leave_out}"
    if is_text(kind):
        for row, cell in enumerate(column):
            text = cell.as_py()
            if text is not None and not _reads_as_number(text):
                return row, f"text {text!r} is not a number; encode it as one {leave_out}"
        return 0, f"{column[0].as_py()!r} is a number written as text; convert the column to numbers"
    return 0, f"a value of type {kind} is not a number; convert it {leave_out}"


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
