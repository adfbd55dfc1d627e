import pyarrow as pa
import pyarrow.parquet
import pytest

from flockwise.errors import GraphError
from flockwise.graph import GraphSource, read_edges

NAMES = ["anna", "bob", "carl", "dora"]
GOOD = "source,target,weight\nanna,bob,0.5\ncarl,anna,2\nanna,carl,2\n"


def csv(folder, text):
    file = folder / "edges.csv"
    file.write_text(text)
    return file


def test_csv(tmp_path):
    graph = read_edges(csv(tmp_path, GOOD), NAMES)
    assert graph.to_scipy().toarray()[0].tolist() == [0, 0.5, 2, 0]
    assert graph.isolated.tolist() == [3]
    assert graph.source == GraphSource("edges", "edges.csv")


def test_parquet_with_integer_agents(tmp_path):
    file = tmp_path / "edges.parquet"
    pyarrow.parquet.write_table(pa.table({"source": [7, 8], "target": [8, 9], "weight": [1.0, 2.0]}), file)
    graph = read_edges(file, [9, 8, 7])
    assert graph.to_scipy().toarray().tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]


def test_names_are_taken_as_written(tmp_path):
    graph = read_edges(csv(tmp_path, "source,target,weight\n007,7,1\n"), ["7", "007"])
    assert graph.n_edges == 1


def test_other_columns_and_no_weights(tmp_path):
    file = csv(tmp_path, "a,b,note\nanna,bob,old\n")
    assert read_edges(file, NAMES, columns=("a", "b")).weights.tolist() == [1, 1]


def test_the_source_may_be_declared_private(tmp_path):
    graph = read_edges(csv(tmp_path, GOOD), NAMES, source=GraphSource("edges", "visits", private=True))
    assert graph.source.private


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("anna,bob,1\nanna,emil,1\n", "agent 'emil', column 'target', row 2: is not one of the agents"),
        ("anna,bob,1\n,bob,1\n", "column 'source', row 2: the agent is missing"),
        ("anna,bob,\nanna,carl,1\n", "column 'weight', row 1: the weight is missing"),
        ("anna,bob,1\nanna,carl,much\n", "column 'weight', row 2: weight 'much' is not a number"),
        ("anna,bob,1\nbob,carl,-2\n", r"row 2, agents 'bob' and 'carl': weight -2\.0"),
        ("anna,bob,inf\n", "row 1, agents 'anna' and 'bob': weight inf"),
        ("anna,bob,1\ndora,dora,1\n", "row 2, agents 'dora' and 'dora': an agent cannot be its own"),
        ("anna,bob,1\ncarl,bob,1\nbob,anna,3\n", "rows 1 and 3 give agents 'anna' and 'bob' two weights"),
        ("anna,bob\n", "cannot be read as .csv"),
    ],
)
def test_bad_rows_are_refused_by_row_and_agents(tmp_path, rows, match):
    with pytest.raises(GraphError, match=match) as refusal:
        read_edges(csv(tmp_path, "source,target,weight\n" + rows), NAMES)
    assert "edges.csv" in str(refusal.value)


def test_missing_column(tmp_path):
    with pytest.raises(GraphError, match="there is no column 'weight'; the columns are 'source', 'target'"):
        read_edges(csv(tmp_path, "source,target\nanna,bob\n"), NAMES)


def test_missing_file_and_unknown_format(tmp_path):
    with pytest.raises(GraphError, match="no such file"):
        read_edges(tmp_path / "none.csv", NAMES)
    with pytest.raises(GraphError, match=r"use \.csv or \.parquet"):
        read_edges(tmp_path / "edges.txt", NAMES)


def test_agents_listed_twice(tmp_path):
    with pytest.raises(ValueError, match="'anna' occurs twice"):
        read_edges(csv(tmp_path, GOOD), [*NAMES, "anna"])
