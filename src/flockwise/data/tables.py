"""Tables as Arrow: from files, data frames, dictionaries of columns and arrays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from flockwise.data.checks import quoted
from flockwise.errors import DataError

SUFFIXES = (".csv", ".parquet")


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
    """The columns that a person put there: an index that pandas added is none of them."""
    metadata = table.schema.pandas_metadata or {}
    index = [column for column in metadata.get("index_columns", []) if isinstance(column, str)]
    return [name for name in table.column_names if name not in index]


def check_present(table: pa.Table, columns: Iterable[str], role: str = "") -> None:
    """Every column is there, once. role: what the columns are for, in words."""
    for column in columns:
        found = table.column_names.count(column)
        if found == 0:
            wanted = f" for the {role}" if role else ""
            available = quoted(table.column_names)
            raise DataError(f"there is no column {column!r}{wanted}; the columns are {available}")
        if found > 1:
            raise DataError(f"column {column!r} occurs {found} times; rename or drop the others")
