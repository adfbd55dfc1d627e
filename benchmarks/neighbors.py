"""Time and recall of a nearly exact graph of nearest neighbors: python -m benchmarks.neighbors.

Profiles have 20 columns made of a few hidden traits and some noise, as columns about people have. With as
many traits as columns nothing repeats, and the search has to look almost everywhere.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from flockwise.graph import knn_graph
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
    print(
        f"recall {measured_recall(points, given.recall):.4f} among {SAMPLE} agents, against an exact search"
    )


def measured_recall(points: np.ndarray, recall: float) -> float:
    """Of the lists that the graph is made of: its edges also join agents that are near one way alone."""
    # Others than those by which the search judges itself.
    sample = np.random.default_rng(1).choice(len(points), min(SAMPLE, len(points)), replace=False)
    near = nearest_nearly(points, NEIGHBORS, recall)
    return share_found(near[sample], _nearest_by_product(points, sample, NEIGHBORS))


if __name__ == "__main__":
    main()
