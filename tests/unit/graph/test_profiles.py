import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from flockwise.errors import DataError, GraphError
from flockwise.graph import angular_graph, knn_graph, profile_graph, profile_vectors

COLUMNS = {
    "age": [20, 30, 40, 50],
    "region": ["north", "south", "north", "east"],
    "member": [True, False, True, True],
}
EXPECTED = np.column_stack(
    [
        (np.array(COLUMNS["age"]) - 35) / np.sqrt(125),
        [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]],
        [[1, 0], [0, 1], [1, 0], [1, 0]],
    ]
)


@pytest.mark.parametrize("as_given", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_numbers_are_standardised_and_text_is_one_hot(as_given):
    np.testing.assert_allclose(profile_vectors(as_given(COLUMNS)), EXPECTED)


def test_pandas_categories_are_text():
    frame = pd.DataFrame(COLUMNS).astype({"region": "category"})
    by_category = profile_vectors(frame, ["region"])
    assert ((by_category @ by_category.T) == (EXPECTED[:, 1:4] @ EXPECTED[:, 1:4].T)).all()


def test_arrays_and_chosen_columns():
    array = np.array([[1.0, 5, 1], [2, 5, 0], [3, 5, 0]])
    expected = (array[:, :1] - 2) / np.sqrt(2 / 3)
    np.testing.assert_allclose(profile_vectors(array, ["0"]), expected)
    assert (profile_vectors(array)[:, 1] == 0).all()


def test_the_graph_is_that_of_the_vectors_and_public():
    graph = profile_graph(COLUMNS, k=1)
    np.testing.assert_array_equal(graph.neighbors, knn_graph(EXPECTED, 1, metric="euclidean").neighbors)
    assert not graph.source.private
    assert graph.source.description == "columns age, region, member; 1 nearest neighbors, euclidean"


def test_ten_neighbors_by_default():
    table = np.random.default_rng(0).normal(size=(40, 3))
    assert profile_graph(table).neighbor_counts.min() == 10


def test_gamma_asks_for_the_angular_kernel():
    graph = profile_graph(COLUMNS, gamma=0.5, threshold="connected")
    np.testing.assert_allclose(
        graph.weights, angular_graph(EXPECTED, gamma=0.5, threshold="connected").weights
    )
    assert not graph.source.private


def test_rows_are_brought_into_the_order_of_the_agents():
    named = {"who": ["carl", "anna", "bob"], "age": [30, 10, 29]}
    graph = profile_graph(named, agent="who", agent_names=["anna", "bob", "carl"], k=1)
    assert graph.to_scipy().toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert graph.source.description.startswith("columns age;")


@pytest.mark.parametrize(
    ("profiles", "options", "match"),
    [
        ({"age": [1, None, 3]}, {}, "agent '1', column 'age', row 2: missing value"),
        ({"age": [1, np.nan, 3]}, {}, "agent '1', column 'age', row 2: missing value"),
        ({"job": ["a", "b", None]}, {}, "agent '2', column 'job', row 3: missing value"),
        (
            {"who": ["bob", "anna"], "age": [None, 3]},
            {"agent": "who", "agent_names": ["anna", "bob"]},
            "agent 'bob', column 'age'",
        ),
        ({"age": [1, np.inf]}, {}, "agent '1', column 'age', row 2: infinite value"),
        ({"day": np.array(["2020-01-01"], dtype="datetime64[D]")}, {}, "column 'day': date32.*neither"),
        ({"job": [str(i) for i in range(1001)]}, {"columns": ["job"]}, "column 'job' has 1001 different"),
        (
            {"patient": ["a", "b"], "age": [1, 2]},
            {},
            "column 'patient' has another text in every row.*agent='pat",
        ),
        ({"patient": pd.Categorical(["a", "b"])}, {}, "column 'patient' has another text in every row"),
        ({"age": [1, 2]}, {"columns": ["size"]}, "there is no column 'size'"),
        ({"age": [1, 2]}, {"columns": "age"}, "must be a list"),
        ({"age": []}, {}, "profiles are empty"),
        ({"who": ["a", "a"], "age": [1, 2]}, {"agent": "who"}, "agent 'a', column 'who': 2 rows"),
        (
            {"who": ["a"], "age": [1]},
            {"agent": "who", "agent_names": ["a", "b"]},
            "agent 'b', column 'who': 0 rows",
        ),
        ({"age": [1, 2]}, {"agent_names": ["a"]}, "1 agent_names for 2 rows; give one for each row"),
        ([[1, 2]], {}, "cannot read a list"),
        (np.ones(3), {}, "one row per agent"),
    ],
)
def test_bad_profiles_are_refused_by_agent_and_column(profiles, options, match):
    with pytest.raises(DataError, match=match):
        profile_graph(profiles, **options)


def test_k_and_gamma_together_are_refused():
    with pytest.raises(GraphError, match=r"give k = 3 .* or gamma"):
        profile_graph(COLUMNS, k=3, gamma=0.1)


@pytest.mark.parametrize("name", [None, "level"])
def test_the_index_of_a_pandas_frame_is_not_compared(name):
    frame = pd.DataFrame({"age": [20.0, 30.0, 50.0]}, index=pd.Index([7, 900, 2], name=name))
    assert profile_vectors(frame).shape == (3, 1)


AGES = pd.DataFrame({"age": [20.0, 30.0, 50.0]})


@pytest.mark.parametrize(
    "frame",
    [
        AGES.set_axis(["carl", "anna", "ben"]),
        AGES.set_axis(pd.Index([4, 2, 9], name="who")),
        AGES.sample(frac=1, random_state=3),
        AGES[::-1],
        AGES[1:],
    ],
    ids=["names", "named numbers", "shuffled", "reversed", "a part"],
)
def test_rows_that_are_called_otherwise_than_0_1_2_are_not_taken_by_position(frame):
    with pytest.raises(DataError, match=r"has an index .* as agent=, or drop the index"):
        profile_graph(frame, k=1)
    assert profile_graph(frame.reset_index(drop=True), k=1).agent_names is None


def test_a_text_that_no_two_agents_share_is_compared_where_it_is_asked_for():
    assert profile_graph({"city": ["Lyon", "Nice", "Metz"]}, ["city"], k=1).n_agents == 3


@pytest.mark.parametrize("index", [pd.Index([4, 2, 9], name="who"), pd.RangeIndex(3, 6, name="who")])
def test_the_index_of_a_pandas_frame_may_name_the_agents(index):
    frame = pd.DataFrame({"age": [20.0, 30.0, 50.0]}, index=index)
    graph = profile_graph(frame, agent="who", k=1)
    assert graph.agent_names == tuple(map(str, index))
