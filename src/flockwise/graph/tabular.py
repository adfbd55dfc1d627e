"""Similarity graphs from tables: public profiles (age, region, occupation), or edges in a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flockwise.data.checks import cell_error
from flockwise.data.labels import encode_labels, names_of
from flockwise.data.stored import opened, parquet_files
from flockwise.data.tables import (
    as_table,
    check_present,
    columns_of,
    finite_numbers,
    index_in_words,
    is_text,
    read_table,
    rows_by_agent,
    with_range_index,
)
from flockwise.errors import DataError, GraphError
from flockwise.graph.build import Metric, angular_graph, knn_graph
from flockwise.graph.similarity import SimilarityGraph
from flockwise.graph.source import GraphSource, SourceKind, as_source
from flockwise.graph.stored import Rows, stored_graph
from flockwise.privacy.origin import Origin
from flockwise.privacy.tracked import origin_of, worst_of

DEFAULT_NEIGHBORS = 10
DEFAULT_THRESHOLD = 0.01
MOST_CATEGORIES = 1000
EDGES_AT_ONCE = 1 << 20


def profile_graph(
    profiles: Any,
    columns: Sequence[str] | None = None,
    *,
    agent: str | None = None,
    agent_names: Iterable[str | int] | None = None,
    k: int | None = None,
    metric: Metric = "euclidean",
    gamma: float | None = None,
    threshold: float | Literal["connected"] = DEFAULT_THRESHOLD,
) -> SimilarityGraph:
    """From public profiles, one row per agent: k nearest neighbors (`k`, 10 by default) or angular (`gamma`).

    profiles: pandas, polars or Arrow table, dictionary of columns, or a NumPy array.
    columns: what to compare; by default every column but `agent` and a pandas index.
    agent: the column or index with the agents' names, by which a `Problem` finds them.
    agent_names: the agents in the order that the graph is to have them in; without `agent`, the names of the
        rows. A population whose agents have names needs a graph that knows them.

    See `profile_vectors` for what becomes of numbers and text. The graph is labelled public:
    use no column here that its owner would not publish. Models of a run know whether they were released, and
    the graph is labelled as they are.
    """
    if k is not None and gamma is not None:
        raise GraphError(f"give k = {k} for nearest neighbors or gamma = {gamma} for the angular kernel")
    vectors, names, source = named_vectors(profiles, columns, agent, agent_names)
    if gamma is not None:
        source = source.more(f"angular kernel, gamma {gamma}, threshold {threshold}")
        return angular_graph(vectors, gamma=gamma, threshold=threshold, source=source, agent_names=names)
    k = DEFAULT_NEIGHBORS if k is None else k
    source = source.more(f"{k} nearest neighbors, {metric}")
    return knn_graph(vectors, k, metric=metric, source=source, agent_names=names)


def _origin_of(profiles: Any) -> Origin | None:
    """That of an array or a table of exported models, or of the columns that know theirs."""
    columns = profiles.values() if isinstance(profiles, Mapping) else [profiles]
    known = [origin_of(column) for column in columns if origin_of(column) is not None]
    return worst_of(known) if known else None


def read_edges(
    path: str | os.PathLike[str],
    agent_names: Sequence[str | int],
    *,
    columns: tuple[str, str, str] | tuple[str, str] = ("source", "target", "weight"),
    source: GraphSource | SourceKind = "edges",
    folder: str | os.PathLike[str] | None = None,
) -> SimilarityGraph:
    """From a .csv (with a header) or .parquet file with one edge per row, in either direction.

    Parquet files, one or a folder of them, are read a part at a time: only the graph has to fit into memory.
    agent_names: all agents in the order of the population; agents without an edge are isolated.
    columns: the two agents and the weight; name only two columns where every weight is 1.
    folder: a new one, where the graph of Parquet files is sorted and stays, so that it may be larger than
        memory; one that an earlier call wrote from the same files is used again.
    """
    file = Path(path)
    names = names_of(agent_names)
    *ends, weight = columns if len(columns) == 3 else (*columns, None)
    try:
        rows = _rows_of(_parts_of(file, ends, weight), ends, weight, names)
        found = as_source(source, file.name)
        if folder is not None:
            identity = f"{_content_of(_parquet_of(file))} {columns}"
            return stored_graph(Path(folder), rows, identity, found, names)
        pairs, weights = zip((np.empty((0, 2), np.int32), np.empty(0)), *rows, strict=True)
        edges = np.concatenate(pairs), np.concatenate(weights)
        return SimilarityGraph.from_edges(len(names), *edges, source=found, agent_names=names)
    except (DataError, GraphError) as error:
        raise GraphError(f"{file}: {error}") from None


def _parquet_of(file: Path) -> list[Path]:
    if not _is_parquet(file):
        raise GraphError("folder= is for .parquet files; others are read at once")
    return parquet_files(file)


def _content_of(files: Iterable[Path]) -> str:
    """A hash of all bytes: lists of other weights may have the same sizes and footers."""
    found = []
    for file in files:
        with opened(file), file.open("rb") as stream:
            found.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return " ".join(found)


def _is_parquet(file: Path) -> bool:
    return file.suffix.lower() == ".parquet" or file.is_dir()


def _parts_of(file: Path, ends: list[str], weight: str | None) -> Iterator[pa.Table]:
    """The columns asked for, a part of the rows at a time."""
    columns = [*ends, weight] if weight else ends
    if not _is_parquet(file):
        table = read_table(file, text_columns=ends)
        check_present(table, columns)
        yield table
        return
    for part in parquet_files(file):
        with opened(part) as stream:
            check_present(stream.schema_arrow.empty_table(), columns)
            for batch in stream.iter_batches(EDGES_AT_ONCE, columns=columns):
                yield pa.Table.from_batches([batch])


def _rows_of(tables: Iterable[pa.Table], ends: list[str], weight: str | None, names: tuple[str, ...]) -> Rows:
    before = 0
    for table in tables:
        positions = [encode_labels(table[end], end, names, before)[0] for end in ends]
        weights = np.ones(len(table)) if weight is None else _weights(table[weight], weight, before)
        yield np.column_stack(positions).astype(np.int32), weights
        before += len(table)


def named_vectors(
    profiles: Any,
    columns: Sequence[str] | None = None,
    agent: str | None = None,
    agent_names: Iterable[str | int] | None = None,
) -> tuple[NDArray[np.float64], tuple[str, ...] | None, GraphSource]:
    """One vector per agent, the agents' names if a column has them, and what was compared."""
    table, names = _ordered(as_table(profiles), agent, agent_names)
    compared = _compared_columns(table, columns, agent)
    if agent is None and columns is None:
        _check_not_names(table, compared)
    source = GraphSource("profiles", f"columns {', '.join(compared)}", made_of=_origin_of(profiles))
    return _encoded(table, compared, names), names, source


def profile_vectors(profiles: Any, columns: Sequence[str] | None = None) -> NDArray[np.float64]:
    """One vector per row: numbers standardized (mean 0, variance 1), text and booleans one-hot.

    Two unlike agents are then about as far apart in a column of either kind: squared distance 2.
    A column of equal numbers says nothing and becomes 0.
    """
    table = as_table(profiles)
    return _encoded(table, _compared_columns(table, columns, None), None)


def _compared_columns(table: pa.Table, columns: Sequence[str] | None, agent: str | None) -> list[str]:
    if isinstance(columns, str):
        raise DataError(f"columns must be a list of names, got the text {columns!r}")
    compared = [name for name in columns_of(table) if name != agent] if columns is None else list(columns)
    if not compared or table.num_rows == 0:
        raise DataError("the profiles are empty; give at least one row and one column to compare")
    check_present(table, compared)
    return compared


def _ordered(
    table: pa.Table, agent: str | None, agent_names: Iterable[str | int] | None
) -> tuple[pa.Table, tuple[str, ...] | None]:
    """The rows in the order of the agents, exactly one for each, and the agents' names."""
    known = None if agent_names is None else names_of(agent_names)
    if agent is None:
        _check_unnamed(table)
        if known is not None and len(known) != table.num_rows:
            raise DataError(f"{len(known)} agent_names for {table.num_rows} rows; give one for each row")
        return table, known
    table = with_range_index(table, agent)
    check_present(table, [agent])
    return rows_by_agent(table, agent, known)


def _check_unnamed(table: pa.Table) -> None:
    """Refuse rows with names that nobody mentions: taken by position they would be other agents."""
    index = index_in_words(table)
    if index is not None:
        raise DataError(
            f"the frame {index} and does not say whose row is whose: name the agents in a column or a named "
            "index and give its name as agent=, or drop the index with reset_index(drop=True)"
        )
    if "agent" in table.column_names:
        raise DataError("column 'agent' looks like the agents' names: say agent='agent', or drop it")


def _check_not_names(table: pa.Table, columns: list[str]) -> None:
    """Refuse to compare agents by a text that no two share, unless it is listed in `columns`."""
    for name in columns:
        texts = table[name]
        if is_text(_kind_of(texts)) and not texts.null_count and 1 < len(texts) == len(texts.unique()):
            raise DataError(
                f"column {name!r} has another text in every row, like a column of names: say agent={name!r} "
                "if it names the agents, or list the columns to compare as columns="
            )


def _encoded(table: pa.Table, columns: list[str], names: Sequence[str] | None) -> NDArray[np.float64]:
    return np.column_stack([_encode(table[column], column, names) for column in columns])


def _encode(column: pa.ChunkedArray, name: str, names: Sequence[str] | None) -> NDArray[np.float64]:
    def owner(row: int) -> str:
        return str(row) if names is None else names[row]

    kind = _kind_of(column)
    if _is_number(column.type):
        values = finite_numbers(column, name, owner, np.dtype(np.float64))
        if values.min() == values.max():
            return np.zeros_like(values)
        centered = values - values.mean()
        return centered / centered.std()
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise cell_error(owner(row), name, row, "missing value; fill it or leave the column out")
    if pa.types.is_boolean(kind) or pa.types.is_dictionary(column.type) or is_text(kind):
        return _one_hot(column.cast(kind), name)
    raise DataError(
        f"column {name!r}: {kind} is neither number nor text; convert it or leave it out of columns"
    )


def _kind_of(column: pa.ChunkedArray) -> pa.DataType:
    """Of its values, also where these are categories."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _one_hot(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    encoded = column.combine_chunks().dictionary_encode()
    n_categories = len(encoded.dictionary)
    if n_categories > MOST_CATEGORIES:
        raise DataError(
            f"column {name!r} has {n_categories} different values, more than {MOST_CATEGORIES}; "
            "group them or leave it out of columns"
        )
    return np.eye(n_categories)[encoded.indices.to_numpy()]


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _weights(column: pa.ChunkedArray, name: str, before: int) -> NDArray[np.float64]:
    """The column as floats; whether they are good weights is for the graph to judge."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise cell_error(None, name, before + row, "the weight is missing; fill it or drop the row")
    try:
        return column.cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        row = next(row for row, cell in enumerate(column) if not _is_weight(cell))
        value = column[row].as_py()
        raise cell_error(None, name, before + row, f"weight {value!r} is not a number; correct it") from None


def _is_weight(cell: pa.Scalar) -> bool:
    try:
        cell.cast(pa.float64())
    except pa.ArrowException:
        return False
    return True
