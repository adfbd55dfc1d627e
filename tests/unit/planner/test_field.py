"""Random vectors that vary along a graph."""

import numpy as np
import pytest

from flockwise import SimilarityGraph
from flockwise.graph.randomized import random_graph
from flockwise.planner.field import SmoothField

MANY = 4000


def correlations(graph):
    """Between the vectors of all pairs of agents, over many coordinates (standard error .016)."""
    vectors = SmoothField(graph).draw(MANY, np.random.default_rng(0))
    return vectors @ vectors.T / MANY


def test_neighbors_on_a_ring_are_alike_and_opposites_are_not(ring):
    found = correlations(ring(40, 3))
    assert np.diag(found) == pytest.approx(1.0, abs=0.1)
    assert found[0, 1] > 0.9
    assert found[0, 20] < -0.3


def test_groups_without_edges_between_them_share_nothing(ring):
    weights = ring(10, 2).to_scipy().toarray()
    both = np.kron(np.eye(4), weights)
    found = correlations(SimilarityGraph.from_scipy(both))
    assert found[0, 1] > 0.8
    assert abs(found[0, 10:]).max() < 0.5


def test_agents_without_neighbors_have_vectors_of_their_own():
    found = correlations(SimilarityGraph.from_edges(5, np.empty((0, 2), np.int64)))
    assert found == pytest.approx(np.eye(5), abs=0.1)


def test_a_single_edge_makes_two_opposites():
    found = correlations(SimilarityGraph.from_edges(3, np.array([[0, 1]])))
    assert found[0, 1] == pytest.approx(-1.0, abs=0.1)
    assert found[0, 2] == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("degree", [3, 6, 10, 30, 90])
@pytest.mark.parametrize("seed", range(5))
def test_a_random_graph_has_no_structure(degree, seed):
    assert not SmoothField(random_graph(100, degree, seed)).has_structure


@pytest.mark.parametrize("reach", [2, 5, 15, 30])
def test_a_ring_has_structure(ring, reach):
    assert SmoothField(ring(100, reach)).has_structure


def test_a_ring_among_random_edges_has_structure(ring):
    both = ring(100, 5).to_scipy() + random_graph(100, 3, 0).to_scipy()
    assert SmoothField(SimilarityGraph.from_scipy(both)).has_structure


def test_neither_no_edges_nor_all_edges_are_structure():
    assert not SmoothField(SimilarityGraph.from_edges(10, np.empty((0, 2), np.int64))).has_structure
    assert not SmoothField(SimilarityGraph.from_scipy(np.ones((10, 10)) - np.eye(10))).has_structure
