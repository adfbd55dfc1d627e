"""Which shard runs which agent: parts of the graph with equal work, and few edges between them."""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import FlockwiseWarning, MissingExtra, SimulationError
from flockwise.graph.canonical import agent_blocks, entries_of, owners_of
from flockwise.method.rules import Edges

# From this share of cut edges on, what a machine computes is soon less than what it waits for.
BAD_CUT = 0.2
# METIS counts edges and work in 32-bit integers.
HEAVIEST = 1000
# By how much a part may be heavier than the mean, as METIS has it.
IMBALANCE = 0.03
MOST_ENTRIES = np.iinfo(np.int32).max


def cut(edges: Edges, n_shards: int, work: NDArray[np.integer]) -> NDArray[np.int32]:
    """The shard of each position. work: what an update of each agent costs, roughly."""
    n_agents = len(edges.counts)
    if n_shards == 1:
        return np.zeros(n_agents, np.int32)
    if edges.neighbors.size > MOST_ENTRIES:
        raise SimulationError(
            f"a graph of {edges.neighbors.size // 2:,} edges is too large for METIS; cut it beforehand and "
            "give RayEngine(parts=...), the shard of each agent"
        )
    # Relative work in few steps: the sums over a part stay within 32 bits.
    scale = max(float(np.mean(work)), 1.0) / 10
    weights = np.clip(np.round(work / scale), 1, HEAVIEST).astype(np.int32)
    if find_spec("pymetis"):
        return cut_by_metis(edges, n_shards, weights)
    if find_spec("mtkahypar"):
        return cut_by_kahypar(edges, n_shards, weights)
    raise MissingExtra('engine="ray" with several shards', "cluster")


def cut_by_metis(edges: Edges, n_shards: int, weights: NDArray[np.int32]) -> NDArray[np.int32]:
    import pymetis  # pyright: ignore[reportMissingImports]

    adjacency = pymetis.CSRAdjacency(edges.offsets.astype(np.int32), edges.neighbors)
    return np.asarray(pymetis.part_graph(n_shards, adjacency, vweights=weights).vertex_part, np.int32)


def cut_by_kahypar(edges: Edges, n_shards: int, weights: NDArray[np.int32]) -> NDArray[np.int32]:
    """Where METIS has no wheel, as on Linux for ARM."""
    import mtkahypar  # pyright: ignore[reportMissingImports]

    partitioner = _partitioner()
    context = partitioner.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.logging = False
    context.set_partitioning_parameters(n_shards, IMBALANCE, mtkahypar.Objective.CUT)
    tails = np.repeat(np.arange(len(edges.counts)), edges.counts)
    once = tails < edges.neighbors
    pairs = list(zip(tails[once].tolist(), edges.neighbors[once].tolist(), strict=True))
    ones = [1] * len(pairs)
    graph = partitioner.create_graph(context, len(weights), len(pairs), pairs, weights.tolist(), ones)
    return np.asarray(graph.partition(context).get_partition(), np.int32)


@cache
def _partitioner() -> Any:
    """One for all cuts: a second one would print a warning."""
    import mtkahypar  # pyright: ignore[reportMissingImports]

    return mtkahypar.initialize(os.cpu_count() or 1)


def checked_parts(parts: Any, n_agents: int, n_shards: int) -> NDArray[np.int32]:
    """A cut that was made beforehand."""
    given = np.asarray(parts)
    if given.shape != (n_agents,) or given.dtype.kind not in "iu":
        raise SimulationError(
            f"parts must give the shard of each of {n_agents} agents as integers, got {given.dtype} of shape "
            f"{given.shape}"
        )
    if given.min() < 0 or given.max() >= n_shards:
        wrong = int(np.argmax((given < 0) | (given >= n_shards)))
        raise SimulationError(
            f"parts of agent {wrong}: shards are numbered 0 to {n_shards - 1}, got {given[wrong]}"
        )
    return given.astype(np.int32)


def cut_edges(edges: Edges, parts: NDArray[np.int32], n_shards: int) -> NDArray[np.int64]:
    """How many neighbors the agents of each shard (a row) have in each other one."""
    found = np.zeros(n_shards**2, np.int64)
    for block in agent_blocks(edges.offsets):
        owners = parts[owners_of(edges.offsets, block)].astype(np.int64)
        homes = parts[edges.neighbors[entries_of(edges.offsets, block)]]
        found += np.bincount(owners * n_shards + homes, minlength=n_shards**2)
    found = found.reshape(n_shards, n_shards)
    np.fill_diagonal(found, 0)
    return found


def warn_of_bad_cut(share: float, n_shards: int) -> None:
    """Say beforehand that more machines will not make this run faster."""
    if share > BAD_CUT:
        warnings.warn(
            f"{share:.0%} of the edges join agents of different shards, so the {n_shards} shards mostly wait "
            "for each other and one machine may be faster; a graph of nearest neighbors has fewer such edges",
            FlockwiseWarning,
            stacklevel=2,
        )
