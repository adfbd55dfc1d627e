"""A piece of a rule: the agents of one shard, and the ghosts, their neighbors whom other shards run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flockwise.method.rules import Descent, Edges, rows_of


@dataclass(frozen=True, eq=False)
class Piece:
    """A rule by local positions: the own agents first, with rows of edges and data; then the ghosts.

    own, ghosts: their positions in the whole rule, ascending.
    needed: by shard, the own agents whom it has as ghosts. ghosts_of: by shard, the ghosts that it runs. Both
    are local positions, and what one shard needs stands in the same order as the other's ghosts.
    """

    number: int
    rule: Descent
    own: NDArray[np.int64]
    ghosts: NDArray[np.int64]
    needed: Mapping[int, NDArray[np.int64]]
    ghosts_of: Mapping[int, NDArray[np.int64]]

    @property
    def neighbors(self) -> tuple[int, ...]:
        """The shards that share an edge with this one."""
        return tuple(self.needed)

    @property
    def positions(self) -> NDArray[np.int64]:
        return np.concatenate([self.own, self.ghosts])


def pieces(rule: Descent, parts: NDArray[np.int32], n_shards: int) -> Iterator[Piece]:
    """One piece after the other, so no more than one need be in memory."""
    place = np.zeros(rule.n_agents, np.int32)
    for number in range(n_shards):
        yield _piece(rule, parts, number, place)


def _piece(rule: Descent, parts: NDArray[np.int32], number: int, place: NDArray[np.int32]) -> Piece:
    """place: scratch room, one number for each agent of the rule."""
    own = np.flatnonzero(parts == number)
    rows, offsets = rows_of(rule.edges.offsets, own)
    heads = rule.edges.neighbors[rows]
    homes = parts[heads]
    is_far = homes != number
    ghosts = np.unique(heads[is_far]).astype(np.int64)
    place[own] = np.arange(own.size)
    place[ghosts] = own.size + np.arange(ghosts.size)
    tails = np.repeat(np.arange(own.size), np.diff(offsets))
    others = np.unique(homes[is_far]).tolist()
    known = np.concatenate([own, ghosts])
    local = replace(
        rule,
        ids=rule.ids[known],
        edges=Edges(offsets, place[heads], rule.edges.weights[rows]),
        local=rule.local.only(own),
        start=rule.start[known],
        step_sizes=rule.step_sizes[own],
        pulls=rule.pulls[own],
        noise=None if rule.noise is None else rule.noise.only(own),
    )
    needed = {other: np.unique(tails[homes == other]) for other in others}
    ghosts_of = {other: own.size + np.flatnonzero(parts[ghosts] == other) for other in others}
    return Piece(number, local, own, ghosts, needed, ghosts_of)
