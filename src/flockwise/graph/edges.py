"""Edge lists in CSV and Parquet files → SimilarityGraph."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flockwise.data.checks import cell_error
from flockwise.data.labels import encode_labels, names_of
from flockwise.data.tables import check_present, read_table
from flockwise.errors import DataError, GraphError
from flockwise.graph.similarity import SimilarityGraph
from flockwise.graph.source import GraphSource, SourceKind, as_source


def read_edges(
    path: str | os.PathLike[str],
    agent_names: Sequence[str | int],
    *,
    columns: tuple[str, str, str] | tuple[str, str] = ("source", "target", "weight"),
    source: GraphSource | SourceKind = "edges",
) -> SimilarityGraph:
    """From a .csv (with a header) or .parquet file with one edge per row, in either direction.

    agent_names: all agents in the order of the population; agents without an edge are isolated.
    columns: the two agents and the weight; name only two columns where every weight is 1.
    """
    file = Path(path)
    names = names_of(agent_names)
    *ends, weight = columns if len(columns) == 3 else (*columns, None)
    try:
        table = read_table(file, text_columns=ends)
        check_present(table, [*ends, weight] if weight else ends)
        pairs = np.column_stack([encode_labels(table[end], end, names)[0] for end in ends])
        weights = _weights(table[weight], weight) if weight else None
        found = as_source(source, file.name)
        return SimilarityGraph.from_edges(len(names), pairs, weights, source=found, agent_names=names)
    except (DataError, GraphError) as error:
        raise GraphError(f"{file}: {error}") from None


def _weights(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """The column as floats; whether they are good weights is for the graph to judge."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise cell_error(None, name, row, "the weight is missing; fill it or drop the row")
    try:
        return column.cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        row = next(row for row, cell in enumerate(column) if not _is_number(cell))
        value = column[row].as_py()
        raise cell_error(None, name, row, f"weight {value!r} is not a number; correct it") from None


def _is_number(cell: pa.Scalar) -> bool:
    try:
        cell.cast(pa.float64())
    except pa.ArrowException:
        return False
    return True
