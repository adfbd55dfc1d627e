"""Populations whose samples stay in Parquet files: who has how many is known, rows are read when needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import DTypeLike, NDArray

from flockwise.data.checks import float_dtype, quoted
from flockwise.data.labels import WHOLE_NUMBER, names_of, packing_order, plain_labels, sorted_labels
from flockwise.data.population import Population
from flockwise.data.tables import feature_columns, finite_numbers
from flockwise.errors import DataError

ROWS_AT_ONCE = 1 << 15
# A Parquet file ends with the length of its footer in four bytes, and four letters.
FOOTER_END = 8

Check = Callable[[Population], None]


def open_population(
    path: str | os.PathLike[str],
    *,
    agent: str = "agent",
    target: str,
    features: Sequence[str] | None = None,
    agents: Iterable[str | int] | None = None,
    dtype: DTypeLike = "float64",
) -> StoredPopulation:
    """A population in a .parquet file, or in all those of a folder, that may be larger than memory.

    Only the column of agents is read here; see `population_from_frame` for the arguments. Engine "ray" has
    each shard read the samples of its own agents. Everything else reads them all when it needs them.
    """
    paths = tuple(str(file) for file in parquet_files(Path(path)))
    with opened(paths[0]) as file:
        columns = feature_columns(file.schema_arrow.empty_table(), agent, target, features)
    files = SampleFiles(paths, agent, target, columns, float_dtype(dtype))
    return StoredPopulation(files, *files.count(None if agents is None else names_of(agents)))


def parquet_files(path: Path) -> list[Path]:
    """The file, or those of the folder in order."""
    found = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not found:
        raise DataError(f"{path}: there is no .parquet file in this folder")
    return found


@contextmanager
def opened(path: str | Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file; what is wrong with it, or with what is read from it, is said with its name."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged or cannot be read ({error})") from error


@dataclass(frozen=True)
class SampleFiles:
    """Parquet files with one sample per row, in any order, and what their columns mean."""

    paths: tuple[str, ...]
    agent: str
    target: str
    features: tuple[str, ...]
    dtype: np.dtype[Any]

    def count(self, names: tuple[str, ...] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """All agents, by default those found, sorted, and how many rows each of them has."""
        found = [table for path in self.paths for table in self._counts_of(path)]
        counted = pa.concat_tables(found) if found else None
        if counted is None or not counted.num_rows:
            raise DataError(f"{self.paths[0]}: there are no rows; give at least one sample")
        counted = counted.group_by("label").aggregate([("rows", "sum")])
        place = {str(label): row for row, label in enumerate(counted["label"].to_pylist())}
        if "" in place:
            raise DataError(f"column {self.agent!r}: a row has an empty text for its agent; fill it")
        ordered = tuple(sorted_labels(list(place))) if names is None else names
        strangers = place.keys() - set(ordered)
        if strangers:
            raise DataError(
                f"agent {min(strangers)!r}, column {self.agent!r}: is not one of the agents given "
                f"({quoted(ordered)}); add it there or drop its rows"
            )
        # Agents without a row find the 0 at the end.
        rows = np.append(counted["rows_sum"].to_numpy(), 0).astype(np.int64)
        return ordered, rows[[place.get(name, -1) for name in ordered]]

    def _counts_of(self, path: str) -> Iterator[pa.Table]:
        with opened(path) as file:
            self._check_columns(file.schema_arrow)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[self.agent]):
                label, rows = self._labels(pa.Table.from_batches([batch])).value_counts().flatten()
                yield pa.table({"label": label, "rows": rows})

    def _check_columns(self, schema: pa.Schema) -> None:
        """Every file has the columns, and agents of the same kind as the first."""
        feature_columns(schema.empty_table(), self.agent, self.target, self.features)
        with opened(self.paths[0]) as first:
            known = first.schema_arrow.field(self.agent).type
        here = schema.field(self.agent).type
        if here != known:
            raise DataError(
                f"column {self.agent!r} is {here} here and {known} in {self.paths[0]}; write all files alike"
            )

    def _labels(self, table: pa.Table) -> pa.Array:
        """The agents of rows, as integers or as text."""
        labels = plain_labels(table[self.agent], self.agent)
        if labels.null_count:
            raise DataError(f"column {self.agent!r}: a row has no agent; fill it or drop the row")
        kind = pa.int64() if pa.types.is_integer(labels.type) else pa.large_string()
        return labels.cast(kind).combine_chunks()

    def read(self, names: Sequence[str], offsets: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Features and targets of these agents, one agent after the other, in the order of their rows."""
        rows, labels = _Rows(self, names, offsets), None
        for path in self.paths:
            with opened(path) as file:
                before = 0
                for group in range(file.num_row_groups):
                    size = file.metadata.row_group(group).num_rows
                    found = self._labels(file.read_row_group(group, columns=[self.agent]))
                    labels = _typed(names, found.type) if labels is None else labels
                    owners = positions_among(labels, found)
                    if size and owners.max() >= 0:
                        rows.take_group(file, group, owners, before)
                    before += size
        return rows.complete()

    @cached_property
    def footers(self) -> NDArray[np.uint8]:
        """A hash of the sizes of all files and of their footers, which hold bounds of what is in them."""
        digest = hashlib.sha256()
        for path in self.paths:
            with opened(path), Path(path).open("rb") as stream:
                size = stream.seek(-FOOTER_END, os.SEEK_END) + FOOTER_END
                length = int.from_bytes(stream.read(4), "little")
                stream.seek(-FOOTER_END - length, os.SEEK_END)
                digest.update(f"\n{size}\n".encode() + stream.read(length))
        return np.frombuffer(digest.digest(), np.uint8)


def positions_among(labels: pa.Array, found: pa.Array) -> NDArray[np.int64]:
    """Where each label that was found stands among others; −1 where it does not."""
    options = pc.SetLookupOptions(value_set=labels, skip_nulls=True)
    return pc.call_function("index_in", [found], options).fill_null(-1).to_numpy().astype(np.int64)


def _typed(names: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Names as the files hold them. If these are numbers, a name that is not a number has no rows."""
    if kind != pa.int64():
        return pa.array(names, kind)
    return pa.array([int(name) if WHOLE_NUMBER.fullmatch(name) else None for name in names], kind)


class _Rows:
    """Rows of some agents as they are found: each is put where its agent's next one belongs."""

    def __init__(self, files: SampleFiles, names: Sequence[str], offsets: NDArray[np.int64]) -> None:
        self._files, self._names, self._offsets = files, names, offsets
        self._next = offsets[:-1].copy()
        self._features = np.empty((offsets[-1], len(files.features)), files.dtype)
        self._targets = np.empty(offsets[-1], files.dtype)

    def take_group(self, file: pq.ParquetFile, group: int, owners: NDArray[np.int64], before: int) -> None:
        """owners: of each row the position of its agent, or −1. before: rows ahead of this group."""
        start, columns = 0, [self._files.target, *self._files.features]
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=columns):
            self._take(batch, owners[start : start + batch.num_rows], before + start)
            start += batch.num_rows

    def _take(self, batch: pa.RecordBatch, owners: NDArray[np.int64], before: int) -> None:
        kept = np.flatnonzero(owners >= 0)
        places = self._places(owners[kept])
        table = pa.Table.from_batches([batch]).take(pa.array(kept))

        def owner(row: int) -> str:
            return self._names[int(owners[kept[row]])]

        def numbers(column: str) -> NDArray[Any]:
            return finite_numbers(table[column], column, owner, self._files.dtype, kept + before)

        self._targets[places] = numbers(self._files.target)
        for k, column in enumerate(self._files.features):
            self._features[places, k] = numbers(column)

    def _places(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        known, codes = np.unique(owners, return_inverse=True)
        order, starts = packing_order(codes, len(known))
        counts = np.diff(starts)
        if (self._next[known] + counts > self._offsets[known + 1]).any():
            raise self._changed()
        in_order = np.repeat(self._next[known] - starts[:-1], counts) + np.arange(len(owners))
        self._next[known] += counts
        places = np.empty(len(owners), np.int64)
        places[order] = in_order
        return places

    def complete(self) -> tuple[NDArray[Any], NDArray[Any]]:
        if not np.array_equal(self._next, self._offsets[1:]):
            raise self._changed()
        return self._features, self._targets

    def _changed(self) -> DataError:
        return DataError(f"{self._files.paths[0]}: the files have other rows than before; open them again")


class StoredPopulation(Population):
    """Samples in Parquet files, or those of some agents in them. `in_memory` has read them."""

    is_read = False

    files: SampleFiles
    check: Check | None

    def __init__(
        self,
        files: SampleFiles,
        names: tuple[str, ...],
        counts: NDArray[np.int64],
        check: Check | None = None,
    ) -> None:
        """check: refuses samples once they are read."""
        self.__dict__.update(
            files=files,
            check=check,
            offsets=np.concatenate([[0], np.cumsum(counts)]),
            feature_names=files.features,
            given_names=names,
            origins=(),
            has_intercept=False,
        )
        self.offsets.flags.writeable = False

    @cached_property
    def in_memory(self) -> Population:  # pyright: ignore[reportIncompatibleMethodOverride]
        features, targets = self.files.read(self.agent_names, self.offsets)
        names, columns = self.agent_names, self.feature_names
        read = Population.packed(features, targets, self.offsets, agent_names=names, feature_names=columns)
        if self.check is not None:
            self.check(read)
        return read

    @property
    def features(self) -> NDArray[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.in_memory.features

    @property
    def targets(self) -> NDArray[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.in_memory.targets

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.files.dtype

    @property
    def identity(self) -> tuple[NDArray[Any], ...]:
        return (self.files.footers, self.offsets)

    def select(self, agents: Sequence[str] | Sequence[int] | NDArray[Any]) -> StoredPopulation:
        """Only these agents, still in the files."""
        chosen = self.chosen(agents)
        names = tuple(self.agent_names[place] for place in chosen)
        return StoredPopulation(self.files, names, self.sample_counts[chosen], self.check)

    def checked(self, check: Check) -> StoredPopulation:
        """The same, whose samples are refused by a check once they are read."""
        return StoredPopulation(self.files, self.agent_names, self.sample_counts, check)

    def __getstate__(self) -> dict[str, Any]:
        """Sent elsewhere it leaves its samples behind; they are read there anew."""
        return {name: value for name, value in self.__dict__.items() if name != "in_memory"}
