"""Populations in Parquet files: the same as when read whole, and refused by name when something is wrong."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flockwise.data import StoredPopulation, open_population, population_from_frame
from flockwise.errors import DataError, ObjectiveError
from flockwise.objective import Objective, Problem

COLUMNS = ("x0", "x1", "x2")


def table(n_rows=200, n_agents=12, seed=0, prefix="", dtype=np.float64):
    """Rows of some agents in any order; agent 3 has none."""
    random = np.random.default_rng(seed)
    agents = random.integers(0, n_agents, n_rows)
    agents[agents == 3] = 4
    labels = [f"{prefix}{agent}" for agent in agents] if prefix else agents
    columns = {name: random.normal(size=n_rows).astype(dtype) for name in COLUMNS}
    return pa.table({"agent": labels, "y": random.choice([-1.0, 1.0], n_rows), **columns})


def written(folder, rows, parts=3, row_group_size=17):
    folder.mkdir()
    ends = np.linspace(0, len(rows), parts + 1).astype(int)
    for k in range(parts):
        piece = rows.slice(ends[k], ends[k + 1] - ends[k])
        file = folder / f"part-{k}.parquet"
        pq.write_table(piece, file, row_group_size=row_group_size, write_page_checksum=True)
    return folder


def assert_equal(found, expected):
    assert found.agent_names == expected.agent_names
    assert found.feature_names == expected.feature_names
    for name in ("features", "targets", "offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert getattr(found, name).dtype == getattr(expected, name).dtype


@pytest.mark.parametrize("prefix", ["", "agent-"], ids=["numbers", "text"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_files_in_a_folder_are_the_population_of_one_table(prefix, dtype, tmp_path):
    rows = table(prefix=prefix)
    whole = population_from_frame(rows, target="y", dtype=dtype)
    stored = open_population(written(tmp_path / "rows", rows), target="y", dtype=dtype)
    assert (stored.n_agents, stored.n_samples, stored.n_features) == (11, 200, 3)
    np.testing.assert_array_equal(stored.sample_counts, whole.sample_counts)
    assert stored.dtype == whole.dtype
    assert_equal(stored, whole)
    one = tmp_path / "one.parquet"
    pq.write_table(rows, one)
    assert_equal(open_population(one, target="y", dtype=dtype), whole)


def test_columns_and_agents_are_chosen_as_in_a_table(tmp_path):
    folder, names = written(tmp_path / "rows", table()), [str(k) for k in reversed(range(12))]
    stored = open_population(folder, target="y", features=["x2", "x0"], agents=names)
    whole = population_from_frame(table(), target="y", features=["x2", "x0"], agents=names)
    assert_equal(stored, whole)
    assert stored.sample_counts[names.index("3")] == 0


def test_some_agents_are_read_alone_wherever_their_rows_are(tmp_path):
    stored = open_population(written(tmp_path / "rows", table()), target="y")
    chosen = np.array([7, 0, 9])
    part = stored.select(chosen)
    assert isinstance(part, StoredPopulation)
    assert_equal(part, stored.in_memory.select(chosen))
    sent = pickle.loads(pickle.dumps(stored))
    assert "in_memory" not in sent.__dict__
    assert_equal(sent, stored.in_memory)


def test_the_samples_stay_in_their_files_until_someone_asks(tmp_path):
    stored = open_population(written(tmp_path / "rows", table()), target="y")
    problem = Problem(stored, objective=Objective(feature_bound=2.0))
    assert not problem.population.is_read
    _ = problem.fingerprint, problem.step_sizes, problem.pulls, repr(problem), repr(stored)
    assert "in_memory" not in problem.population.__dict__
    with pytest.raises(ObjectiveError, match="feature_bound"):
        _ = Problem(stored).step_sizes


def test_a_fingerprint_changes_with_the_files(tmp_path):
    one, same, other = (
        Problem(open_population(written(tmp_path / name, table(seed=seed)), target="y"))
        for name, seed in (("one", 0), ("same", 0), ("other", 1))
    )
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_a_bad_cell_is_named_by_file_agent_column_and_row(tmp_path):
    rows = table()
    x1 = rows["x1"].to_numpy().copy()
    x1[150] = np.nan
    rows = rows.set_column(rows.column_names.index("x1"), "x1", pa.array(x1))
    stored = open_population(written(tmp_path / "rows", rows), target="y")
    owner = rows["agent"][150].as_py()
    words = rf"part-2.parquet: agent '{owner}', column 'x1', row {150 - 133 + 1}: missing value"
    with pytest.raises(DataError, match=words):
        _ = stored.features


def test_targets_are_checked_when_they_are_read(tmp_path):
    rows = table().set_column(1, "y", pa.array(np.full(200, 0.5)))
    problem = Problem(open_population(written(tmp_path / "rows", rows), target="y"))
    with pytest.raises(ObjectiveError, match="agent '0', training sample 1"):
        _ = problem.population.targets


def damaged(folder):
    """A byte in the middle of a page of numbers is another one."""
    file = folder / "part-1.parquet"
    content = bytearray(file.read_bytes())
    place = pq.ParquetFile(file).metadata.row_group(2).column(2).dictionary_page_offset + 60
    content[place] ^= 0xFF
    file.write_bytes(content)


def test_damaged_and_missing_files_are_named(tmp_path):
    folder = written(tmp_path / "rows", table())
    stored = open_population(folder, target="y")
    damaged(folder)
    with pytest.raises(DataError, match=r"part-1.parquet is damaged or cannot be read"):
        _ = stored.features
    (folder / "part-1.parquet").unlink()
    with pytest.raises(DataError, match=r"part-1.parquet: there is no such file"):
        _ = stored.features
    content = (folder / "part-2.parquet").read_bytes()
    (folder / "part-2.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"part-2.parquet is damaged"):
        open_population(folder, target="y")
    with pytest.raises(DataError, match=r"nowhere: there is no such file|nowhere is damaged"):
        open_population(tmp_path / "nowhere", target="y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.parquet file in this folder"):
        open_population(tmp_path / "empty", target="y")


def test_files_that_changed_since_they_were_opened_are_refused(tmp_path):
    folder = written(tmp_path / "rows", table())
    stored = open_population(folder, target="y")
    pq.write_table(table(90), folder / "part-0.parquet")
    with pytest.raises(DataError, match="other rows than before"):
        _ = stored.features


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (table().drop_columns(["x1"]), "there is no column 'x1' for the feature"),
        (table(prefix="a"), "column 'agent' is string here and int64"),
        (table().set_column(0, "agent", pa.nulls(200, pa.int64())), "has no agent"),
    ],
)
def test_files_that_do_not_fit_are_refused_before_anything_is_read(other, words, tmp_path):
    folder = written(tmp_path / "rows", table())
    pq.write_table(other, folder / "part-1.parquet")
    with pytest.raises(DataError, match=rf"part-1.parquet: .*{words}"):
        open_population(folder, target="y")


def test_a_stranger_is_refused_where_the_agents_are_given(tmp_path):
    folder = written(tmp_path / "rows", table())
    with pytest.raises(DataError, match="agent '0', column 'agent': is not one of the agents given"):
        open_population(folder, target="y", agents=[str(k) for k in range(1, 12)])
