"""Tables and files: every source gives the same Population, and every bad cell its own message."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from flockwise.data import Population, population_from_frame, read_population
from flockwise.data.tables import as_table
from flockwise.errors import DataError

COLUMNS = {
    "agent": ["bob", "anna", "bob", "anna", "carl"],
    "height": [1.5, 2.5, 3.5, 4.5, 5.5],
    "member": [True, False, True, True, False],
    "visits": [3, 1, 4, 1, 5],
    "y": [1.0, -1.0, 1.0, -1.0, 1.0],
}


def assert_same(one: Population, other: Population) -> None:
    assert one.agent_names == other.agent_names
    assert one.feature_names == other.feature_names
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one.offsets, other.offsets)
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.targets, other.targets)


def expected() -> Population:
    features = np.column_stack([np.array(COLUMNS[name], float) for name in ("height", "member", "visits")])
    names = ("height", "member", "visits")
    return Population.from_arrays(features, COLUMNS["y"], COLUMNS["agent"], feature_names=names)


@pytest.mark.parametrize(
    "make",
    [
        dict,
        pd.DataFrame,
        pl.DataFrame,
        pa.table,
        lambda columns: pa.table(columns).to_batches()[0],
        lambda columns: pa.concat_tables([pa.table(columns).slice(0, 2), pa.table(columns).slice(2)]),
        lambda columns: pd.DataFrame(columns).astype({"agent": "category", "visits": "Int64"}),
        lambda columns: pl.DataFrame(columns).with_columns(pl.col("agent").cast(pl.Categorical)),
    ],
    ids=[
        "dict",
        "pandas",
        "polars",
        "arrow",
        "batch",
        "chunks",
        "pandas extension types",
        "polars categories",
    ],
)
def test_every_kind_of_table_gives_the_same_population(make):
    assert_same(population_from_frame(make(COLUMNS), target="y"), expected())


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".parquet"])
def test_files_give_the_same_population(tmp_path, suffix):
    file = tmp_path / f"samples{suffix}"
    frame = pd.DataFrame(COLUMNS)
    frame.to_parquet(file) if suffix == ".parquet" else frame.to_csv(file, index=False)
    assert_same(read_population(file, target="y"), expected())
    assert_same(read_population(str(file), target="y"), expected())


def test_features_are_taken_in_the_order_asked_for():
    population = population_from_frame(COLUMNS, target="y", features=["visits", "height"], dtype="float32")
    assert population.feature_names == ("visits", "height")
    assert population.dtype == np.float32
    np.testing.assert_array_equal(population.samples(0)[0], [[1, 2.5], [1, 4.5]])


def test_agents_may_have_no_data():
    population = population_from_frame(COLUMNS, target="y", agents=["dora", "carl", "bob", "anna"])
    assert population.agent_names == ("dora", "carl", "bob", "anna")
    assert population.sample_counts.tolist() == [0, 1, 2, 2]


def test_integer_agents_come_out_alike_from_every_source(tmp_path):
    columns = {"agent": [10, 9, 10], "x": [1.0, 2.0, 3.0], "y": [1, 0, 1]}
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "samples.csv", index=False)
    populations = [
        population_from_frame(columns, target="y"),
        population_from_frame(frame, target="y"),
        population_from_frame(columns, target="y", agents=[9, 10]),
        population_from_frame(columns, target="y", agents=["9", "10"]),
        read_population(tmp_path / "samples.csv", target="y"),
    ]
    for population in populations:
        assert population.agent_names == ("9", "10")
        assert_same(population, populations[0])


def test_csv_agents_are_read_as_they_are_written(tmp_path):
    file = tmp_path / "samples.csv"
    file.write_text("agent,x,y\n007,1,1\nNA,2,1\n")
    assert read_population(file, target="y").agent_names == ("007", "NA")


def test_the_row_numbers_of_a_filtered_pandas_frame_are_not_a_feature(tmp_path):
    frame = pd.DataFrame(COLUMNS)
    filtered = frame[frame["agent"] != "carl"].iloc[::-1]
    filtered.to_parquet(tmp_path / "filtered.parquet")
    for population in (
        population_from_frame(filtered, target="y"),
        read_population(tmp_path / "filtered.parquet", target="y"),
    ):
        assert population.feature_names == ("height", "member", "visits")
        assert population.agent_names == ("anna", "bob")


def test_a_pandas_index_may_name_the_agents():
    assert_same(population_from_frame(pd.DataFrame(COLUMNS).set_index("agent"), target="y"), expected())


def test_decimals_are_read_as_numbers():
    columns = COLUMNS | {"visits": [decimal.Decimal(n) for n in COLUMNS["visits"]]}
    assert_same(population_from_frame(columns, target="y"), expected())


TEXT = "text 'tall' is not a number; encode it as one or leave the column out of features"


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("height", [1.5, 2.5, None, 4.5, 5.5], "agent 'bob', column 'height', row 3: missing value; fill it"),
        (
            "height",
            [1.5, 2.5, 3.5, np.nan, 5.5],
            "agent 'anna', column 'height', row 4: missing value; fill it",
        ),
        ("height", [None] * 5, "agent 'bob', column 'height', row 1: missing value"),
        ("visits", [3, 1, 4, 1, None], "agent 'carl', column 'visits', row 5: missing value"),
        ("member", [True, None, True, True, True], "agent 'anna', column 'member', row 2: missing value"),
        ("y", [1, None, 1, 1, 1], "agent 'anna', column 'y', row 2: missing value"),
        ("height", [1, 2, 3, np.inf, 5], r"agent 'anna', column 'height', row 4: infinite value \(inf\)"),
        ("height", ["1", "2", "tall", "4", "5"], f"agent 'bob', column 'height', row 3: {TEXT}"),
        ("height", ["1", None, "tall", "4", "5"], f"agent 'bob', column 'height', row 3: {TEXT}"),
        ("height", list("12345"), "agent 'bob', column 'height', row 1: '1' is a number written as text"),
        ("y", ["yes", "no", "yes", "no", "no"], "agent 'bob', column 'y', row 1: text 'yes' is not a number"),
        (
            "height",
            pa.array(["tall"] * 5).dictionary_encode(),
            "agent 'bob', column 'height', row 1: category 'tall' is not a number; encode categories",
        ),
        ("height", [datetime.date(2020, 1, 1)] * 5, "column 'height', row 1: a value of type date32"),
        ("height", [[1.0, 2.0]] * 5, "column 'height', row 1: a value of type list"),
    ],
)
def test_bad_cells_name_agent_column_and_row(column, values, words):
    with pytest.raises(DataError, match=words):
        population_from_frame(COLUMNS | {column: values}, target="y")


def test_categories_of_pandas_and_polars_are_refused_by_row():
    words = "agent 'bob', column 'height', row 1: category 'tall' is not a number"
    columns = COLUMNS | {"height": ["tall", "small", "tall", "tall", "small"]}
    with pytest.raises(DataError, match=words):
        population_from_frame(pd.DataFrame(columns).astype({"height": "category"}), target="y")
    with pytest.raises(DataError, match=words):
        population_from_frame(
            pl.DataFrame(columns).with_columns(pl.col("height").cast(pl.Categorical)), target="y"
        )


def test_a_number_that_does_not_fit_float32_is_named():
    columns = COLUMNS | {"height": [1.0, 2.0, 3.0, 1e39, 5.0]}
    assert population_from_frame(columns, target="y").n_samples == 5
    with pytest.raises(DataError, match=r"agent 'anna', column 'height', row 4: 1e\+39 does not fit float32"):
        population_from_frame(columns, target="y", dtype="float32")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["bob", None, "bob", "anna", "carl"], "column 'agent', row 2: the agent is missing; fill it"),
        (["bob", "bob", "bob", "", "carl"], "column 'agent', row 4: the agent is missing"),
        ([None] * 5, "column 'agent', row 1: the agent is missing"),
        ([1.5] * 5, "column 'agent': agents must be text or integers, got double"),
        ([True] * 5, "column 'agent': agents must be text or integers, got bool"),
    ],
)
def test_agents_that_are_missing_or_no_names_are_refused(labels, words):
    with pytest.raises(DataError, match=words):
        population_from_frame(COLUMNS | {"agent": labels}, target="y")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "z"}, "no column 'z' for the target; the columns are 'agent', 'height', 'member'"),
        ({"agent": "who"}, "no column 'who' for the agent; the columns are 'agent', 'height'"),
        ({"features": ["height", "age"]}, "no column 'age' for the feature; the columns are 'agent'"),
        ({"features": ["height", "height"]}, "feature 'height' occurs twice"),
        ({"features": ["height", "y"]}, "column 'y' is the target and cannot be a feature as well"),
        ({"features": ["agent"]}, "column 'agent' is the agent and cannot be a feature as well"),
        ({"features": "height"}, "features must be a list of column names, got the text 'height'"),
        ({"features": []}, "there is no feature column"),
        ({"target": "agent"}, "column 'agent' cannot be both the agent and the target"),
        ({"agents": ["anna", "bob"]}, "agent 'carl', column 'agent', row 5: is not one of the agents given"),
        ({"agents": ["anna", "anna"]}, "agent 'anna' occurs twice"),
        ({"dtype": "int64"}, "dtype must be 'float32' or 'float64'"),
    ],
)
def test_columns_and_agents_that_do_not_fit_the_table_are_named(arguments, words):
    with pytest.raises(DataError, match=words):
        population_from_frame(COLUMNS, **({"target": "y"} | arguments))


def test_a_table_without_rows_is_refused():
    with pytest.raises(DataError, match="the table has no rows"):
        population_from_frame(pd.DataFrame(COLUMNS).iloc[:0], target="y")


def test_two_columns_of_one_name_are_refused():
    doubled = pa.table([[1], [2], [3], [4]], names=["agent", "x", "x", "y"])
    with pytest.raises(DataError, match=r"feature 'x' occurs twice|column 'x' occurs 2 times"):
        population_from_frame(doubled, target="y")
    with pytest.raises(DataError, match=r"give every column one type and one name .*[Dd]uplicate"):
        population_from_frame(pd.DataFrame([[1, 2, 3, 4]], columns=["agent", "x", "x", "y"]), target="y")


def test_a_duplicate_column_that_nobody_asked_for_is_refused_in_an_arrow_table_too():
    columns = [pa.array(["a", "b"]), pa.array([1.0, 2.0]), pa.array([1.0, 2.0]), pa.array([1.0, 2.0])]
    table = pa.table(columns, names=["agent", "y", "x", "x"])
    with pytest.raises(DataError, match="column 'x' occurs 2 times"):
        as_table(table)


def test_data_that_is_not_a_table_is_refused():
    with pytest.raises(DataError, match=r"cannot read a LazyFrame as a table.*collect a lazy one first"):
        population_from_frame(pl.LazyFrame(COLUMNS), target="y")
    with pytest.raises(DataError, match="cannot read a list as a table"):
        population_from_frame([1, 2], target="y")
    with pytest.raises(DataError, match="the table cannot be read"):
        population_from_frame({"agent": [1, 2], "x": [1.0], "y": [1.0]}, target="y")
    with pytest.raises(DataError, match="give every column one type"):
        population_from_frame(pd.DataFrame(COLUMNS | {"height": [1, "x", 2, {}, 3]}), target="y")


def write(folder: Path, text: str, name: str = "samples.csv") -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent,x,y\nanna,1,1\nanna,,1\n", "samples.csv: agent 'anna', column 'x', row 2: missing value"),
        ("agent,x,y\nanna,1,1\nbob,NaN,1\n", "agent 'bob', column 'x', row 2: missing value"),
        ("agent,x,y\nanna,1,1\nbob,inf,1\n", "agent 'bob', column 'x', row 2: infinite value"),
        ("agent,x,y\nanna,1,1\nbob,?,1\n", r"agent 'bob', column 'x', row 2: text '\?' is not a number"),
        ("agent,x,y\n,1,1\n", "column 'agent', row 1: the agent is missing"),
        ("agent,x,x,y\nanna,1,2,3\n", "'x' occurs"),
        ("agent,x,y\n", "samples.csv: the table has no rows"),
        ("", "samples.csv: cannot be read as .csv .*Empty CSV"),
        ("agent,x,y\nanna,1\n", "samples.csv: cannot be read as .csv .*Expected 3 columns, got 2"),
    ],
)
def test_a_damaged_csv_file_is_named_with_its_error(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read_population(write(tmp_path, text), target="y")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"cannot read a '.xlsx' file; use .csv or .parquet"):
        read_population(write(tmp_path, "", "samples.xlsx"), target="y")
    with pytest.raises(DataError, match=r"nothing.csv: there is no such file"):
        read_population(tmp_path / "nothing.csv", target="y")
    with pytest.raises(DataError, match=r"broken.parquet: cannot be read as .parquet"):
        read_population(write(tmp_path, "not parquet", "broken.parquet"), target="y")


def test_a_column_that_turns_from_integers_to_decimals_late_in_a_large_csv(tmp_path):
    """The reader infers types block by block; the last row is several megabytes in."""
    rows = 400_000
    lines = ["agent,x,y", *["anna,1,1"] * rows, "bob,1.5,0.5", ""]
    population = read_population(write(tmp_path, "\n".join(lines)), target="y")
    assert population.sample_counts.tolist() == [rows, 1]
    np.testing.assert_array_equal(population.samples(1)[0], [[1.5]])


def test_folder_names_are_not_columns(tmp_path):
    folder = tmp_path / "height=9"
    folder.mkdir()
    pyarrow.parquet.write_table(pa.table(COLUMNS), folder / "samples.parquet")
    assert_same(read_population(folder / "samples.parquet", target="y"), expected())
