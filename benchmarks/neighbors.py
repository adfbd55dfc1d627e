"""Time and recall of a nearly exact graph of nearest neighbors: python -m benchmarks.neighbors.

Profiles have 20 columns made of a few hidden traits and some noise, as columns about people have. With as
many traits as columns nothing repeats, and the search has to look almost everywhere.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from flockwise.graph import SimilarityGraph, knn_graph
from flockwise.graph.approximate import nearest_nearly, share_found
from flockwise.graph.neighbors import _nearest_by_product

COLUMNS, SAMPLE, NEIGHBORS = 20, 500, 10


def profiles(n_agents: int, traits: int) -> np.ndarray:
    random = np.random.default_rng(0)
    hidden = random.normal(size=(n_agents, traits)) @ random.normal(size=(traits, COLUMNS))
    return hidden + 0.1 * random.normal(size=hidden.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--traits", type=int, default=5)
    parser.add_argument("--recall", type=float, default=0.95)
    given = parser.parse_args()
    points = profiles(given.agents, given.traits)
    start = time.perf_counter()
    graph = knn_graph(points, NEIGHBORS, metric="euclidean", recall=given.recall, source="profiles")
    seconds = time.perf_counter() - start
    print(f"{given.agents:,} x {COLUMNS}, {given.traits} traits: {seconds:.1f} s, {graph.n_edges:,} edges")
    lists = measured_recall(points, given.recall)
    print(f"recall among {SAMPLE} agents, against an exact search: {lists:.4f} of the lists found", end="")
    print(f", {share_linked(graph, *exact_search(points)):.4f} of the graph, which joins both ends of each")


def exact_search(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some agents, others than those by which the search judges itself, and their nearest neighbors."""
    sample = np.random.default_rng(1).choice(len(points), min(SAMPLE, len(points)), replace=False)
    return sample, _nearest_by_product(points, sample, NEIGHBORS)


def measured_recall(points: np.ndarray, recall: float) -> float:
    """Of each agent's own list of nearest neighbors, as found: which share is right."""
    sample, true = exact_search(points)
    return share_found(nearest_nearly(points, NEIGHBORS, recall)[sample], true)


def share_linked(graph: SimilarityGraph, sample: np.ndarray, true: np.ndarray) -> float:
    """Which share of the nearest neighbors are neighbors in the graph, found by either end."""
    linked = [
        np.isin(own, graph.neighbors_of(agent)[0]).mean() for agent, own in zip(sample, true, strict=True)
    ]
    return float(np.mean(linked))


if __name__ == "__main__":
    main()
