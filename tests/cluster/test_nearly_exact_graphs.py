"""`knn_graph(recall=...)` by faiss: as many of the nearest as asked for, and never an agent itself."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.neighbors import NEIGHBORS, measured_recall, profiles

from flockwise.graph import knn_graph
from flockwise.graph.approximate import nearest_nearly, share_found
from flockwise.graph.neighbors import nearest

pytestmark = pytest.mark.cluster


def scattered(n_agents: int) -> np.ndarray:
    """Profiles in which nothing repeats: a look into a few cells misses most of what is near."""
    return profiles(n_agents, 20)


def test_as_many_of_the_nearest_are_found_as_asked_for():
    points = scattered(8000)
    assert measured_recall(points, 0.01) < 0.75, "the first look finds enough, and there is nothing to test"
    for recall in (0.75, 0.9, 0.99):
        assert measured_recall(points, recall) >= recall


def test_the_graph_has_the_edges_of_an_exact_search_where_nearly_all_are_asked_for():
    points = scattered(2000)
    exact, near = (
        knn_graph(points, NEIGHBORS, metric="euclidean", recall=recall, source="profiles")
        for recall in (None, 0.999)
    )
    both = exact.to_scipy().multiply(near.to_scipy()).nnz
    assert both >= 0.99 * exact.to_scipy().nnz
    assert share_found(nearest_nearly(points, NEIGHBORS, 0.999), nearest(points, NEIGHBORS)) >= 0.99


@pytest.mark.parametrize("k", [10, 300], ids=["few", "more than a cell has"])
def test_equal_profiles_are_neighbors_and_nobody_is_its_own(k):
    points = np.tile(scattered(500), (4, 1))
    n_agents = len(points)
    near = nearest_nearly(points, k, 0.1)
    assert near.shape == (n_agents, k)
    assert near.min() >= 0
    assert near.max() < n_agents
    for agent, found in enumerate(near):
        others = found[found != agent]
        assert len(set(others)) == len(others)
        twins = (np.arange(agent % 500, n_agents, 500) != agent).sum()
        assert (others % 500 == agent % 500).sum() == twins
    graph = knn_graph(points, k, metric="euclidean", recall=0.1, source="profiles")
    tails = np.repeat(np.arange(n_agents), np.diff(graph.offsets))
    assert (tails != graph.neighbors).all()
    assert len(np.unique(tails * n_agents + graph.neighbors)) == graph.neighbors.size
