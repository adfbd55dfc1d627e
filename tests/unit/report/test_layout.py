"""Positions: those who resemble each other are close, and nothing falls together."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.spatial.distance import pdist

from flockwise.graph import SimilarityGraph
from flockwise.report.layout import graph_layout, ring_layout


@pytest.mark.parametrize("turned", [False, True])
def test_the_ring_keeps_the_angles_between_targets_in_a_plane(turned):
    generator = np.random.default_rng(0)
    targets = np.zeros((20, 5))
    targets[:, :2] = generator.normal(size=(20, 2))
    if turned:
        targets = targets @ np.linalg.qr(generator.normal(size=(5, 5)))[0]
    positions = ring_layout(targets)
    assert positions is not None

    def cosines(vectors):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit @ unit.T

    np.testing.assert_allclose(cosines(positions), cosines(targets), atol=1e-9)


def test_targets_that_fill_space_have_no_ring():
    assert ring_layout(np.random.default_rng(0).normal(size=(20, 3))) is None


def test_neighbors_are_closer_than_strangers():
    graph = SimilarityGraph.from_networkx(nx.random_regular_graph(4, 60, seed=1))
    positions = graph_layout(graph)
    agents = np.repeat(np.arange(60), graph.neighbor_counts)
    linked = np.linalg.norm(positions[agents] - positions[graph.neighbors], axis=1)
    assert linked.mean() < 0.7 * pdist(positions).mean()
    assert pdist(positions).min() > 0


def test_components_of_a_graph_are_drawn_apart():
    pieces = nx.disjoint_union_all(
        [nx.complete_graph(9), nx.cycle_graph(5), nx.path_graph(2), nx.empty_graph(3)]
    )
    graph = SimilarityGraph.from_networkx(pieces)
    positions = graph_layout(graph)
    assert np.isfinite(positions).all()
    boxes = [positions[graph.components == label] for label in np.unique(graph.components)]
    for first, one in enumerate(boxes):
        for other in boxes[first + 1 :]:
            gap = np.maximum(one.min(axis=0) - other.max(axis=0), other.min(axis=0) - one.max(axis=0))
            assert gap.max() > 0


def test_the_same_graph_is_drawn_the_same():
    graph = SimilarityGraph.from_networkx(nx.random_regular_graph(4, 30, seed=2))
    np.testing.assert_array_equal(graph_layout(graph), graph_layout(graph))
