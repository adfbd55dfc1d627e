import pickle

import networkx
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from flockwise.errors import GraphError
from flockwise.graph import GraphSource, SimilarityGraph

TRIANGLE_AND_ONE = np.array([[0, 2, 1, 0], [2, 0, 3, 0], [1, 3, 0, 0], [0, 0, 0, 0]], dtype=float)


def triangle_and_one():
    return SimilarityGraph.from_scipy(TRIANGLE_AND_ONE)


def test_layout_is_agent_after_agent_with_ascending_neighbors():
    graph = triangle_and_one()
    assert graph.offsets.tolist() == [0, 2, 4, 6, 6]
    assert graph.neighbors.tolist() == [1, 2, 0, 2, 0, 1]
    assert graph.weights.tolist() == [2, 1, 2, 3, 1, 3]
    assert (graph.offsets.dtype, graph.neighbors.dtype, graph.weights.dtype) == (np.int64, np.int32, float)


def test_quantities_of_a_small_graph():
    graph = triangle_and_one()
    assert (graph.n_agents, graph.n_edges) == (4, 3)
    assert graph.degrees.tolist() == [3, 5, 4, 0]
    assert graph.neighbor_counts.tolist() == [2, 2, 2, 0]
    assert graph.isolated.tolist() == [3]
    assert graph.components.tolist() == [0, 0, 0, 1]
    assert not graph.is_connected
    neighbors, weights = graph.neighbors_of(1)
    assert (neighbors.tolist(), weights.tolist()) == ([0, 2], [2, 3])
    with pytest.raises(IndexError):
        graph.neighbors_of(4)


def test_laplacian_is_that_of_scipy():
    np.testing.assert_array_equal(
        triangle_and_one().laplacian().toarray(), csgraph.laplacian(TRIANGLE_AND_ONE)
    )


def test_components_are_those_of_networkx():
    theirs = networkx.gnp_random_graph(60, 0.02, seed=3)
    ours = SimilarityGraph.from_networkx(theirs)
    found = {frozenset(np.flatnonzero(ours.components == label)) for label in set(ours.components)}
    assert found == {frozenset(component) for component in networkx.connected_components(theirs)}
    assert len(found) > 2


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
def test_every_scipy_format_gives_the_same_graph(form):
    graph = SimilarityGraph.from_scipy(sparse.csr_array(TRIANGLE_AND_ONE).asformat(form))
    np.testing.assert_array_equal(graph.to_scipy().toarray(), TRIANGLE_AND_ONE)


def test_unsorted_csr_is_sorted():
    entries = ([1.0, 2.0, 2.0, 1.0], [2, 1, 0, 0], [0, 2, 3, 4])
    graph = SimilarityGraph.from_scipy(sparse.csr_array(entries, shape=(3, 3)))
    assert graph.neighbors.tolist() == [1, 2, 0, 0]
    assert graph.weights.tolist() == [2, 1, 2, 1]


def test_the_arrays_are_read_only_and_independent_of_the_input():
    matrix = sparse.csr_array(TRIANGLE_AND_ONE)
    graph = SimilarityGraph.from_scipy(matrix)
    matrix.data[:] = 9
    assert graph.weights.tolist() == [2, 1, 2, 3, 1, 3]
    for array in (graph.offsets, graph.neighbors, graph.weights, graph.to_scipy().data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_zero_weights_are_no_edges():
    stored_zeros = sparse.coo_array(([0.0, 0.0, 1.0, 1.0], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
    assert SimilarityGraph.from_scipy(stored_zeros).n_edges == 1
    assert SimilarityGraph.from_edges(3, [(0, 1), (1, 2)], [0.0, 1.0]).n_edges == 1


def test_one_agent_without_any_edge_is_a_graph():
    graph = SimilarityGraph.from_edges(1, [])
    assert (graph.n_agents, graph.n_edges, graph.is_connected) == (1, 0, True)
    assert graph.degrees.tolist() == [0]


def test_a_graph_survives_pickling():
    graph = triangle_and_one()
    again = pickle.loads(pickle.dumps(graph))
    np.testing.assert_array_equal(again.to_scipy().toarray(), TRIANGLE_AND_ONE)
    assert again.source == graph.source


class TestRefusedMatrices:
    def refuse(self, matrix, match, **options):
        with pytest.raises(GraphError, match=match):
            SimilarityGraph.from_scipy(matrix, **options)

    def test_an_edge_with_two_different_weights_is_refused(self):
        self.refuse([[0, 1.5], [2.5, 0]], r"agents 0 and 1: weight 1\.5 one way and 2\.5 the other")

    def test_edge_in_one_direction_only(self):
        self.refuse([[0, 0, 0], [0, 0, 4], [0, 0, 0]], r"agents 1 and 2: weight 4\.0 one way and 0\.0")

    @pytest.mark.parametrize(("value", "shown"), [(-1.0, r"-1\.0"), (np.nan, "nan"), (np.inf, "inf")])
    @pytest.mark.parametrize("symmetrize", [None, "either", "mean"])
    def test_negative_and_non_finite_weights(self, value, shown, symmetrize):
        matrix = np.array([[0, 1, value], [1, 0, 0], [value, 0, 0]])
        self.refuse(matrix, f"agents 0 and 2: weight {shown} must be finite", symmetrize=symmetrize)

    def test_an_edge_from_an_agent_to_itself_is_refused(self):
        self.refuse(np.diag([0, 7.0]), r"agent 1 has a self-loop of weight 7\.0")

    def test_a_matrix_that_is_not_square_is_refused(self):
        self.refuse(np.ones((2, 3)), r"square, got shape \(2, 3\)")

    def test_a_matrix_of_complex_numbers_is_refused(self):
        self.refuse(np.array([[0, 1j], [1j, 0]]), "real numbers, got complex128")

    def test_unknown_way_to_symmetrize(self):
        self.refuse([[0, 1], [1, 0]], "'either', 'mean' or None, got 'max'", symmetrize="max")

    def test_repeated_entries_that_disagree(self):
        matrix = sparse.coo_array(([1.0, 2.0, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
        self.refuse(matrix, r"agents 0 and 1 have two weights, 1\.0 and 2\.0")

    def test_repeated_entries_that_agree_count_once(self):
        matrix = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
        assert SimilarityGraph.from_scipy(matrix).weights.tolist() == [1, 1]


def test_symmetrize_by_either_direction_or_by_the_mean():
    one_way = [[0, 1, 4], [3, 0, 0], [0, 0, 0]]
    either = SimilarityGraph.from_scipy(one_way, symmetrize="either").to_scipy().toarray()
    mean = SimilarityGraph.from_scipy(one_way, symmetrize="mean").to_scipy().toarray()
    assert either.tolist() == [[0, 3, 4], [3, 0, 0], [4, 0, 0]]
    assert mean.tolist() == [[0, 2, 2], [2, 0, 0], [2, 0, 0]]


@pytest.mark.parametrize(
    ("offsets", "neighbors", "weights", "match"),
    [
        ([0, 1, 3], [1, 0], [1, 1], "offsets must rise from 0"),
        ([0, 2, 1, 2], [1, 0], [1, 1], "offsets must rise from 0"),
        ([0, 1, 2], [1, 0], [1], "need as many weights"),
        ([0, 1, 2], [2, 0], [1, 1], "numbered 0 to 1"),
        ([0, 1, 2], [1, 0], [0, 0], "must be finite and positive"),
        ([0, 2, 3, 4], [2, 1, 0, 0], [1, 1, 1, 1], "agent 0: neighbors must be ascending"),
        ([0, 2, 4], [1, 1, 0, 0], [1, 1, 1, 1], "agent 0: neighbors must be ascending, each once"),
        ([0], [], [], "at least one agent"),
        ([0, 1, 2], [1.0, 0.0], [1, 1], "are integers"),
        ([[0, 1, 2]], [1, 0], [1, 1], "one-dimensional"),
    ],
)
def test_the_constructor_itself_refuses_broken_arrays(offsets, neighbors, weights, match):
    arrays = np.array(offsets), np.array(neighbors), np.array(weights, dtype=float)
    arrays = arrays if len(neighbors) else (arrays[0], arrays[1].astype(int), arrays[2])
    with pytest.raises(GraphError, match=match):
        SimilarityGraph(*arrays, GraphSource("matrix"))


class TestEdges:
    def test_edges_in_either_direction_and_listed_twice(self):
        graph = SimilarityGraph.from_edges(4, [(2, 0), (0, 2), (0, 1), (1, 2)], [1, 1, 2, 3])
        np.testing.assert_array_equal(graph.to_scipy().toarray(), TRIANGLE_AND_ONE)

    @pytest.mark.parametrize(
        ("edges", "weights", "match"),
        [
            ([(0, 1), (1, 0)], [1, 2], r"rows 1 and 2 give agents 0 and 1 two weights, 1\.0 and 2\.0"),
            ([(0, 1), (0, 1)], [0, 2], r"rows 1 and 2 give agents 0 and 1 two weights, 0\.0 and 2\.0"),
            ([(0, 1), (2, 2)], [1, 1], "row 2, agents 2 and 2: an agent cannot be its own neighbor"),
            ([(0, 1), (2, 1)], [1, -3], r"row 2, agents 1 and 2: weight -3\.0"),
            ([(0, 1)], [np.nan], "row 1, agents 0 and 1: weight nan"),
            ([(0, 1)], [np.inf], "row 1, agents 0 and 1: weight inf"),
            ([(0, 1), (0, 3)], None, r"row 2, edge \[0, 3\]: agents are numbered 0 to 2"),
            ([(-1, 1)], None, r"row 1, edge \[-1, 1\]"),
            ([(0, 1)], [1, 1], "1 edges need as many weights"),
            ([(0.0, 1.0)], None, "edges must be integers"),
            ([0, 1], None, r"shape \(k, 2\)"),
        ],
    )
    def test_bad_edges_are_refused_by_row_and_agents(self, edges, weights, match):
        with pytest.raises(GraphError, match=match):
            SimilarityGraph.from_edges(3, edges, weights)

    def test_names_make_the_message_readable(self):
        with pytest.raises(GraphError, match="row 1, agents 'anna' and 'bob': weight nan"):
            SimilarityGraph.from_edges(2, [(1, 0)], [np.nan], agent_names=["anna", "bob"])

    def test_a_graph_without_agents_is_refused(self):
        with pytest.raises(GraphError, match="got 0"):
            SimilarityGraph.from_edges(0, [])


class TestNetworkx:
    def test_integers_are_agents_whatever_order_the_nodes_came_in(self):
        theirs = networkx.Graph([(2, 0), (0, 1)])
        assert SimilarityGraph.from_networkx(theirs).neighbors_of(0)[0].tolist() == [1, 2]

    def test_names_give_the_order_of_the_agents_and_absent_ones_are_isolated(self):
        theirs = networkx.Graph()
        theirs.add_edge("bob", "anna", weight=0.5)
        graph = SimilarityGraph.from_networkx(theirs, ["anna", "carl", "bob"])
        assert graph.neighbors_of(0)[0].tolist() == [2]
        assert graph.isolated.tolist() == [1]

    def test_names_without_an_order_are_refused(self):
        with pytest.raises(GraphError, match="node 'bob' is none of the 2 agents; pass agent_names"):
            SimilarityGraph.from_networkx(networkx.Graph([("bob", "anna")]))

    def test_directed_graphs_are_refused(self):
        with pytest.raises(GraphError, match="directed"):
            SimilarityGraph.from_networkx(networkx.DiGraph([(0, 1)]))

    def test_parallel_edges_that_disagree_are_refused(self):
        theirs = networkx.MultiGraph()
        theirs.add_weighted_edges_from([(0, 1, 1.0), (0, 1, 2.0)])
        with pytest.raises(GraphError, match="two weights"):
            SimilarityGraph.from_networkx(theirs)


class TestSource:
    @pytest.mark.parametrize("kind", ["models", "targets", "ratings"])
    def test_private_kinds_cannot_be_declared_public(self, kind):
        assert GraphSource(kind, private=False).status == "private"

    @pytest.mark.parametrize("kind", ["profiles", "random", "complete"])
    def test_public_kinds_are_private_only_when_told(self, kind):
        assert GraphSource(kind).status == "public"
        assert GraphSource(kind, private=True).status == "private"

    @pytest.mark.parametrize("kind", ["vectors", "edges", "matrix"])
    def test_other_kinds_are_of_unknown_origin_until_someone_says_what_they_are(self, kind):
        assert GraphSource(kind).status == "unknown"
        assert not GraphSource(kind).origin.is_covered
        assert GraphSource(kind, private=False).status == "public"
        assert GraphSource(kind, private=True).status == "private"

    def test_a_matrix_taken_out_of_a_graph_made_from_models_does_not_become_public(self):
        graph = SimilarityGraph.from_scipy(TRIANGLE_AND_ONE, "models")
        assert not SimilarityGraph.from_scipy(graph.to_scipy()).source.origin.is_covered

    def test_describe_says_that_it_is_derived_from_private_data(self):
        graph = SimilarityGraph.from_scipy(TRIANGLE_AND_ONE, "models")
        assert "derived from private data" in graph.describe()
        assert "taken as public" in SimilarityGraph.from_scipy(TRIANGLE_AND_ONE, "profiles").describe()


def test_describe_gives_size_degrees_isolated_agents_and_components():
    text = triangle_and_one().describe(["anna", "bob", "carl", "dora"])
    assert "4 agents with 3 edges" in text
    assert "Neighbors per agent: 0 to 2, mean 1.5." in text
    assert "Degrees (sums of weights): 0 to 5, mean 3." in text
    assert "Isolated agents: 1 ('dora')." in text
    assert "Components: 2 (of 3, 1 agents)." in text


def test_describe_shows_only_the_first_few_isolated_agents():
    text = SimilarityGraph.from_edges(100, [(0, 1)]).describe()
    assert "Isolated agents: 98 (2, 3, 4, 5, 6, …)." in text
    assert "Components: 99 (of 2, 1, 1, 1, 1, … agents)." in text
