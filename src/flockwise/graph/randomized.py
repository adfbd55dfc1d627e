"""Random graphs for benchmarks, and graphs with wrong edges to test robustness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from flockwise.errors import GraphError
from flockwise.graph.similarity import SimilarityGraph
from flockwise.graph.source import GraphSource


def random_graph(n_agents: int, degree: int, seed: int) -> SimilarityGraph:
    """At most, and nearly always exactly, `degree` random neighbors for each agent, with weight 1.

    A union of random rings through all agents, and of one random matching where the degree is odd;
    connected from degree 2 on.
    """
    if not 0 <= degree < n_agents:
        raise GraphError(
            f"degree must be at least 0 and below the number of agents, {n_agents}; got {degree}"
        )
    generator = np.random.default_rng(seed)
    agents = np.arange(n_agents, dtype=np.int32)
    edges = np.empty((n_agents * (degree // 2) + n_agents // 2 * (degree % 2), 2), dtype=np.int32)
    for start in range(0, n_agents * (degree // 2), n_agents):
        ring = generator.permutation(agents)
        edges[start : start + n_agents, 0] = ring
        edges[start : start + n_agents, 1] = np.roll(ring, 1)
    if degree % 2:
        edges[-(n_agents // 2) :] = generator.permutation(agents)[: n_agents // 2 * 2].reshape(-1, 2)
    source = GraphSource("random", f"up to {degree} random neighbors each, seed {seed}")
    return SimilarityGraph.from_edges(n_agents, edges, source=source)


def rewired(graph: SimilarityGraph, share: float, seed: int) -> SimilarityGraph:
    """The graph with a share of its edges, chosen at random, moved to random pairs that had no edge.

    Every moved edge keeps its weight.
    """
    if not 0 <= share <= 1:
        raise GraphError(f"share must be between 0 and 1, got {share}")
    upper = sparse.triu(graph.to_scipy(), format="coo")
    moved = round(share * graph.n_edges)
    free = graph.n_agents * (graph.n_agents - 1) // 2 - graph.n_edges
    if moved > free:
        raise GraphError(f"{moved} edges cannot move: only {free} pairs of agents have no edge; lower share")
    generator = np.random.default_rng(seed)
    edges = np.column_stack(upper.coords).astype(np.int64)
    chosen = generator.choice(graph.n_edges, moved, replace=False)
    edges[chosen] = _free_pairs(edges, generator.choice(free, moved, replace=False))
    description = f"{graph.source.description}; {share:.0%} of the edges rewired, seed {seed}".lstrip("; ")
    source = replace(graph.source, description=description)
    return SimilarityGraph.from_edges(
        graph.n_agents, edges, upper.data, source=source, agent_names=graph.agent_names
    )


def complete_graph(n_agents: int) -> SimilarityGraph:
    """Everyone is a neighbor of everyone, with weight 1: for groups that are known to be alike."""
    if n_agents < 1:
        raise GraphError(f"n_agents must be at least 1, got n_agents={n_agents!r}")
    first, second = np.triu_indices(n_agents, 1)
    source = GraphSource("complete", "everyone with everyone")
    return SimilarityGraph.from_edges(n_agents, np.column_stack([first, second]), source=source)


def _free_pairs(edges: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pairs with these ranks among all pairs without an edge, in the order of `_pair_number`."""
    taken = np.sort(_pair_number(edges))
    free_before = taken - np.arange(len(taken))  # how many free pairs come before each edge
    return _numbered_pair(ranks + np.searchsorted(free_before, ranks, side="right"))


def _pair_number(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs i < j numbered (0,1), (0,2), (1,2), (0,3), …: j(j−1)/2 + i."""
    first, second = pairs.T
    return second * (second - 1) // 2 + first


def _numbered_pair(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The inverse of `_pair_number`."""
    second = ((1 + np.sqrt(8.0 * numbers + 1)) / 2).astype(np.int64)
    # The square root may round across an integer.
    second -= second * (second - 1) // 2 > numbers
    second += second * (second + 1) // 2 <= numbers
    return np.column_stack([numbers - second * (second - 1) // 2, second])
