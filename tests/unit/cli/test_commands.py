"""The commands in this process: what they write, print and refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flockwise import code_cache
from flockwise.cli import app as app_module
from flockwise.cli import demo as demo_module
from flockwise.cli import simulate as simulate_module
from flockwise.cli.app import app
from flockwise.cli.console import INTERRUPTED
from flockwise.cli.demo import FEWEST_AGENTS
from flockwise.config import Config, build
from flockwise.engine import ENGINES, Checkpoint, RayEngine, RunSettings
from flockwise.engine.ray.run import ShardedRun
from flockwise.engine.ray.start import start_here
from flockwise.errors import ConfigError, DataError, SimulationError
from flockwise.graph import angular_graph
from flockwise.method.rules import StoredData
from flockwise.results.trajectory import Trajectory

EXAMPLES = Path(__file__).parents[3] / "examples"
ROW_KEYS = {"method", "accuracy", "accuracy_sd", "objective", "updates", "vectors"}
QUICK = """
seed = 1
[data]
source = "synthetic"
agents = 6
dimension = 2
[graph]
kind = "angular"
from = "targets"
[objective]
tradeoff = 2.0
[method]
name = "cd"
updates = 10
[privacy]
kind = "none"
[engine]
name = "reference"
"""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def quick(tmp_path):
    file = tmp_path / "quick.toml"
    file.write_text(QUICK)
    return file


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    """The example, on the engine that needs no compiler."""
    folder = tmp_path_factory.mktemp("rooms")
    for name in ("rooms.csv", "profiles.csv"):
        shutil.copy(EXAMPLES / name, folder)
    text = (EXAMPLES / "rooms.toml").read_text(encoding="utf-8")
    config = folder / "rooms.toml"
    config.write_text(text + '[engine]\nname = "reference"\n', encoding="utf-8")
    return config, folder / "out", invoke("simulate", config, "--out", folder / "out")


def test_the_demo_writes_what_is_agreed(tmp_path):
    result = invoke("demo", "--out", tmp_path, "--agents", 12, "--dimension", 3, "--seed", 2)
    assert result.exit_code == 0
    document = json.loads((tmp_path / "metrics.json").read_text())
    assert (document["agents"], document["dimension"], document["seed"]) == (12, 3, 2)
    methods = ["local", "tuned_local", "global", "collaborative", "propagation"]
    methods += 2 * ["private, release_once"] + 2 * ["private, learned_prior"]
    assert [row["method"] for row in document["rows"]] == methods
    assert all(row.keys() >= ROW_KEYS for row in document["rows"])
    local, _, _, collaborative, _, released, own, _, _ = document["rows"]
    assert (released["model"], own["model"]) == ("released", "own")
    assert (own["epsilon"], own["delta"]) == (1.0, 1e-5)
    assert collaborative["objective"] == pytest.approx(document["optimum"], rel=1e-6)
    assert (local["updates"], local["vectors"]) == (0, 0)
    assert collaborative["updates"] == 1200
    assert {path.name for path in tmp_path.iterdir()} == {
        "metrics.json",
        "report.html",
        "convergence.svg",
        "by_size.svg",
        "gain.svg",
        "rate.svg",
    }
    assert "private, release_once (own)" in result.stdout
    assert "private, learned_prior (own)" in result.stdout
    assert result.stderr.count("(ε = 1, δ = 1e-05) differential privacy") == 2
    assert "NOT covered" not in result.stderr
    assert "The other rows are not differentially private" in result.stderr


def test_simulate_learns_from_a_table(rooms):
    _, out, result = rooms
    assert result.exit_code == 0
    document = json.loads((out / "metrics.json").read_text())
    rows = {row["method"]: row for row in document["rows"]}
    assert document["metric"] == "rmse"
    assert document["privacy"] == "none"
    assert rows["collaborative"]["rmse"] < rows["local"]["rmse"]
    assert rows["collaborative"]["objective"] == pytest.approx(document["optimum"], rel=1e-5)
    models = pq.read_table(out / "models.parquet")
    run = Trajectory.load(out / "run.npz")
    assert models.column("agent").to_pylist() == list(run.agent_names)
    np.testing.assert_array_equal(models.column(run.feature_names[0]).to_numpy(), run.models[:, 0])
    assert "taken as public" in (out / "report.html").read_text()


FOLDER = """
[data]
source = "samples/"
target = "y"
[graph]
kind = "random"
degree = 2
[objective]
tradeoff = 2.0
{bound}
[method]
name = "cd"
time = 4.0
[privacy]
kind = "none"
[engine]
name = "{engine}"
"""


def test_samples_in_a_folder_are_read_at_once_or_by_the_shards(tmp_path, monkeypatch):
    def here(engine, rule, settings, state):
        assert isinstance(rule.local, StoredData)
        return start_here(rule, settings, 1, state)

    monkeypatch.setattr("flockwise.engine.ray.start.start_run", here)
    monkeypatch.setattr(RayEngine, "missing", lambda self: None)
    columns = {"agent": np.repeat(list("abcd"), 5), "y": np.tile([1.0, -1, 1, 1, -1], 4)}
    table = pa.table(columns | {"x": np.linspace(-1, 1, 20), "z": np.cos(np.arange(20))})
    (tmp_path / "samples").mkdir()
    for part in (0, 10):
        pq.write_table(table.slice(part, 10), tmp_path / "samples" / f"{part}.parquet")
    made = {}
    for engine, bound in (("cpu", ""), ("ray", "feature_bound = 2.0")):
        config, out = tmp_path / f"{engine}.toml", tmp_path / engine
        config.write_text(FOLDER.format(engine=engine, bound=bound))
        result = invoke("simulate", config, "--out", out)
        assert result.exit_code == 0
        made[engine] = pq.read_table(out / "models.parquet")
        assert (out / "report.html").exists() == (engine == "cpu")
        assert ("The samples stay in their files" in result.stderr) == (engine == "ray")
    assert made["ray"]["agent"].to_pylist() == made["cpu"]["agent"].to_pylist() == list("abcd")
    config.write_text(FOLDER.format(engine="ray", bound=""))
    with pytest.raises(ConfigError, match="feature_bound: missing; where shards read the samples"):
        Config.read(config)


STAYING = QUICK.replace('name = "reference"', 'name = "ray"\nthreads = 1\ngather = false')


@pytest.fixture
def two_shards_here(monkeypatch):
    """Engine "ray" with its shards in this process."""

    def here(engine, rule, settings, state):
        options = {"parts": np.arange(6) // 3, "folder": engine.folder, "models": engine.models}
        return start_here(rule, settings, 2, state, **options)

    monkeypatch.setattr("flockwise.engine.ray.start.start_run", here)
    monkeypatch.setattr(RayEngine, "missing", lambda self: None)
    monkeypatch.setattr(ShardedRun, "_gathered", lambda self: pytest.fail("models are gathered"))


def learned(folder):
    """By agent, the models that shards have written."""
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["models-00000.parquet", "models-00001.parquet"]
    table = pa.concat_tables([pq.read_table(file) for file in files])
    return dict(zip(table["agent"].to_pylist(), table["x1"].to_pylist(), strict=True))


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
def test_models_stay_with_the_shards(tmp_path, quick, two_shards_here):
    alone, out = build(Config.read(quick)).simulate(), tmp_path / "out"
    quick.write_text(STAYING)
    result = invoke("simulate", quick, "--out", out)
    assert result.exit_code == 0
    assert "The models stay in" in result.stderr
    assert {file.name for file in out.iterdir()} == {"models", "records.parquet", "checkpoints"}
    assert list((out / "checkpoints").iterdir()) == []
    expected = dict(zip(alone.agent_names, np.asarray(alone.models)[:, 1], strict=True))
    assert learned(out / "models") == pytest.approx(expected, abs=1e-12)
    records = pq.read_table(out / "records.parquet")
    np.testing.assert_allclose(records["objective"], alone.column("objective"), rtol=1e-9)
    with pytest.raises(ConfigError, match="models: holds the models of an earlier run; name another folder"):
        invoke("simulate", quick, "--out", out)


def interrupted(out, config, monkeypatch):
    """A run that Ctrl-C ends at its fourth barrier."""
    left = iter([False] * 3)
    with monkeypatch.context() as patched:
        stop = nullcontext(lambda: next(left, True))
        patched.setattr(simulate_module, "stop_on_interrupt", lambda: stop)
        return invoke("simulate", config, "--out", out)


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
def test_a_run_whose_models_stay_with_the_shards_goes_on_where_it_was_interrupted(
    tmp_path, quick, two_shards_here, monkeypatch
):
    quick.write_text(STAYING)
    assert invoke("simulate", quick, "--out", tmp_path / "whole").exit_code == 0
    out = tmp_path / "out"
    result = interrupted(out, quick, monkeypatch)
    assert result.exit_code == INTERRUPTED
    assert "Saved after " in result.stderr
    assert [file.name for file in out.iterdir()] == ["checkpoints"]
    assert Checkpoint.read(out / "checkpoints").records[-1].time == 3.0
    with pytest.raises(ConfigError, match="checkpoints: holds an interrupted run"):
        invoke("simulate", quick, "--out", out)
    assert invoke("simulate", quick, "--out", out, "--resume").exit_code == 0
    assert learned(out / "models") == learned(tmp_path / "whole" / "models")
    assert pq.read_table(out / "records.parquet") == pq.read_table(tmp_path / "whole" / "records.parquet")


class Killed(Exception):
    """In place of a signal that nothing can catch."""


def killed(*_):
    raise Killed


def no_more_than_half_of_records(table, file, *, write_table=pq.write_table, **options):
    if "objective" in table.column_names:
        Path(file).write_bytes(b"PAR1")
        raise Killed
    write_table(table, file, **options)


@pytest.mark.filterwarnings("ignore::flockwise.errors.FlockwiseWarning")
def test_a_run_that_was_killed_after_its_models_were_written_goes_on(
    tmp_path, quick, two_shards_here, monkeypatch
):
    quick.write_text(STAYING)
    assert invoke("simulate", quick, "--out", tmp_path / "whole").exit_code == 0
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(simulate_module, "_finish_there", killed)
        with pytest.raises(Killed):
            interrupted(out, quick, monkeypatch)
    assert (out / "models").is_dir()
    with pytest.raises(ConfigError, match="checkpoints: holds an interrupted run"):
        invoke("simulate", quick, "--out", out)
    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", no_more_than_half_of_records)
        with pytest.raises(Killed):
            invoke("simulate", quick, "--out", out, "--resume")
    assert sorted(file.name for file in out.iterdir()) == ["checkpoints", "models"]
    with monkeypatch.context() as patched:
        patched.setattr(simulate_module, "remove_checkpoint", killed)
        with pytest.raises(Killed):
            invoke("simulate", quick, "--out", out, "--resume")
    assert (out / "models").is_dir()
    assert invoke("simulate", quick, "--out", out, "--resume").exit_code == 0
    assert learned(out / "models") == learned(tmp_path / "whole" / "models")
    assert pq.read_table(out / "records.parquet") == pq.read_table(tmp_path / "whole" / "records.parquet")
    assert list((out / "checkpoints").iterdir()) == []


def test_models_of_a_method_without_shards_cannot_stay_there(quick):
    quick.write_text(STAYING.replace('name = "cd"\nupdates = 10', 'name = "local"'))
    with pytest.raises(ConfigError, match=r'engine\.gather: got false; name = "local" has no shards'):
        Config.read(quick)


def test_a_refused_run_leaves_no_empty_folder(rooms, tmp_path):
    config, _, _ = rooms
    wrong = config.with_name("wrong.toml")
    wrong.write_text(config.read_text().replace('"warmth"', '"warm"'))
    with pytest.raises(DataError, match="no column 'warm'"):
        invoke("simulate", wrong, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["plan", "demo"])
def test_a_refused_plan_or_demo_leaves_no_empty_folder(command, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    options = {
        "plan": "--epsilon 1 --updates 5 --samples 100 --dimension 3 --json {}",
        "demo": "--agents 10",
    }

    def refused(*arguments):
        raise SimulationError("refused")

    monkeypatch.setattr(demo_module, "_choose_tradeoff", refused)
    options = options[command].format(tmp_path / "file" / "plan.json").split()
    with pytest.raises((SimulationError, OSError)):
        invoke(command, *options, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_engine_that_is_not_installed_is_named_before_the_data_are_read(quick, tmp_path, monkeypatch):
    absent = SimulationError("it is not installed")
    monkeypatch.setattr(type(ENGINES["reference"]), "missing", lambda self: absent)
    monkeypatch.setattr(simulate_module, "build", None)
    with pytest.raises(SimulationError, match="not installed"):
        invoke("simulate", quick, "--out", tmp_path / "out")


def test_a_finished_run_resumes_to_itself(rooms):
    config, out, _ = rooms
    before = Trajectory.load(out / "run.npz")
    assert invoke("simulate", config, "--out", out, "--resume").exit_code == 0
    after = Trajectory.load(out / "run.npz")
    assert after.records == before.records
    np.testing.assert_array_equal(after.models, before.models)


def test_files_of_others_are_left_alone(quick, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    (out / "metrics.json").write_text("old")
    assert invoke("simulate", quick, "--out", out, "--no-baselines").exit_code == 0
    assert (out / "thesis.tex").read_text() == "precious"
    document = json.loads((out / "metrics.json").read_text())
    assert [row["method"] for row in document["rows"]] == ["collaborative"]
    assert not list(out.glob("*.part"))


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("local", ["tuned_local", "global", "local"]),
        ("propagation", ["local", "tuned_local", "global", "propagation"]),
    ],
)
def test_every_method_has_a_report(quick, tmp_path, name, methods):
    stop = "" if name == "local" else "time = 3.0\nrecord_every = 0.5"
    quick.write_text(QUICK.replace('name = "cd"\nupdates = 10', f'name = "{name}"\n{stop}'))
    assert invoke("simulate", quick, "--out", tmp_path / "out").exit_code == 0
    document = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert [row["method"] for row in document["rows"]] == methods
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_graph_without_edges_has_a_report_without_global(quick, tmp_path):
    edgeless = QUICK.replace('from = "targets"', 'from = "targets"\nthreshold = 1.0')
    quick.write_text(edgeless)
    experiment = build(Config.read(quick))
    assert experiment.problem.neighbors.n_edges == 0
    assert [run.method for run in simulate_module._baselines(experiment, wanted=True)] == [
        "local",
        "tuned_local",
    ]
    quick.write_text(edgeless.replace('name = "cd"\nupdates = 10', 'name = "local"'))
    result = invoke("simulate", quick, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "no edges" in result.stderr
    assert (tmp_path / "out" / "report.html").is_file()


def test_the_smallest_demo_has_an_edge_whatever_its_targets():
    angles = np.linspace(0, 2 * np.pi, FEWEST_AGENTS, endpoint=False)  # as far apart as they can be
    assert angular_graph(np.column_stack([np.cos(angles), np.sin(angles)])).n_edges
    too_few = invoke("demo", "--out", "out", "--agents", FEWEST_AGENTS - 1)
    assert too_few.exit_code == 2


def test_an_interrupted_run_is_not_overwritten(quick, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    build(Config.read(quick)).simulate(should_stop=lambda: True).save(out / "run.npz")
    saved = (out / "run.npz").read_bytes()
    monkeypatch.setattr("sys.argv", ["flockwise", "simulate", str(quick), "--out", str(out)])
    with pytest.raises(SystemExit) as caught:
        app_module.main()
    assert caught.value.code == 1
    assert "interrupted run; go on with it by --resume, or name another folder" in capsys.readouterr().err
    assert (out / "run.npz").read_bytes() == saved
    assert invoke("simulate", quick, "--out", out, "--resume").exit_code == 0
    assert invoke("simulate", quick, "--out", out).exit_code == 0  # a finished run may be repeated


def keep_checkpoint(config, out, units):
    """As a driver leaves it that is lost after so many units of time."""
    experiment = build(Config.read(config))
    settings = RunSettings(1, 10, threads=1)
    rule: Any = experiment.method.prepare(experiment.problem, 1).rule
    folder = out / simulate_module.CHECKPOINTS
    sharded = start_here(rule, settings, 1, folder=folder, checkpoint_every=0.0)
    left = iter([False] * units)
    run = experiment.simulate(should_stop=lambda: next(left, True))
    sharded.advance(int(run.state["now"]))
    about = {"settings": dict(run.settings), "problem_fingerprint": run.problem_fingerprint}
    records = [asdict(record) for record in run.records]
    sharded.keep(lambda: {**about, "now": int(run.state["now"]), "records": records})
    return run


def test_resume_goes_on_from_the_checkpoint_of_a_driver_that_was_lost_after_the_run_was_saved(
    quick, tmp_path, capsys
):
    out = tmp_path / "out"
    file = out / "run.npz"
    early, late = (keep_checkpoint(quick, tmp_path / name, units) for units, name in ((2, "a"), (4, "b")))
    early.save(file)
    shutil.copytree(tmp_path / "b" / "checkpoints", out / "checkpoints")
    found = simulate_module._saved_run(file, resume=True)
    assert found is not None
    assert int(found.state["now"]) == int(late.state["now"]) > int(early.state["now"])
    next((out / "checkpoints").glob("shard-*")).unlink()
    damaged = simulate_module._saved_run(file, resume=True)
    assert isinstance(damaged, Trajectory)
    assert "run.npz is older and whole" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"run\.npz: holds an interrupted run"):
        simulate_module._saved_run(file, resume=False)


def test_a_run_that_is_saved_takes_the_place_of_its_checkpoint(quick, tmp_path):
    out = tmp_path / "out"
    keep_checkpoint(quick, out, 4)
    assert invoke("simulate", quick, "--out", out, "--resume", "--no-baselines").exit_code == 0
    assert list((out / "checkpoints").iterdir()) == []
    assert isinstance(simulate_module._saved_run(out / "run.npz", resume=True), Trajectory)
    assert simulate_module._saved_run(out / "run.npz", resume=False) is None  # finished, and may be repeated


def test_checkpoints_of_a_lost_driver_are_not_overwritten(quick, tmp_path):
    keep_checkpoint(quick, tmp_path, 2)
    with pytest.raises(ConfigError, match="checkpoints: holds an interrupted run; go on with it by --resume"):
        simulate_module._saved_run(tmp_path / "run.npz", resume=False)


def test_a_run_without_test_samples_has_a_report(quick, tmp_path):
    quick.write_text(QUICK.replace("dimension = 2", "dimension = 2\ntest_samples = 0"))
    result = invoke("simulate", quick, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["rows"][0]["accuracy"] is None
    assert "There are no test samples" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("command", [[], ["demo"], ["simulate"]])
def test_every_command_has_help(command):
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_the_version_is_said():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("flockwise ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simulate", "missing.toml", "--out", "out"), "missing.toml: there is no such file"),
        (("simulate", "quick.toml", "--out", "quick.toml"), "--out quick.toml: is a file; name a folder"),
        (
            ("simulate", "quick.toml", "--out", "out", "--resume"),
            "out/run.npz: there is no saved run to resume; start one without --resume",
        ),
    ],
)
def test_a_refusal_is_one_line_and_code_1(quick, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(quick.parent)
    monkeypatch.setattr("sys.argv", ["flockwise", *arguments])
    with pytest.raises(SystemExit) as caught:
        app_module.main()
    assert caught.value.code == 1
    printed = capsys.readouterr()
    assert printed.err == words + "\n"
    assert printed.out == ""


def test_a_run_of_another_problem_cannot_be_resumed(quick, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert invoke("simulate", quick, "--out", out).exit_code == 0
    saved = (out / "run.npz").read_bytes()
    quick.write_text(QUICK.replace("tradeoff = 2.0", "tradeoff = 3.0"))
    monkeypatch.setattr("sys.argv", ["flockwise", "simulate", str(quick), "--out", str(out), "--resume"])
    with pytest.raises(SystemExit) as caught:
        app_module.main()
    assert caught.value.code == 1
    assert "belongs to another problem" in capsys.readouterr().err
    assert (out / "run.npz").read_bytes() == saved


def test_help_lists_every_command_and_loads_no_large_library():
    large = ("numba", "scipy", "numpy", "pandas", "matplotlib", "zenoh")
    code = (
        "import sys\n"
        "from flockwise.cli import main\n"
        "sys.argv = ['flockwise', '--help']\n"
        "try:\n    main()\nfinally:\n"
        f"    print('loaded:', [name for name in {large} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("loaded: []\n"), done.stdout + done.stderr
    assert all(f" {name} " in done.stdout for name in app_module.COMMANDS)


@pytest.mark.parametrize("name", app_module.COMMANDS)
def test_the_line_in_the_list_of_commands_begins_the_help_of_the_command(name):
    assert app_module.load_command(name).help.startswith(app_module.COMMANDS[name])


def test_a_command_says_once_that_it_compiles_and_only_if_it_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FLOCKWISE_CACHE", str(tmp_path))
    for words in (1, 0):  # the second time the code is on disk
        app_module.load_command("demo")
        twice = code_cache.compiled()(double)
        assert (twice(1), twice(1.5)) == (2, 3.0)
        assert capsys.readouterr().err.count("compiling for this machine, once") == words


def double(number):
    return 2 * number
