"""Runs whose shards read their samples from files and leave their models there, all in this process."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from tests.support import PUBLIC
from tests.unit.engine.test_shards import METHODS, problem_with

from flockwise.data import open_population
from flockwise.engine import RayEngine, simulate
from flockwise.engine.ray.start import start_here
from flockwise.errors import DataError, FlockwiseWarning, ResumeError, SimulationError
from flockwise.graph import read_edges
from flockwise.method import CoordinateDescent
from flockwise.objective import Problem
from flockwise.privacy.tracked import origin_of
from flockwise.results.trajectory import Trajectory

RUN: dict[str, Any] = {"seed": 7, "updates": 5, "threads": 1}
AGENTS = np.arange(40) * 3 // 40


@dataclass(frozen=True)
class Here(RayEngine):
    """The ray engine with its shards in this process."""

    def missing(self):
        return None

    def start(self, rule: Any, settings, state=None):
        options = {"parts": AGENTS, "folder": self.folder, "models": self.models}
        return start_here(rule, settings, 3, state, **options)


def table_of(population):
    """Everyone's first row, then everyone's second row, and so on."""
    owners = np.repeat(np.arange(population.n_agents), population.sample_counts)
    rows = np.lexsort((owners, np.arange(len(owners)) - population.offsets[owners]))
    columns = {name: population.features[rows, k] for k, name in enumerate(population.feature_names)}
    return pa.table({"agent": owners[rows], "y": population.targets[rows], **columns})


def stored(problem, folder, dtype):
    """The same problem with its samples in files, the rows of all agents mixed."""
    population = problem.population
    folder.mkdir(exist_ok=True)
    rows = table_of(population)
    half = len(rows) // 2
    pq.write_table(rows.slice(0, half), folder / "a.parquet", row_group_size=31)
    pq.write_table(rows.slice(half), folder / "b.parquet", row_group_size=31)
    names = [str(agent) for agent in range(population.n_agents)]
    opened = open_population(folder, target="y", agents=names, dtype=dtype)
    return Problem(opened, problem.graph, problem.objective)


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
@pytest.mark.parametrize(
    ("name", "engine", "dtype"),
    [(name, Here(), "float64") for name in METHODS]
    + [("cd", Here(), "float32"), ("cd", "cpu", "float64"), ("private cd", "cpu", "float64")],
)
def test_a_run_from_files_is_that_from_memory(name, engine, dtype, tmp_path):
    problem = problem_with(dtype=np.dtype(dtype).type)
    test = problem.population.split(0.3, 0)[1]
    whole = simulate(problem, METHODS[name], test=test, **RUN)
    files = stored(problem, tmp_path / "rows", dtype)
    held_out = stored(Problem(test), tmp_path / "test", dtype).population
    run = simulate(files, METHODS[name], engine=engine, test=held_out, **RUN)
    np.testing.assert_array_equal(np.asarray(run.models), np.asarray(whole.models))
    for column in ("objective", "metric"):
        np.testing.assert_allclose(run.column(column), whole.column(column), rtol=1e-12)
    if whole.own_models is not None:
        np.testing.assert_array_equal(np.asarray(run.own_models), np.asarray(whole.own_models))


@pytest.mark.filterwarnings("ignore:.* of the edges join agents of different shards")
def test_the_end_of_a_run_reads_no_samples_that_stay_in_files(tmp_path):
    """So it cannot say how far it is from the optimum, where a run on the same samples in memory does."""
    far: dict[str, Any] = {"updates": 30, "tolerance": 0.9, "record_every": 1.0}
    problem = problem_with().with_tradeoff(1000.0)
    with pytest.warns(FlockwiseWarning, match="far from the optimum"):
        simulate(problem, CoordinateDescent(), **far)
    files = stored(problem, tmp_path / "rows", "float64")
    simulate(files, CoordinateDescent(), engine=Here(), **far)
    assert not files.population.is_read


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
@pytest.mark.parametrize(
    ("name", "engine"), [("cd", Here()), ("private cd", Here()), ("propagation", Here()), ("cd", "cpu")]
)
def test_a_run_on_a_graph_in_files_is_that_in_memory(name, engine, tmp_path, monkeypatch):
    monkeypatch.setattr("flockwise.graph.canonical.ENTRIES_AT_ONCE", 30)
    problem = problem_with()
    upper = sparse.triu(problem.neighbors.to_scipy(), format="coo")
    (sources, targets), weights = upper.coords, upper.data
    edges = {"source": sources, "target": targets, "weight": weights}
    pq.write_table(pa.table(edges), tmp_path / "edges.parquet")
    names = problem.population.agent_names
    graph = read_edges(tmp_path / "edges.parquet", names, source=PUBLIC, folder=tmp_path / "graph")
    whole = simulate(problem, METHODS[name], **RUN)
    in_files = Problem(problem.population, graph, problem.objective)
    run = simulate(in_files, METHODS[name], engine=engine, **RUN)
    assert in_files.fingerprint == problem.fingerprint
    np.testing.assert_array_equal(np.asarray(run.models), np.asarray(whole.models))
    if whole.own_models is not None:
        np.testing.assert_array_equal(np.asarray(run.own_models), np.asarray(whole.own_models))


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
def test_a_run_from_files_reads_nothing_here(tmp_path):
    files = stored(problem_with(), tmp_path / "rows", "float64")
    simulate(files, METHODS["cd"], engine=Here(models=tmp_path / "models"), **RUN)
    assert "in_memory" not in files.population.__dict__


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
@pytest.mark.parametrize("name", ["cd", "private cd"])
def test_models_stay_in_the_files_of_their_shards(name, tmp_path):
    problem = problem_with()
    test = problem.population.split(0.3, 0)[1]
    whole = simulate(problem, METHODS[name], test=test, **RUN)
    files = stored(problem, tmp_path / "rows", "float64")
    folder = tmp_path / "models"
    run = simulate(files, METHODS[name], test=test, engine=Here(models=folder), **RUN)
    kinds = ["models", "own-models"] if whole.own_models is not None else ["models"]
    found = sorted(file.name for file in folder.iterdir())
    assert found == [f"{kind}-0000{k}.parquet" for kind in kinds for k in range(3)]
    np.testing.assert_array_equal(run.updates, whole.updates)
    np.testing.assert_array_equal(run.agent_metrics, whole.agent_metrics)
    np.testing.assert_array_equal(np.asarray(run.models), np.asarray(whole.models))
    assert origin_of(run.models) == origin_of(whole.models)
    if whole.own_models is not None:
        np.testing.assert_array_equal(np.asarray(run.own_models), np.asarray(whole.own_models))
        np.testing.assert_array_equal(run.own_metrics, whole.own_metrics)
        assert {file.stat().st_mode & 0o077 for file in folder.glob("own-*")} == {0}
        assert origin_of(pq.read_table(folder / "own-models-00001.parquet")) == origin_of(whole.own_models)
    run.save(tmp_path / "run.npz")
    loaded = Trajectory.load(tmp_path / "run.npz")
    np.testing.assert_array_equal(loaded.models, whole.models)
    with pytest.raises(ResumeError, match="go on from its checkpoints"):
        simulate(files, METHODS[name], resume=loaded, **RUN)
    (folder / "models-00001.parquet").unlink()
    again = simulate(files, METHODS[name], engine=Here(models=tmp_path / "again"), **RUN)
    (tmp_path / "again" / "models-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"has no model in .*again/models-"):
        np.asarray(again.models)


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
def test_nothing_is_written_where_a_run_cannot_begin_or_end(tmp_path):
    problem, folder = problem_with(), tmp_path / "models"
    files = stored(problem, tmp_path / "rows", "float64")
    whole = (tmp_path / "rows" / "b.parquet").read_bytes()
    (tmp_path / "rows" / "b.parquet").unlink()
    engine = Here(models=folder, folder=tmp_path / "checkpoints")
    with pytest.raises(DataError, match=r"b\.parquet: there is no such file"):
        simulate(files, METHODS["cd"], engine=engine, **RUN)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "rows"]
    (tmp_path / "rows" / "b.parquet").write_bytes(whole)
    with pytest.raises(SimulationError, match="makes own models of all agents' samples in one place"):
        simulate(files, METHODS["release once"], engine=engine, **RUN)
    simulate(files, METHODS["cd"], engine=engine, **RUN)
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(SimulationError, match=r"models: .* is there already; name a new folder"):
        simulate(files, METHODS["cd"], engine=engine, **RUN)
