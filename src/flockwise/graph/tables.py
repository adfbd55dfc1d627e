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


def read_table(file: Path, text_columns: Iterable[str] = ()) -> pa.Table:
    """A .csv or .parquet file; in CSV the text columns are taken as written, so that "007" is not 7."""
    if file.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"cannot read a {file.suffix!r} file; use .csv or .parquet")
    if not file.is_file():
        raise DataError("there is no such file")
    try:
        if file.suffix.lower() == ".csv":
            types = {column: pa.string() for column in text_columns}
            return pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(column_types=types))
        with pyarrow.parquet.ParquetFile(file) as opened:
            return opened.read()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as {file.suffix} ({error})") from error


def as_table(table: Any) -> pa.Table:
    """A pandas, polars or Arrow table, a dictionary of columns, or an array with columns "0", "1", …"""
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise DataError(f"an array of profiles has one row per agent, got shape {table.shape}")
        return pa.table({str(place): column for place, column in enumerate(table.T)})
    if not isinstance(table, dict) and not hasattr(table, "__arrow_c_stream__"):
        raise DataError(
            f"cannot read a {type(table).__name__} as a table; give a pandas, polars or Arrow table, "
            "a dictionary of columns or an array"
        )
    try:
        return pa.table(table)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"the table cannot be read; give every column one type ({error})") from error


def check_present(table: pa.Table, columns: Iterable[str]) -> None:
    """Every column is there, once."""
    for column in columns:
        found = table.column_names.count(column)
        if found != 1:
            problem = f"occurs {found} times" if found else "is missing"
            raise DataError(f"column {column!r} {problem}; the columns are {quoted(table.column_names)}")
