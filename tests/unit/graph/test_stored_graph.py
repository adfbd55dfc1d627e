"""Graphs that stay in files: those of `read_edges` in memory, however little is sorted at once."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.graph import limited

from flockwise.errors import GraphError
from flockwise.graph import read_edges, stored
from flockwise.graph.source import as_source
from flockwise.graph.stored import StoredGraph, stored_graph
from flockwise.release.finish import neighbor_mean_variances

NAMES = [f"agent-{k}" for k in range(40)]


@pytest.fixture(autouse=True)
def _little_at_once(monkeypatch):
    monkeypatch.setattr("flockwise.graph.tabular.EDGES_AT_ONCE", 7)
    monkeypatch.setattr("flockwise.graph.canonical.ENTRIES_AT_ONCE", 20)


def write(file, rows):
    sources, targets, weights = zip(*rows, strict=True)
    table = {"source": [NAMES[i] for i in sources], "target": [NAMES[j] for j in targets], "weight": weights}
    pq.write_table(pa.table(table), file)


def listed():
    """A hub with more edges than are sorted at once, isolated agents, repeated edges, and zeros."""
    random = np.random.default_rng(0)
    edges = [(0, j) for j in range(1, 36)]
    edges += [(i, j) for i in range(1, 36) for j in range(1, i) if random.random() < 0.15]
    weights = random.random(len(edges)) * (random.random(len(edges)) < 0.9)
    rows = [(*edge, weight) for edge, weight in zip(edges, weights, strict=True)]
    rows += [(j, i, weight) for i, j, weight in rows[::3]] + rows[::5]
    return [rows[k] for k in random.permutation(len(rows))]


def assert_equal(graph, expected):
    for name in ("offsets", "neighbors", "weights", "degrees"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(expected, name))
    assert (graph.source, graph.agent_names) == (expected.source, expected.agent_names)


def test_a_graph_in_files_is_that_in_memory(tmp_path):
    (tmp_path / "edges").mkdir()
    rows = listed()
    for part in range(3):
        write(tmp_path / "edges" / f"{part}.parquet", rows[part::3])
    expected = read_edges(tmp_path / "edges", NAMES)
    graph = read_edges(tmp_path / "edges", NAMES, folder=tmp_path / "graph")
    assert isinstance(graph, StoredGraph)
    assert_equal(graph, expected)
    assert graph.isolated.tolist() == [36, 37, 38, 39]
    variances = np.arange(40.0)
    product = expected.to_scipy().power(2) @ variances / np.where(expected.degrees, expected.degrees, 1) ** 2
    np.testing.assert_allclose(neighbor_mean_variances(graph, variances), product, rtol=1e-14)
    written = sorted((file.name, file.stat().st_mtime_ns) for file in (tmp_path / "graph").iterdir())
    assert [name for name, _ in written] == ["graph.json", "neighbors", "offsets", "weights"]
    assert_equal(read_edges(tmp_path / "edges", NAMES, folder=tmp_path / "graph"), expected)
    assert written == sorted((file.name, file.stat().st_mtime_ns) for file in (tmp_path / "graph").iterdir())
    with pytest.raises(GraphError, match="of other agents, or of the same in another order"):
        graph.in_order(NAMES[::-1])


def test_a_list_without_edges_is_a_graph_without_edges(tmp_path):
    write(tmp_path / "edges.parquet", [(0, 1, 0.0)])
    graph = read_edges(tmp_path / "edges.parquet", NAMES, folder=tmp_path / "graph")
    assert (graph.n_agents, graph.n_edges) == (40, 0)


@pytest.mark.parametrize("other", ["these edges", "other edges"])
def test_of_two_that_write_a_graph_at_once_the_first_is_used(other, tmp_path):
    """The second begins when the first has written its entries, and waits until the first is done."""
    folder, began, may_go_on, later = tmp_path / "graph", Event(), Event(), []
    edges = [(np.array([[0, 1], [1, 2]], np.int32), np.ones(2))]
    source = as_source("edges", "")

    def second():
        began.set()
        may_go_on.wait(10)
        yield from edges

    def first():
        yield from edges
        later.append(pool.submit(stored_graph, folder, second(), other, source, tuple(NAMES)))
        assert began.wait(10)

    with ThreadPoolExecutor() as pool:
        assert stored_graph(folder, first(), "these edges", source, tuple(NAMES)).n_edges == 2
        may_go_on.set()
        if other == "these edges":
            assert later[0].result().n_edges == 2
        else:
            with pytest.raises(GraphError, match="graph holds the graph of other edges"):
                later[0].result()
    assert [file.name for file in tmp_path.iterdir()] == ["graph"]


def test_entries_that_get_lost_on_the_way_are_missed(tmp_path, monkeypatch):
    def lossy(entries, starts):
        share_out(entries, starts)
        (entries.parent / "entries-1").write_bytes(b"")

    share_out = stored._share_out
    monkeypatch.setattr(stored, "_share_out", lossy)
    write(tmp_path / "edges.parquet", listed())
    with pytest.raises(GraphError, match=r"entries-1: has 0 entries, and \d+ were written"):
        read_edges(tmp_path / "edges.parquet", NAMES, folder=tmp_path / "graph")
    assert [file.name for file in tmp_path.iterdir()] == ["edges.parquet"]


def test_a_list_with_permuted_weights_is_another_one(tmp_path):
    """Its files have the same sizes, and the same bounds in their footers."""
    file, weights = tmp_path / "edges.parquet", np.random.default_rng(0).random(39)
    write(file, [(0, j + 1, weight) for j, weight in enumerate(weights)])
    size = file.stat().st_size
    read_edges(file, NAMES, folder=tmp_path / "graph")
    write(file, [(0, j + 1, weight) for j, weight in enumerate(weights[::-1])])
    assert file.stat().st_size == size
    with pytest.raises(GraphError, match="graph holds the graph of other edges"):
        read_edges(file, NAMES, folder=tmp_path / "graph")


@pytest.mark.parametrize(
    "bad", [(5, 5, 1.0), (1, 2, -1.0), (1, 2, np.nan), (1, 2, np.inf), (33, 0, 77.0)], ids=str
)
def test_what_is_wrong_is_said_as_of_a_graph_in_memory_and_nothing_is_left(bad, tmp_path):
    write(tmp_path / "edges.parquet", [*listed(), bad])
    messages = []
    for options in ({}, {"folder": tmp_path / "graph"}):
        with pytest.raises(GraphError, match=r"rows? \d+") as refusal:
            read_edges(tmp_path / "edges.parquet", NAMES, **options)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]
    assert [file.name for file in tmp_path.iterdir()] == ["edges.parquet"]


def test_a_folder_of_something_else_is_refused(tmp_path):
    file, folder = tmp_path / "edges.parquet", tmp_path / "graph"
    write(file, listed())
    read_edges(file, NAMES, folder=folder)
    with pytest.raises(GraphError, match="graph holds the graph of other edges or agents; name a new folder"):
        read_edges(file, NAMES[::-1], folder=folder)
    with pytest.raises(GraphError, match="other edges or agents"):
        read_edges(file, NAMES, columns=("source", "target"), folder=folder)
    write(file, listed()[:-1])
    with pytest.raises(GraphError, match="other edges or agents"):
        read_edges(file, NAMES, folder=folder)
    write(file, listed())
    content = (folder / "weights").read_bytes()
    (folder / "weights").write_bytes(content[:-8])
    with pytest.raises(GraphError, match="graph: a file of the graph is missing or damaged"):
        read_edges(file, NAMES, folder=folder)
    (folder / "graph.json").unlink()
    with pytest.raises(GraphError, match="graph is there already and holds no graph"):
        read_edges(file, NAMES, folder=folder)
    shutil.rmtree(folder)
    (tmp_path / "edges.csv").write_text("source,target,weight\nagent-1,agent-2,1\n")
    with pytest.raises(GraphError, match=r"folder= is for \.parquet files"):
        read_edges(tmp_path / "edges.csv", NAMES, folder=folder)
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is on what Linux counts")
def test_a_graph_larger_than_memory_is_sorted_and_read_by_shards(tmp_path):
    """In a process of its own, whose memory is limited to less than the edges take."""
    limited.write_edges(tmp_path / "edges")
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.graph.limited", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=limited.ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["in files: fits", "in memory: does not fit"]
    taken = sum((tmp_path / "graph" / name).stat().st_size for name in ("neighbors", "weights"))
    assert taken > limited.MEGABYTES << 20
