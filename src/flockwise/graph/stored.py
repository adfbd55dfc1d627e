"""A similarity graph that stays in files: edges of any number, sorted on disk and memory-mapped from there.

No more than a part of them is ever in memory. First every row is checked and written down both ways; then
the entries go to a file for each range of agents; then range after range is sorted, and what is listed again
is dropped or, with another weight, refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import GraphError
from flockwise.graph import canonical
from flockwise.graph.canonical import agent_blocks, checked_edges, distinct_entries, two_weights
from flockwise.graph.similarity import SimilarityGraph
from flockwise.graph.source import GraphSource

ENTRY = np.dtype([("agent", "<i4"), ("neighbor", "<i4"), ("weight", "<f8"), ("row", "<i8")])
ARRAYS = {"offsets": np.dtype("<i8"), "neighbors": np.dtype("<i4"), "weights": np.dtype("<f8")}
ABOUT = "graph.json"

# Pairs of positions and their weights, a part of the rows of an edge list at a time.
Rows = Iterable[tuple[NDArray[np.int32], NDArray[np.float64]]]


@dataclass(frozen=True, eq=False, repr=False)
class StoredGraph(SimilarityGraph):
    """A graph whose arrays lie in a folder; the system reads what is used, and drops it when memory is short.

    Symmetric since every edge was written both ways.
    """

    folder: str = ""

    def _check_symmetry(self) -> None:
        pass

    def in_order(self, agent_names: Sequence[str]) -> SimilarityGraph:
        if self.agent_names != tuple(agent_names):
            raise GraphError(
                f"{self.folder} has the graph of other agents, or of the same in another order; give "
                "read_edges the names of the population, and a new folder"
            )
        return self


def stored_graph(
    folder: Path, rows: Rows, identity: str, source: GraphSource, names: tuple[str, ...]
) -> StoredGraph:
    """The graph of an edge list. The folder is written, or was by another call for the same list.

    identity: of the list, equal if it is the same.
    """
    digest = hashlib.sha256("\n".join((identity, *names)).encode()).hexdigest()
    if not folder.exists():
        _make(folder, rows, names, digest)
    try:
        about = json.loads((folder / ABOUT).read_text())
        made_of, sizes = about["made_of"], about["sizes"]
    except (OSError, ValueError, KeyError, TypeError):
        raise GraphError(f"{folder} is there already and holds no graph; name a new folder") from None
    if made_of != digest:
        raise GraphError(f"{folder} holds the graph of other edges or agents; name a new folder")
    if sizes != _sizes(folder):
        raise GraphError(f"{folder}: a file of the graph is missing or damaged; remove the folder")
    place = folder.resolve()
    return StoredGraph(*mapped(place), source, names, str(place))


def mapped(folder: str | Path) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Offsets, neighbors and weights as they lie in the files."""
    offsets, neighbors, weights = (_mapped(Path(folder) / name, kind) for name, kind in ARRAYS.items())
    return offsets, neighbors, weights


def _mapped(file: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    # An empty file cannot be mapped.
    return np.memmap(file, kind, mode="r") if file.stat().st_size else np.empty(0, kind)


def _make(folder: Path, rows: Rows, names: tuple[str, ...], digest: str) -> None:
    """Written in a place of its own: other processes may do the same, and the first of them is used."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent) as own:
        part = Path(own) / "graph"  # with the rights of other folders; `own` is for this user alone
        part.mkdir()
        _write(part, rows, names)
        (part / ABOUT).write_text(json.dumps({"made_of": digest, "sizes": _sizes(part)}))
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():
                raise


def _sizes(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_size for name in ARRAYS if (folder / name).exists()}


def _write(folder: Path, rows: Rows, names: tuple[str, ...]) -> None:
    entries, n_agents = folder / "entries", len(names)
    counts = _write_entries(entries, rows, names)
    ranges = list(agent_blocks(np.concatenate([[0], np.cumsum(counts)])))
    _share_out(entries, [agents.start for agents in ranges])
    entries.unlink()
    degrees = np.zeros(n_agents, np.int64)
    with (folder / "neighbors").open("wb") as neighbors, (folder / "weights").open("wb") as weights:
        for number, agents in enumerate(ranges):
            if expected := int(counts[agents].sum()):
                kept = _sorted(_shared_out(_range_file(entries, number), expected), names)
                degrees[agents] = np.bincount(kept["agent"] - agents.start, minlength=len(degrees[agents]))
                kept["neighbor"].tofile(neighbors)
                kept["weight"].tofile(weights)
    np.concatenate([[0], np.cumsum(degrees)]).astype(ARRAYS["offsets"]).tofile(folder / "offsets")


def _write_entries(file: Path, rows: Rows, names: tuple[str, ...]) -> NDArray[np.int64]:
    """All edges both ways, in the order of the list; the number of entries of each agent."""
    counts, before = np.zeros(len(names), np.int64), 0
    with file.open("wb") as stream:
        for pairs, weights in rows:
            ends = checked_edges(len(names), pairs, weights, names, before)
            for agents, others in (ends, ends[::-1]):
                found = np.empty(len(pairs), ENTRY)
                found["agent"], found["neighbor"], found["weight"] = agents, others, weights
                found["row"] = before + np.arange(len(pairs))
                found.tofile(stream)
                counts += np.bincount(agents, minlength=len(names))
            before += len(pairs)
    return counts


def _share_out(file: Path, starts: Sequence[int]) -> None:
    """Each entry goes to the file of its agent's range."""
    for found in _parts(file):
        homes = np.searchsorted(starts, found["agent"], side="right") - 1
        order = np.argsort(homes, kind="stable")
        ends = np.cumsum(np.bincount(homes, minlength=len(starts)))
        for number in np.unique(homes).tolist():
            with _range_file(file, number).open("ab") as stream:
                found[order[ends[number - 1] if number else 0 : ends[number]]].tofile(stream)


def _shared_out(file: Path, expected: int) -> NDArray[Any]:
    """All entries of a range, whose file then goes."""
    found = np.fromfile(file, ENTRY)
    if len(found) != expected:
        raise GraphError(f"{file}: has {len(found)} entries, and {expected} were written; run it again")
    file.unlink()
    return found


def _parts(file: Path) -> Iterator[NDArray[Any]]:
    with file.open("rb") as stream:
        while len(found := _next_part(stream)):
            yield found


def _next_part(stream: BinaryIO) -> NDArray[Any]:
    return np.fromfile(stream, ENTRY, canonical.ENTRIES_AT_ONCE)


def _range_file(entries: Path, number: int) -> Path:
    return entries.with_name(f"{entries.name}-{number}")


def _sorted(entries: NDArray[Any], names: tuple[str, ...]) -> NDArray[Any]:
    """Agent after agent with ascending neighbors, each edge once; zeros are dropped."""
    kept, conflict = distinct_entries(
        entries["agent"] * np.int64(len(names)) + entries["neighbor"], entries["weight"]
    )
    if conflict is not None:
        # The agent is the lower end: the higher one comes later.
        two = entries[list(conflict)]
        ends = int(two["agent"][0]), int(two["neighbor"][0])
        raise two_weights(tuple(two["row"].tolist()), ends, tuple(two["weight"].tolist()), names)
    found = entries[kept]
    return found[found["weight"] > 0]
