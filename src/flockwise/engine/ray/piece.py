"""A piece of a rule: the agents of one shard, and the ghosts, their neighbors whom other shards run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flockwise.graph.canonical import agent_blocks, entries_of
from flockwise.graph.stored import mapped
from flockwise.method.rules import Descent, Edges, rows_of


@dataclass(frozen=True, eq=False)
class Piece:
    """A rule by local positions: the own agents first, with rows of edges and data; then the ghosts.

    own, ghosts: their positions in the whole rule, ascending.
    needed: by shard, the own agents whom it has as ghosts. ghosts_of: by shard, the ghosts that it runs. Both
    are local positions, and what one shard needs stands in the same order as the other's ghosts.
    graph: the folder of a graph in files, from which `read` takes the rows of edges that the rule lacks.
    """

    number: int
    rule: Descent
    own: NDArray[np.int64]
    ghosts: NDArray[np.int64]
    needed: Mapping[int, NDArray[np.int64]]
    ghosts_of: Mapping[int, NDArray[np.int64]]
    graph: str | None = None

    def read(self) -> Piece:
        """With edges and samples read that were still in their files."""
        rule = self.rule
        if self.graph is not None:
            rule = replace(rule, edges=local_edges(Edges(*mapped(self.graph)), self.own, self.ghosts))
        return replace(self, rule=rule.in_memory)

    @property
    def neighbors(self) -> tuple[int, ...]:
        """The shards that share an edge with this one."""
        return tuple(self.needed)

    @property
    def positions(self) -> NDArray[np.int64]:
        return np.concatenate([self.own, self.ghosts])


def pieces(rule: Descent, parts: NDArray[np.int32], n_shards: int) -> Iterator[Piece]:
    """One piece after the other, so no more than one need be in memory."""
    for number in range(n_shards):
        yield _piece(rule, parts, number)


def _piece(rule: Descent, parts: NDArray[np.int32], number: int) -> Piece:
    own = np.flatnonzero(parts == number)
    ghosts, needed = _boundary(rule.edges, own, parts, number)
    known = np.concatenate([own, ghosts])
    folder = rule.edges.folder
    local = replace(
        rule,
        ids=rule.ids[known],
        edges=local_edges(rule.edges, own, ghosts) if folder is None else Edges.none(own.size),
        local=rule.local.only(own),
        start=rule.start[known],
        step_sizes=rule.step_sizes[own],
        pulls=rule.pulls[own],
        noise=None if rule.noise is None else rule.noise.only(own),
    )
    ghosts_of = {other: own.size + np.flatnonzero(parts[ghosts] == other) for other in needed}
    return Piece(number, local, own, ghosts, needed, ghosts_of, folder)


def _boundary(
    edges: Edges, own: NDArray[np.int64], parts: NDArray[np.int32], number: int
) -> tuple[NDArray[np.int64], dict[int, NDArray[np.int64]]]:
    """The ghosts of a shard, and by shard the own agents whom it needs, by their places among them."""
    ghosts, needed = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for block in agent_blocks(_offsets(edges, own)):
        rows, offsets = rows_of(edges.offsets, own[block])
        heads = edges.neighbors[rows]
        homes = parts[heads].astype(np.int64)
        is_far = homes != number
        tails = np.repeat(np.arange(block.start, block.stop), np.diff(offsets))
        ghosts.append(np.unique(heads[is_far]).astype(np.int64))
        needed.append(np.unique(homes[is_far] * own.size + tails[is_far]))
    others, places = np.divmod(np.concatenate(needed), own.size)
    by_shard = {other: places[others == other] for other in np.unique(others).tolist()}
    return np.unique(np.concatenate(ghosts)), by_shard


def local_edges(edges: Edges, own: NDArray[np.int64], ghosts: NDArray[np.int64]) -> Edges:
    """The rows of a shard's own agents, by local positions."""
    offsets = _offsets(edges, own)
    neighbors, weights = np.empty(offsets[-1], np.int32), np.empty(offsets[-1])
    for block in agent_blocks(offsets):
        rows, _ = rows_of(edges.offsets, own[block])
        heads, entries = edges.neighbors[rows], entries_of(offsets, block)
        places, far = np.searchsorted(own, heads), own.size + np.searchsorted(ghosts, heads)
        is_own = own[np.minimum(places, own.size - 1)] == heads
        neighbors[entries], weights[entries] = np.where(is_own, places, far), edges.weights[rows]
    return Edges(offsets, neighbors, weights)


def _offsets(edges: Edges, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the rows of these agents begin among them."""
    return np.concatenate([[0], np.cumsum(edges.counts[own])])
