"""What an owner gets out of an agent by command: its own model and predictions, from real files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.network.world import FolderWorld, make_folders
from typer.testing import CliRunner

from flockwise.cli.app import app
from flockwise.data import Samples
from flockwise.deploy.folder import AgentFolder, OwnBudget
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import DataError, PrivacyError
from flockwise.graph import complete_graph
from flockwise.method.start import PublicModels
from flockwise.objective import Objective
from flockwise.runtime.reading import own_model_table, predict_rows, read_agent

UPDATES = 4
NAMES = ("height", "width", "intercept")
ROWS = {"height": [0.3, -0.8, 0.1], "width": [-0.2, 0.4, 0.9]}


def network(tmp_path, *, private=True, growth: Any = "one_budget", named=True):
    """Three agents with two features and an intercept."""
    chance = np.random.default_rng(3)
    samples = []
    for _ in range(3):
        features = np.column_stack([chance.uniform(-0.7, 0.7, (8, 2)), np.ones(8)])
        samples.append(Samples(features, np.where(features[:, 0] > 0.1, 1.0, -1.0)))
    budget = OwnBudget(epsilon=5.0, delta=1e-3, updates=UPDATES, clip=1.0, growth=growth)
    settings = NetworkSettings(
        Objective(tradeoff=1.0, max_samples=8, feature_bound=2.0),
        "dp" if private else "none",
        UPDATES,
        feature_names=NAMES if named else (),
        has_intercept=named,
    )
    return make_folders(tmp_path / "net", settings, complete_graph(3), samples, budget if private else None)


def run(*arguments):
    return CliRunner().invoke(app, ["agent", *map(str, arguments)])


def everything_in(folder):
    """But for the empty files that readers of a database may leave beside it."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
@pytest.mark.parametrize("private", [True, False])
def test_an_agent_on_disk_has_the_model_of_the_agent_that_ran(tmp_path, private, growth):
    paths = network(tmp_path, private=private, growth=growth)
    with FolderWorld(paths) as world:
        world.run(30)
        world[0].add_data(np.array([[0.2, -0.1, 1.0]]), np.ones(1))
        world.run(30)
        wanted = world[0].own_model()
        # The agent runs and holds its files meanwhile.
        np.testing.assert_array_equal(read_agent(AgentFolder.read(paths[0])).own_model(), wanted)
    before = everything_in(paths[0])
    np.testing.assert_array_equal(read_agent(AgentFolder.read(paths[0])).own_model(), wanted)
    assert everything_in(paths[0]) == before
    assert np.any(wanted)


def test_predictions_are_the_same_from_every_kind_of_file(tmp_path):
    paths = network(tmp_path)
    with FolderWorld(paths) as world:
        world.run(30)
        rows = np.column_stack([*ROWS.values(), np.ones(3)])
        wanted = world[0].predict(rows)
    csv.write_csv(pa.table({"width": ROWS["width"], "height": ROWS["height"]}), tmp_path / "rows.csv")
    pq.write_table(pa.table(ROWS), tmp_path / "rows.parquet")
    np.savez(tmp_path / "rows.npz", features=rows)
    for name in ("rows.csv", "rows.parquet", "rows.npz"):
        out = tmp_path / f"{name}.csv"
        done = run("predict", paths[0], tmp_path / name, "--out", out)
        assert done.exit_code == 0, done.output
        assert csv.read_csv(out)["prediction"].to_pylist() == wanted.tolist()
        assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"height": [0.1]}, "rows.csv: column 'width' is missing"),
        ({**ROWS, "depth": [1.0, 2.0, 3.0]}, "column 'depth' was not there"),
        ({"height": [0.1], "width": ["tall"]}, "column 'width'"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(tmp_path, rows, message):
    folder = AgentFolder.read(network(tmp_path)[0])
    csv.write_csv(pa.table(rows), tmp_path / "rows.csv")
    with pytest.raises(DataError, match=message):
        predict_rows(folder, tmp_path / "rows.csv")


def test_an_exported_own_model_says_that_it_must_not_be_shown(tmp_path):
    paths = network(tmp_path)
    with FolderWorld(paths) as world:
        world.run(30)
        wanted = world[0].own_model()
    out = tmp_path / "model.parquet"
    done = run("export", paths[0], "--out", out)
    assert done.exit_code == 0, done.output
    assert out.stat().st_mode & 0o777 == 0o600
    table = pq.read_table(out)
    assert table.column_names == ["agent", *NAMES]
    assert [table[name][0].as_py() for name in NAMES] == wanted.tolist()
    about = json.loads(table.schema.metadata[b"flockwise"])
    assert about["which"] == "own"
    assert "must not be shown" in about["note"]
    with pytest.raises(PrivacyError, match="own models"):
        PublicModels(table.drop_columns("agent"))
    assert run("export", paths[0], "--out", tmp_path / "model.csv").exit_code == 1
    assert not (tmp_path / "model.csv").exists()


def test_features_without_names_are_numbered_and_an_agent_that_never_ran_learns_alone(tmp_path):
    paths = network(tmp_path, named=False)
    assert own_model_table(AgentFolder.read(paths[0])).column_names == ["agent", "x0", "x1", "x2"]
