import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flockwise.errors import GraphError
from flockwise.graph import GraphSource, SimilarityGraph, read_edges

NAMES = ["anna", "bob", "carl", "dora"]
GOOD = "source,target,weight\nanna,bob,0.5\ncarl,anna,2\nanna,carl,2\n"


def csv(folder, text):
    file = folder / "edges.csv"
    file.write_text(text)
    return file


def test_edges_are_read_from_a_csv_file(tmp_path):
    graph = read_edges(csv(tmp_path, GOOD), NAMES)
    assert graph.to_scipy().toarray()[0].tolist() == [0, 0.5, 2, 0]
    assert graph.isolated.tolist() == [3]
    assert graph.source == GraphSource("edges", "edges.csv")


def test_parquet_with_integer_agents(tmp_path):
    file = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"source": [7, 8], "target": [8, 9], "weight": [1.0, 2.0]}), file)
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


def test_a_file_without_a_column_of_weights_is_refused(tmp_path):
    with pytest.raises(GraphError, match="there is no column 'weight'; the columns are 'source', 'target'"):
        read_edges(csv(tmp_path, "source,target\nanna,bob\n"), NAMES)


def test_missing_file_and_unknown_format(tmp_path):
    with pytest.raises(GraphError, match="no such file"):
        read_edges(tmp_path / "none.csv", NAMES)
    with pytest.raises(GraphError, match=r"use \.csv or \.parquet"):
        read_edges(tmp_path / "edges.txt", NAMES)


def test_an_agent_that_is_listed_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'anna' occurs twice"):
        read_edges(csv(tmp_path, GOOD), [*NAMES, "anna"])


def test_a_folder_of_parquet_files_is_one_list_of_edges(tmp_path, monkeypatch):
    monkeypatch.setattr("flockwise.graph.tabular.EDGES_AT_ONCE", 7)
    random = np.random.default_rng(0)
    names = [f"agent-{k}" for k in range(30)]
    ends = np.array([(i, j) for i in range(30) for j in range(i) if random.random() < 0.2])
    weights = random.random(len(ends))
    table = pa.table(
        {
            "source": [names[i] for i in ends[:, 0]],
            "target": [names[j] for j in ends[:, 1]],
            "weight": weights,
        }
    )
    (tmp_path / "edges").mkdir()
    for k in range(3):
        pq.write_table(table.slice(k * 30, 30 if k < 2 else None), tmp_path / "edges" / f"{k}.parquet")
    graph, expected = read_edges(tmp_path / "edges", names), SimilarityGraph.from_edges(30, ends, weights)
    for name in ("offsets", "neighbors", "weights"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(expected, name))
    last = str(table["source"][len(table) - 1])
    with pytest.raises(GraphError, match=rf"agent '{last}', column 'source', row \d\d+: is not one of"):
        read_edges(tmp_path / "edges", [name for name in names if name != last])
    (tmp_path / "edges" / "1.parquet").write_bytes(b"PAR1")
    with pytest.raises(GraphError, match=r"1\.parquet is damaged or cannot be read"):
        read_edges(tmp_path / "edges", names)
