"""Graphs know their agents: a problem puts them in the order of its population, or refuses them."""

from __future__ import annotations

import numpy as np
import pytest

from flockwise.data import Population
from flockwise.errors import DataError, GraphError
from flockwise.graph import SimilarityGraph, angular_graph, complete_graph, knn_graph, profile_graph, rewired
from flockwise.graph.kinds import GRAPHS
from flockwise.graph.source import GraphSource
from flockwise.objective import Problem

NAMES = ("anna", "ben", "carl", "dora")
PROFILES = {"who": ["dora", "anna", "carl", "ben"], "age": [70, 20, 60, 22]}


def population(names=NAMES):
    return Population.packed(np.eye(4), np.array([1.0, -1, 1, -1]), np.arange(5), agent_names=names)


def neighbors(graph, names):
    pairs = graph.to_scipy().tocoo()
    return {frozenset((names[i], names[j])) for i, j in zip(*pairs.coords, strict=True)}


def test_shuffled_profiles_give_the_right_neighbors_without_a_word_about_their_order():
    """By age: anna and ben, carl and dora; the rows of the table are in another order than the agents."""
    problem = Problem(population(), profile_graph(PROFILES, agent="who", k=1))
    assert neighbors(problem.neighbors, NAMES) == {frozenset(("anna", "ben")), frozenset(("carl", "dora"))}


def test_profiles_with_names_that_nobody_mentions_are_refused():
    """Taken as one more thing to compare, row i would be agent i, whoever it is."""
    profiles = {"agent": PROFILES["who"], "age": PROFILES["age"]}
    with pytest.raises(DataError, match="say agent='agent'"):
        profile_graph(profiles, k=1)
    with pytest.raises(DataError, match="say agent='agent'"):
        profile_graph(profiles, ["age"], k=1)


def test_a_graph_of_other_agents_is_refused_by_name():
    graph = profile_graph(PROFILES, agent="who", k=1)
    with pytest.raises(GraphError, match="agent 'emil' is not in the graph"):
        Problem(population(("anna", "ben", "carl", "emil")), graph)


def test_in_order_keeps_every_weight():
    random = np.random.default_rng(0)
    weights = np.triu(random.random((4, 4)), 1)
    graph = SimilarityGraph.from_scipy(weights + weights.T, agent_names=NAMES)
    other = graph.in_order(("carl", "anna", "dora", "ben"))
    places = [2, 0, 3, 1]
    assert np.array_equal(other.to_scipy().toarray(), graph.to_scipy().toarray()[np.ix_(places, places)])
    assert other.agent_names == ("carl", "anna", "dora", "ben")


def test_builders_carry_names():
    vectors = np.random.default_rng(1).normal(size=(4, 2))
    edges = SimilarityGraph.from_edges(4, [[0, 1], [2, 3]], agent_names=NAMES)
    graphs = [
        angular_graph(vectors, threshold=0, agent_names=NAMES),
        knn_graph(vectors, 1, agent_names=NAMES),
        rewired(edges, 0.5, seed=0),
    ]
    assert all(graph.agent_names == NAMES for graph in graphs)


def test_names_have_to_be_one_for_each_agent():
    with pytest.raises(GraphError, match="2 agent_names for 3 agents"):
        SimilarityGraph.from_scipy(np.ones((3, 3)) - np.eye(3), agent_names=["anna", "ben"])


def test_everyone_is_a_neighbor_of_everyone_in_a_complete_graph_and_it_is_public():
    graph = complete_graph(5)
    assert (graph.n_edges, graph.neighbor_counts.tolist()) == (10, [4] * 5)
    assert graph.source.origin.is_covered


@pytest.mark.parametrize("kind", list(GRAPHS), ids=lambda kind: kind.name)
def test_every_registered_kind_of_graph_makes_a_valid_graph(kind):
    """Each kind either compares vectors or needs the number of agents alone."""
    graph = kind()
    if hasattr(graph, "of_vectors"):
        vectors = np.random.default_rng(2).normal(size=(30, 3))
        made = graph.of_vectors(vectors, GraphSource("profiles"), None)
    else:
        made = graph.of_agents(30, 0)
    assert made.n_agents == 30
    assert made.n_edges > 0
    assert made.source.origin.is_covered
