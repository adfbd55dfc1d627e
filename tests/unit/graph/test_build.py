import networkx
import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import NearestNeighbors

from flockwise.errors import FlockwiseWarning, GraphError
from flockwise.graph import angular_graph, build, knn_graph, neighbors


def normal(n_agents, dimension, seed=0):
    return np.random.default_rng(seed).normal(size=(n_agents, dimension))


def angular_kernel(vectors, gamma):
    """The definition, pair by pair, without blocks."""
    kernel = np.exp((cosine_similarity(vectors) - 1) / gamma)
    np.fill_diagonal(kernel, 0)
    return kernel


class TestAngular:
    @pytest.mark.parametrize("block", [1, 70, 1 << 22])
    def test_equals_the_definition_whatever_the_blocks(self, monkeypatch, block):
        monkeypatch.setattr(build, "WEIGHTS_PER_BLOCK", block)
        vectors = normal(30, 4)
        kernel = angular_kernel(vectors, 0.3)
        kernel[kernel < 0.05] = 0
        ours = angular_graph(vectors, gamma=0.3, threshold=0.05).to_scipy().toarray()
        np.testing.assert_allclose(ours, kernel, rtol=1e-12)

    def test_threshold_zero_keeps_every_pair(self):
        assert angular_graph(normal(20, 3), threshold=0.0).n_edges == 190

    def test_a_weight_equal_to_the_threshold_stays(self):
        assert angular_graph([[1, 0], [2, 0], [0, 1]], threshold=1).n_edges == 1

    @pytest.mark.parametrize(("dimension", "seed"), [(2, 0), (2, 1), (5, 2), (50, 3)])
    def test_connected_is_the_weakest_edge_of_the_maximum_spanning_tree(self, dimension, seed):
        vectors = normal(80, dimension, seed)
        graph = angular_graph(vectors, threshold="connected")
        kernel = angular_kernel(vectors, 0.1)
        tree = networkx.maximum_spanning_tree(networkx.from_numpy_array(kernel))
        weakest = min(weight for _, _, weight in tree.edges(data="weight"))
        assert graph.is_connected
        assert graph.weights.min() == pytest.approx(weakest, rel=1e-12)
        assert graph.n_edges == np.count_nonzero(kernel >= weakest * (1 - 1e-12)) / 2

    def test_connected_tells_nearly_equal_weights_apart(self):
        cosines = np.array([[1, 0.5, 0.5 - 1e-9], [0.5, 1, 0.5], [0.5 - 1e-9, 0.5, 1]])
        graph = angular_graph(np.linalg.cholesky(cosines), threshold="connected")
        # The two stronger edges may differ by rounding; the third, weaker by 1e-8, connects nothing.
        assert graph.neighbor_counts.tolist() == [1, 2, 1]

    def test_connected_with_equal_vectors_and_with_one_agent(self):
        assert angular_graph(np.ones((4, 3)), threshold="connected").n_edges == 6
        assert angular_graph(np.ones((1, 3)), threshold="connected").n_edges == 0

    def test_connected_is_refused_where_the_weights_vanish(self):
        with pytest.raises(GraphError, match="use a larger gamma"):
            angular_graph([[1, 0], [-1, 0]], gamma=1e-3, threshold="connected")

    def test_tiny_and_huge_vectors_have_directions_too(self):
        vectors = normal(10, 3)
        scales = 10.0 ** np.linspace(-200, 200, 10)[:, None]
        ours = angular_graph(vectors * scales, threshold=0).weights
        np.testing.assert_allclose(ours, angular_graph(vectors, threshold=0).weights, rtol=1e-10)

    @pytest.mark.parametrize(
        ("vectors", "options", "match"),
        [
            ([[1, 0], [0, 0]], {}, "agent 1: its vector is zero"),
            ([[1, 0], [0, np.nan]], {}, "agent 1, column 1: value nan is not finite"),
            ([1, 2], {}, "one row per agent"),
            ([[1, 0], [0, 1]], {"gamma": 0}, "gamma must be positive and finite, got 0"),
            ([[1, 0], [0, 1]], {"threshold": -1}, "threshold must be .* got -1"),
            ([[1, 0], [0, 1]], {"threshold": np.nan}, "threshold must be .* got nan"),
            ([[1, 0], [0, 1]], {"threshold": "loose"}, "threshold must be .* got 'loose'"),
        ],
    )
    def test_bad_input_is_refused(self, vectors, options, match):
        with pytest.raises(GraphError, match=match):
            angular_graph(vectors, **options)

    def test_a_graph_of_the_angular_kernel_says_what_it_was_built_from(self):
        assert angular_graph(normal(5, 2)).source.status == "unknown"
        source = angular_graph(normal(5, 2), source="targets").source
        assert (source.kind, source.private) == ("targets", True)
        assert source.description == "angular kernel, gamma 0.1, threshold 0.01"


def either_way(near):
    """Links from scikit-learn's list of neighbors."""
    linked = np.zeros((len(near), len(near)), dtype=bool)
    linked[np.arange(len(near))[:, None], near] = True
    return linked | linked.T


def theirs(vectors, k, metric):
    return either_way(
        NearestNeighbors(n_neighbors=k, metric=metric, algorithm="brute")
        .fit(vectors)
        .kneighbors(return_distance=False)
    )


@pytest.fixture(params=["tree", "product"])
def search(request, monkeypatch):
    """Both ways to search a dense table, in blocks small enough to need several."""
    monkeypatch.setattr(neighbors, "MOST_TREE_COORDINATES", 1000 if request.param == "tree" else 0)
    monkeypatch.setattr(neighbors, "SCORES_PER_BLOCK", 1000)
    return request.param


class TestNearest:
    @pytest.mark.parametrize("metric", ["cosine", "euclidean"])
    @pytest.mark.parametrize(("dimension", "k"), [(3, 1), (3, 10), (30, 7)])
    def test_the_nearest_neighbors_are_those_of_scikit_learn(self, search, metric, dimension, k):
        vectors = normal(150, dimension) + 1
        ours = knn_graph(vectors, k, metric=metric).to_scipy().toarray()
        np.testing.assert_array_equal(ours > 0, theirs(vectors, k, metric))
        assert set(np.unique(ours)) == {0, 1}

    @pytest.mark.parametrize("metric", ["cosine", "euclidean"])
    def test_sparse_equals_scikit_learn(self, metric):
        ratings = sparse.random_array((120, 40), density=0.3, rng=np.random.default_rng(1), format="csr")
        ours = knn_graph(ratings, 6, metric=metric).to_scipy().toarray()
        np.testing.assert_array_equal(ours > 0, theirs(ratings.toarray(), 6, metric))

    def test_a_large_common_offset_does_not_matter(self, search):
        vectors = np.round(normal(100, 4) * 2**20) / 2**20
        near = knn_graph(vectors, 5, metric="euclidean").neighbors
        far = knn_graph(vectors + 2**20, 5, metric="euclidean").neighbors
        np.testing.assert_array_equal(near, far)

    def test_ties_go_to_the_lower_index(self, search):
        line = np.arange(6.0)[:, None] * [[1, 0]]
        found = neighbors.nearest(line, 1)
        assert found.ravel().tolist() == [1, 0, 1, 2, 3, 4]

    def test_copies_of_a_vector_go_to_the_lower_index(self, search):
        copies = np.repeat(normal(2, 13), 20, axis=0)
        found = np.sort(neighbors.nearest(copies, 3), axis=1)
        assert found[:5].tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2]]
        assert (found[24:40] == [20, 21, 22]).all()

    @pytest.mark.parametrize("dense", [True, False])
    def test_profiles_of_few_categories_follow_the_definition(self, search, dense):
        generator = np.random.default_rng(5)
        vectors = generator.integers(0, 3, size=(90, 4)).astype(float)
        squares = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)  # integers: exact, with many ties
        np.fill_diagonal(squares, np.inf)
        near = np.argsort(squares, axis=1, kind="stable")[:, :5]
        graph = knn_graph(vectors if dense else sparse.csr_array(vectors), 5, metric="euclidean")
        np.testing.assert_array_equal(graph.to_scipy().toarray() > 0, either_way(near))

    def test_everyone_may_be_a_neighbor_of_everyone(self, search):
        assert knn_graph(normal(12, 3), 11).n_edges == 66

    @pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("metric", ["cosine", "euclidean"])
    def test_weights_may_be_those_of_the_angular_kernel(self, as_given, metric):
        vectors = normal(60, 5)
        graph = knn_graph(as_given(vectors), 4, metric=metric, weights="angular", gamma=0.5)
        kernel = np.where(theirs(vectors, 4, metric), angular_kernel(vectors, 0.5), 0)
        np.testing.assert_allclose(graph.to_scipy().toarray(), kernel, rtol=1e-12)

    @pytest.mark.parametrize(
        ("vectors", "options", "match"),
        [
            (np.eye(3), {"k": 3}, "k must be at least 1 and below the number of agents, 3; got 3"),
            (np.eye(3), {"k": 0}, "got 0"),
            (np.diag([1.0, 1, np.inf]), {"k": 1}, "agent 2, column 2: value inf"),
            (sparse.csr_array(np.diag([1.0, 1, np.nan])), {"k": 1}, "agent 2, column 2: value nan"),
            (np.eye(3), {"k": 1, "metric": "cityblock"}, "metric must be one of cosine, euclidean"),
            (np.eye(3), {"k": 1, "weights": "heat"}, "weights must be one of binary, angular"),
            (np.eye(3), {"k": 1, "gamma": -1}, "gamma must be positive"),
            (np.eye(3) * 1e200, {"k": 1, "metric": "euclidean"}, "too large to compute distances"),
        ],
    )
    def test_bad_input_is_refused(self, vectors, options, match):
        with pytest.raises(GraphError, match=match):
            knn_graph(vectors, **options)

    @pytest.mark.parametrize("weights", ["binary", "angular"])
    @pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array])
    def test_an_agent_with_a_vector_of_zeros_gets_no_neighbors_and_changes_nothing_else(
        self, as_given, weights
    ):
        vectors = normal(20, 3)
        with_zeros = np.insert(vectors, [4, 11], 0.0, axis=0)
        kept = np.flatnonzero(with_zeros.any(axis=1))
        names = [f"agent {number}" for number in range(22)]
        with pytest.warns(FlockwiseWarning, match="agent 'agent 4', 'agent 12': a vector of zeros"):
            ours = knn_graph(as_given(with_zeros), 3, weights=weights, agent_names=names)
        assert ours.isolated.tolist() == [4, 12]
        expected = knn_graph(as_given(vectors), 3, weights=weights).to_scipy().toarray()
        np.testing.assert_array_equal(ours.to_scipy().toarray()[np.ix_(kept, kept)], expected)

    def test_agents_without_a_direction_are_no_neighbors_to_choose_from(self):
        with (
            pytest.warns(FlockwiseWarning, match="agent 1: a vector of zeros"),
            pytest.raises(GraphError, match="below the number of agents, 2; got 2"),
        ):
            knn_graph(np.diag([1.0, 0, 1]), 2)

    def test_zero_vectors_have_euclidean_neighbors(self):
        assert knn_graph(np.diag([1.0, 0, 1]), 1, metric="euclidean").neighbor_counts.min() == 1

    def test_a_graph_of_nearest_neighbors_says_what_it_was_built_from(self):
        source = knn_graph(np.eye(3), 1, source="ratings").source
        assert source.private
        assert source.description == "1 nearest neighbors, cosine, binary weights"


def test_vectors_that_are_all_zero_are_all_equally_near():
    graph = knn_graph(np.zeros((6, 2)), 2, metric="euclidean")
    assert graph.n_agents == 6
    assert not graph.isolated.size
