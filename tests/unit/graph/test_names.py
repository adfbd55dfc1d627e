"""Graphs know their agents: a problem puts them in the order of its population, or refuses them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flockwise.data import Population
from flockwise.engine import simulate
from flockwise.errors import DataError, GraphError, ObjectiveError, SimulationError
from flockwise.graph import SimilarityGraph, angular_graph, complete_graph, knn_graph, profile_graph, rewired
from flockwise.graph.kinds import GRAPHS
from flockwise.graph.source import GraphSource
from flockwise.method import CoordinateDescent, Local
from flockwise.method.start import starting_models
from flockwise.objective import Problem

NAMES = ("anna", "ben", "carl", "dora")
PROFILES = {"who": ["dora", "anna", "carl", "ben"], "age": [70, 20, 60, 22]}


def population(names=NAMES):
    count = 4 if names is None else len(names)
    targets = np.resize([1.0, -1.0], count)
    return Population.packed(np.eye(count), targets, np.arange(count + 1), agent_names=names)


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


def test_profiles_without_names_are_not_given_to_agents_with_names():
    """Row i would be agent i, whoever it is; who says that the rows are in order has named them."""
    ages = {"age": PROFILES["age"]}
    for graph in (profile_graph(ages, k=1), knn_graph(np.array([PROFILES["age"]]).T, 1, source="profiles")):
        with pytest.raises(ObjectiveError, match=r"'anna', .* does not say which row is whose"):
            Problem(population(), graph)
    problem = Problem(population(), profile_graph(ages, k=1, agent_names=PROFILES["who"]))
    assert neighbors(problem.neighbors, NAMES) == {frozenset(("anna", "ben")), frozenset(("carl", "dora"))}
    for numbered in (None, range(4)):
        assert Problem(population(numbered), profile_graph(ages, k=1)).neighbors.agent_names is None


def test_a_graph_of_other_agents_is_refused_by_name():
    graph = profile_graph(PROFILES, agent="who", k=1)
    with pytest.raises(GraphError, match="agents 'emil' are not in the graph"):
        Problem(population(("anna", "ben", "carl", "emil")), graph)
    with pytest.raises(GraphError, match="agents 'emil', 'fay' are not in the graph"):
        Problem(population((*NAMES, "emil", "fay")), graph)
    with pytest.raises(GraphError, match="agents 'dora' are in the graph and have no place"):
        Problem(population(("anna", "ben", "carl")), graph)


def test_in_order_keeps_every_weight():
    random = np.random.default_rng(0)
    weights = np.triu(random.random((4, 4)), 1)
    graph = SimilarityGraph.from_scipy(weights + weights.T, agent_names=NAMES)
    other = graph.in_order(("carl", "anna", "dora", "ben"))
    places = [2, 0, 3, 1]
    assert np.array_equal(other.to_scipy().toarray(), graph.to_scipy().toarray()[np.ix_(places, places)])
    assert other.agent_names == ("carl", "anna", "dora", "ben")


def test_graphs_keep_the_agents_names_whoever_builds_them():
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


def shuffled(named):
    """The same population's frame of vectors, its rows in reverse order."""
    vectors = np.random.default_rng(3).normal(size=(4, 3))
    frame = pd.DataFrame(vectors, index=list(NAMES), columns=["a", "b", "c"])
    return vectors, frame[::-1] if named else frame[::-1].reset_index(drop=True)


KERNELS = {
    "nearest": lambda vectors, **said: knn_graph(vectors, 1, **said),
    "angular": lambda vectors, **said: angular_graph(vectors, threshold=0, **said),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_frame_with_an_index_of_agents_gives_the_right_neighbors_in_any_order(kernel):
    vectors, frame = shuffled(named=True)
    wanted = KERNELS[kernel](vectors, agent_names=NAMES)
    made = Problem(population(), KERNELS[kernel](frame)).neighbors
    np.testing.assert_allclose(made.to_scipy().toarray(), wanted.to_scipy().toarray(), rtol=1e-12)
    with pytest.raises(
        DataError, match=r"agent_names says that the rows are of 'anna', .* they are of 'dora'"
    ):
        KERNELS[kernel](frame, agent_names=NAMES)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_without_names_are_not_given_to_agents_with_names(kernel):
    vectors, frame = shuffled(named=False)
    for rows in (vectors, frame, pa.Table.from_pandas(frame)):
        graph = KERNELS[kernel](rows)
        with pytest.raises(ObjectiveError, match=r"'anna', .* does not say which row is whose"):
            Problem(population(), graph)
        assert Problem(population(None), graph).neighbors.agent_names is None


def test_a_column_of_agents_is_not_compared():
    _, frame = shuffled(named=False)
    with pytest.raises(DataError, match=r"make it the index with set_index\('agent'\)"):
        knn_graph(frame.assign(agent=[3, 2, 1, 0]), 1)


def test_a_matrix_in_a_frame_names_its_agents():
    weights = np.triu(np.random.default_rng(0).random((4, 4)), 1)
    frame = pd.DataFrame(weights + weights.T, index=list(NAMES), columns=list(NAMES))
    backward = frame.iloc[::-1, ::-1]
    made = Problem(population(), SimilarityGraph.from_scipy(backward)).neighbors
    assert np.array_equal(made.to_scipy().toarray(), frame.to_numpy())
    with pytest.raises(GraphError, match="not the same agents in the same order"):
        SimilarityGraph.from_scipy(frame.iloc[::-1])


def test_the_models_of_a_run_know_their_agents(tmp_path):
    """As an array, in a frame and in a file: the graph of another order of the agents is the same."""
    run = simulate(Problem(population()), Local(), progress=False)
    run.to_parquet(tmp_path / "models.parquet")
    other = population(NAMES[::-1])
    forms = (run.models, run.to_pandas(), pq.read_table(tmp_path / "models.parquet"))
    found = [neighbors(Problem(other, knn_graph(rows, 1)).neighbors, NAMES[::-1]) for rows in forms]
    assert found == [neighbors(knn_graph(np.asarray(run.models), 1), NAMES)] * 3
    # What is made of them has rows of anybody.
    assert knn_graph(run.models[::-1], 1).agent_names is None


def test_a_start_is_put_in_the_order_of_the_agents_or_refused():
    problem = Problem(population())
    run, other = (
        simulate(problem, Local(), progress=False),
        Problem(population(NAMES[::-1]), complete_graph(4)),
    )

    def begun(start):
        return simulate(other, CoordinateDescent(start), ticks=1, engine="reference", record_every=None)

    # One tick moves one agent; the others are where they began.
    wanted = begun(np.asarray(run.models)[::-1]).models
    for start in (run.models, run.to_pandas()):
        assert np.array_equal(begun(start).models, wanted)
    with pytest.raises(SimulationError, match="start: agent 'emil' has no row"):
        starting_models(Problem(population(("emil", *NAMES[1:]))), run.models)
    with pytest.raises(SimulationError, match="does not say whose row is whose"):
        starting_models(problem, run.to_pandas().reset_index(drop=True))
    with pytest.raises(SimulationError, match="start has the columns 'x'"):
        starting_models(problem, run.to_pandas().rename(columns={run.feature_names[0]: "x"}))
