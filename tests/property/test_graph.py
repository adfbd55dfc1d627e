"""What holds for every similarity graph, however it was built."""

import networkx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from flockwise.errors import GraphError
from flockwise.graph import SimilarityGraph, angular_graph, knn_graph, random_graph, rewired

quick = settings(max_examples=60, deadline=None)
positive = st.floats(1e-300, 1e300, allow_subnormal=False)


@st.composite
def graphs(draw, most_agents=12):
    n_agents = draw(st.integers(1, most_agents))
    pairs = [(one, other) for other in range(n_agents) for one in range(other)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    weights = draw(st.lists(positive, min_size=len(edges), max_size=len(edges)))
    flips = draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    listed = [edge[::-1] if flip else edge for edge, flip in zip(edges, flips, strict=True)]
    return SimilarityGraph.from_edges(n_agents, listed, weights)


# Few different values: repeated vectors and tied distances are the hard cases.
vectors = hnp.arrays(
    float,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=14),
    elements=st.integers(-3, 3).map(float) | st.floats(-3, 3, width=16),
)


def assert_sound(graph):
    dense = graph.to_scipy().toarray()
    assert (dense == dense.T).all()
    assert (np.diag(dense) == 0).all()
    assert np.isfinite(graph.weights).all()
    assert (graph.weights > 0).all()
    np.testing.assert_allclose(graph.degrees, dense.sum(axis=1), rtol=1e-12)
    assert graph.n_edges == np.count_nonzero(np.triu(dense))
    for agent in range(graph.n_agents):
        neighbors, weights = graph.neighbors_of(agent)
        assert (np.diff(neighbors) > 0).all()
        assert (dense[agent, neighbors] == weights).all()
    assert (graph.isolated == np.flatnonzero(dense.sum(axis=1) == 0)).all()


def assert_same(one, other):
    for part in ("offsets", "neighbors", "weights"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


@quick
@given(graphs())
def test_every_graph_is_sound_and_survives_every_conversion(graph):
    assert_sound(graph)
    assert_same(SimilarityGraph.from_scipy(graph.to_scipy()), graph)
    assert_same(SimilarityGraph.from_scipy(graph.to_scipy().toarray()), graph)
    assert_same(SimilarityGraph.from_networkx(graph.to_networkx()), graph)
    assert networkx.number_connected_components(graph.to_networkx()) == graph.components.max() + 1


@quick
@given(graphs(), st.floats(0, 1), st.integers(0, 2**32))
def test_rewiring_keeps_the_number_of_edges_and_the_weights(graph, share, seed):
    free = graph.n_agents * (graph.n_agents - 1) // 2 - graph.n_edges
    assume(round(share * graph.n_edges) <= free)
    moved = rewired(graph, share, seed)
    assert_sound(moved)
    np.testing.assert_array_equal(np.sort(moved.weights), np.sort(graph.weights))


@quick
@given(graphs(), st.data(), st.sampled_from([-1.0, np.nan, np.inf, -np.inf]))
def test_one_bad_weight_is_always_refused(graph, data, bad):
    assume(graph.n_edges)
    matrix = graph.to_scipy().tocoo().copy()
    at = data.draw(st.integers(0, matrix.nnz - 1))
    agent, neighbor = (ends[at] for ends in matrix.coords)
    matrix.data = matrix.data.copy()
    matrix.data[at] = bad
    with pytest.raises(GraphError, match=f"agents {agent} and {neighbor}: weight {bad}"):
        SimilarityGraph.from_scipy(matrix)


@quick
@given(graphs(), st.data())
def test_one_changed_direction_is_always_refused(graph, data):
    assume(graph.n_edges)
    dense = graph.to_scipy().toarray()
    agent, neighbor = data.draw(st.sampled_from(np.argwhere(dense).tolist()))
    dense[agent, neighbor] = np.nextafter(dense[agent, neighbor], 0)
    low, high = sorted((agent, neighbor))
    with pytest.raises(GraphError, match=f"agents {low} and {high}: weight .* one way"):
        SimilarityGraph.from_scipy(dense)


@quick
@given(vectors, st.sampled_from([0.05, 0.1, 1.0, 100.0]))
def test_the_connecting_threshold_is_the_largest_one(points, gamma):
    assume(np.abs(points).max(axis=1).all())
    graph = angular_graph(points, gamma=gamma, threshold="connected")
    assert_sound(graph)
    assert graph.is_connected
    everything = angular_graph(points, gamma=gamma, threshold=0.0).to_scipy()
    weakest = graph.weights.min()
    np.testing.assert_array_equal(
        graph.to_scipy().toarray(), np.where(everything.toarray() >= weakest, everything.toarray(), 0)
    )
    stronger = sparse.csr_array(everything.multiply(everything.toarray() > weakest))
    assert not SimilarityGraph.from_scipy(stronger).is_connected


@quick
@given(vectors, st.data(), st.booleans())
def test_nearest_neighbors_follow_the_definition(points, data, as_sparse):
    """Small integers: squared distances are exact, so that ties are ties."""
    points = np.round(points)
    k = data.draw(st.integers(1, len(points) - 1))
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    expected = np.zeros(squares.shape)
    near = np.argsort(squares, axis=1, kind="stable")[:, :k]
    expected[np.arange(len(points))[:, None], near] = 1
    graph = knn_graph(sparse.csr_array(points) if as_sparse else points, k, metric="euclidean")
    assert_sound(graph)
    np.testing.assert_array_equal(graph.to_scipy().toarray(), np.maximum(expected, expected.T))


@quick
@given(st.integers(1, 40), st.data(), st.integers(0, 2**32))
def test_random_graphs_are_sound_and_keep_to_their_degree(n_agents, data, seed):
    degree = data.draw(st.integers(0, n_agents - 1))
    graph = random_graph(n_agents, degree, seed)
    assert_sound(graph)
    assert graph.neighbor_counts.max() <= degree
    assert degree < 2 or graph.is_connected
