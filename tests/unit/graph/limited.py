"""A process with less memory than a graph takes: python -m tests.unit.graph.limited FOLDER.

FOLDER/edges is an edge list. The graph goes to FOLDER/graph, and each of the shards reads its own edges.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flockwise as fw
from flockwise.engine.ray.cut import cut_edges
from flockwise.engine.ray.piece import Piece, pieces
from flockwise.graph import canonical, tabular
from flockwise.method.rules import Descent, Edges

# What a process may use beyond its libraries; the graph takes more.
MEGABYTES = 120
N_AGENTS, REACH, N_SHARDS = 20_000, 300, 8
AT_ONCE = 1 << 17
ENVIRONMENT = {
    **os.environ,
    # Memory that was reserved would count, and so would the buffers of threads.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


def write_edges(folder: Path) -> None:
    """Everyone on a ring and the next ones, in two files."""
    folder.mkdir()
    for part, agents in enumerate(np.array_split(np.arange(N_AGENTS), 2)):
        sources = np.repeat(agents, REACH)
        steps = np.tile(np.arange(1, REACH + 1), len(agents))
        table = {"source": sources, "target": (sources + steps) % N_AGENTS, "weight": 1 / steps}
        pq.write_table(pa.table(table), folder / f"{part}.parquet", row_group_size=AT_ONCE)


def names() -> list[str]:
    return [str(agent) for agent in range(N_AGENTS)]


def in_use() -> int:
    """What Linux counts against the limit, in bytes."""
    found = re.search(r"VmData:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def rule_of(graph: fw.SimilarityGraph) -> Descent:
    few = np.zeros((N_AGENTS, 1))
    population = fw.Population.packed(few, few[:, 0] + 1, np.arange(N_AGENTS + 1), agent_names=names())
    rule = (
        fw.CoordinateDescent().prepare(fw.Problem(population, graph, fw.Objective(feature_bound=1.0)), 0).rule
    )
    assert isinstance(rule, Descent)
    return rule


def check(piece: Piece, crossing: int) -> None:
    edges: Edges = piece.rule.edges
    assert edges.neighbors.size == 2 * REACH * piece.own.size
    assert np.count_nonzero(edges.neighbors >= piece.own.size) == crossing


def main(folder: Path) -> None:
    tabular.EDGES_AT_ONCE = canonical.ENTRIES_AT_ONCE = AT_ONCE
    # Every thread has a stack, which counts in full.
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
    limit = in_use() + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    graph = fw.read_edges(folder / "edges", names(), folder=folder / "graph")
    rule, parts = rule_of(graph), np.arange(N_AGENTS, dtype=np.int32) * N_SHARDS // N_AGENTS
    crossing = cut_edges(rule.edges, parts, N_SHARDS)
    for piece in pieces(rule, parts, N_SHARDS):
        assert piece.rule.edges.neighbors.size == 0
        check(piece.read(), int(crossing[piece.number].sum()))
    print("in files: fits")
    try:
        fw.read_edges(folder / "edges", names())
    except MemoryError:
        print("in memory: does not fit")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
