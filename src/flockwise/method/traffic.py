"""What the low-pass protocol sends, by stage, foretold from the graph without sending it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from flockwise.graph import SimilarityGraph
from flockwise.method.rules import Traffic
from flockwise.protocol.filter import batches
from flockwise.protocol.gossip import (
    FIRST_ROUNDS,
    MOST_ROUNDS,
    PROBE_COLUMNS,
    agree,
    damped_up_to,
    more_rounds,
    push_sum_mean,
)
from flockwise.protocol.rows import NOISE_COLUMNS, TALLIES, public_noise

# Numbers in a message of the search for the leader.
REACH_NUMBERS: Final = 6


def foretold_traffic(
    graph: SimilarityGraph,
    variances: NDArray[np.float64],
    dimension: int,
    hops: NDArray[np.int64],
    *,
    measures_power: bool,
) -> Traffic:
    """What the agents send with no relay lost; `hops` are those of the filter, as the agents chose them."""
    traffic = Traffic.none()
    for component in range(int(graph.components.max(initial=-1)) + 1):
        agents = np.flatnonzero(graph.components == component)
        if len(agents) > 1:
            edges = int(graph.neighbor_counts[agents].sum())
            ties = (graph.to_scipy()[agents][:, agents] > 0).astype(np.float64).tocsr()
            ends = _Ends(ties)
            rounds = _mixing(ties, agents, variances[agents])
            gossip = _Gossip(traffic, edges, ends.reach)
            traffic.add("reach", edges * ends.rounds, REACH_NUMBERS)
            traffic.add("degree", edges, 1)
            for tried in rounds:
                gossip.add("mixing", tried, PROBE_COLUMNS)
            gossip.add("mean", rounds[-1], dimension + NOISE_COLUMNS)
            if measures_power:
                gossip.add("power", rounds[-1], 2)
            for degrees in batches(int(hops[agents[0]])):
                gossip.add("tally", rounds[-1], TALLIES * len(degrees))
            traffic.add("hop", edges * int(hops[agents[0]]), dimension + NOISE_COLUMNS + 1)
    return traffic


class _Gossip:
    """Push-sum along so many directed edges, until agents agree."""

    def __init__(self, traffic: Traffic, edges: int, reach: int) -> None:
        self._traffic, self._edges, self._reach = traffic, edges, reach

    def add(self, stage: str, rounds: int, numbers: int) -> None:
        self._traffic.add(stage, self._edges * rounds, numbers + 1)
        self._traffic.add(stage, self._edges * self._reach, 2 * numbers)


class _Ends:
    """The search for the leader: what it finds, and how many rounds it takes.

    An agent d hops from the leader can answer once it sees that all its neighbors have joined, and d rounds
    later the leader knows; to tell everyone takes as many rounds as the farthest agent is hops away.
    """

    def __init__(self, ties: sparse.csr_array) -> None:
        away = csgraph.dijkstra(ties, indices=0, unweighted=True).astype(np.int64)
        farthest = int(away.max())
        latest = np.maximum.reduceat(away[ties.indices], ties.indptr[:-1])
        self.reach = 2 * farthest
        self.rounds = int((np.maximum(away, latest + 1) + away).max()) + farthest


def _mixing(ties: sparse.csr_array, agents: NDArray[np.int64], variances: NDArray[np.float64]) -> list[int]:
    """The numbers of rounds that agents try, up to the one after which they agree."""
    hop = sparse.csr_array(ties @ sparse.diags_array(1 / ties.sum(axis=0)))
    precisions = (1 / variances)[:, None]
    sums = np.hstack([precisions * public_noise(agents, variances)[:, -PROBE_COLUMNS:], precisions])
    tried = [FIRST_ROUNDS]
    while not _agrees_after(tried[-1], hop, sums) and tried[-1] < MOST_ROUNDS:
        tried.append(more_rounds(tried[-1]))
    return tried


def _agrees_after(rounds: int, hop: sparse.csr_array, sums: NDArray[np.float64]) -> bool:
    bound = damped_up_to(rounds)
    before, now = sums, (2 * (hop @ sums) + (1 - bound) * sums) / (1 + bound)
    for _ in range(rounds - 1):
        before, now = now, 2 * (2 * (hop @ now) + (1 - bound) * now) / (1 + bound) - before
    means = np.apply_along_axis(push_sum_mean, 1, now)
    return agree(means.min(axis=0), means.max(axis=0))
