import numpy as np
import pytest
from scipy import sparse

from flockwise.errors import GraphError
from flockwise.graph import SimilarityGraph, random_graph, randomized, rewired


@pytest.mark.parametrize("degree", [0, 1, 2, 5, 10])
def test_every_agent_gets_nearly_the_wanted_neighbors(degree):
    graph = random_graph(2001, degree, seed=1)
    assert graph.neighbor_counts.max() == degree
    # Two rings share an edge with chance about 2/n: a few of 10 000 edges at most are lost.
    assert graph.neighbor_counts.mean() > degree * 0.99 - 0.01
    assert (graph.weights == 1).all()
    assert graph.is_connected == (degree >= 2)


def test_neighbors_are_random_and_follow_the_seed():
    first, again, other = (random_graph(500, 6, seed).neighbors.tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert not random_graph(10, 2, 0).source.private


@pytest.mark.parametrize(("n_agents", "degree"), [(5, 5), (5, -1), (0, 0)])
def test_impossible_degrees_are_refused(n_agents, degree):
    with pytest.raises(GraphError, match=f"got {degree}"):
        random_graph(n_agents, degree, 0)


def weighted_ring(n_agents):
    edges = [(agent, (agent + 1) % n_agents) for agent in range(n_agents)]
    return SimilarityGraph.from_edges(n_agents, edges, np.arange(1.0, n_agents + 1), source="models")


@pytest.mark.parametrize("share", [0, 0.25, 1])
def test_rewired_moves_exactly_the_share_and_keeps_the_weights(share):
    graph = weighted_ring(40)
    moved = rewired(graph, share, seed=2)
    kept = graph.to_scipy().multiply(moved.to_scipy() > 0)
    assert sparse.csr_array(kept).count_nonzero() == 2 * (40 - round(40 * share))
    np.testing.assert_array_equal(np.sort(moved.weights), np.sort(graph.weights))


def test_edges_that_stay_keep_their_own_weight():
    graph = weighted_ring(30)
    before, after = graph.to_scipy().toarray(), rewired(graph, 0.5, seed=0).to_scipy().toarray()
    stayed = (before > 0) & (after > 0)
    assert stayed.sum() == 30
    assert (before[stayed] == after[stayed]).all()


def test_rewired_stays_private_and_says_what_happened():
    source = rewired(weighted_ring(10), 0.2, seed=0).source
    assert (source.kind, source.private) == ("models", True)
    assert source.description == "20% of the edges rewired, seed 0"


def test_new_edges_are_spread_over_all_free_pairs():
    """χ² over the 9 free pairs of a ring of 6 at its 99.9 % quantile: 1 false alarm in 1000."""
    ring = weighted_ring(6)
    counts = np.zeros((6, 6))
    for seed in range(600):
        counts += (rewired(ring, 1 / 6, seed).to_scipy().toarray() > 0) & (ring.to_scipy().toarray() == 0)
    free = counts[np.triu(ring.to_scipy().toarray() == 0, k=1)]
    assert free.sum() == 600
    assert ((free - 600 / 9) ** 2 / (600 / 9)).sum() < 26.12


def test_a_nearly_complete_graph_uses_up_its_last_free_pairs():
    almost = np.ones((5, 5)) - np.eye(5)
    almost[0, 1] = almost[1, 0] = 0
    graph = SimilarityGraph.from_scipy(almost)
    assert rewired(graph, 1 / 9, seed=0).to_scipy().toarray()[0, 1] == 1
    with pytest.raises(GraphError, match="2 edges cannot move: only 1 pairs"):
        rewired(graph, 2 / 9, seed=0)


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan])
def test_impossible_shares_are_refused(share):
    with pytest.raises(GraphError, match="share must be between 0 and 1"):
        rewired(weighted_ring(5), share, 0)


def test_pairs_are_numbered_one_to_one_up_to_the_largest_graph():
    pairs = np.column_stack(np.tril_indices(60, -1))[:, ::-1].astype(np.int64)
    assert randomized._pair_number(pairs).tolist() == list(range(len(pairs)))
    large = np.array([[0, 2**31 - 1], [2**31 - 3, 2**31 - 2], [2**31 - 2, 2**31 - 1], [0, 94906267]])
    for known in (pairs, large):
        np.testing.assert_array_equal(randomized._numbered_pair(randomized._pair_number(known)), known)
