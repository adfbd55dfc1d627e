"""Runs on Ray: the same to the last bit on any number of workers and machines, whoever is killed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.populations import write_population
from tests.cluster import driver, limited
from tests.cluster.worlds import ENVIRONMENT, ROOT, World, can_make_machines, kill, wait_for, world

import flockwise as fw
from flockwise.config import Config, build

pytestmark = [
    pytest.mark.cluster,
    # Where all has to be tested they fail instead.
    pytest.mark.skipif(
        os.environ.get("CI") != "true" and not can_make_machines(),
        reason="making network namespaces needs root on Linux",
    ),
]

# To wait for what a busy machine does late; a test that passes takes a fraction of this.
SECONDS = 1500.0
NODE_STARTS = 4
# What each process may use where the data are three times as large.
MEGABYTES = 1000


@pytest.fixture(scope="module")
def alone():
    """By method, the run on one machine."""
    return {name: driver.simulate(name) for name in ("cd", "private", "propagation")}


def drive(made: World, folder: Path, number: int = 0, **given) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    options = [f"{key}={value}" for key, value in given.items()]
    command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.driver", str(folder), *options]
    return made.start(number, command, folder / "driver.log")


def finished(process: subprocess.Popen[bytes], folder: Path) -> fw.Trajectory:
    code = process.wait(SECONDS)
    assert code == 0, (folder / "driver.log").read_text()[-3000:]
    return fw.Trajectory.load(folder / "run.npz")


def assert_same(run: fw.Trajectory, alone: fw.Trajectory) -> None:
    np.testing.assert_array_equal(np.asarray(run.models), np.asarray(alone.models))
    np.testing.assert_array_equal(run.updates, alone.updates)
    for name in ("time", "ticks", "vectors", "bytes"):
        np.testing.assert_array_equal(run.column(name), alone.column(name))
    for name in ("objective", "metric", "metric_sd"):
        np.testing.assert_allclose(run.column(name), alone.column(name), rtol=1e-12)
    if alone.own_models is not None:
        np.testing.assert_array_equal(np.asarray(run.own_models), np.asarray(alone.own_models))
        assert run.guarantee == alone.guarantee


def progress(folder: Path) -> int:
    """Ticks done when the last super-step ended."""
    lines = (folder / "progress").read_text().split() if (folder / "progress").exists() else []
    return int(lines[-1]) if lines else 0


def has_checkpoint(folder: Path) -> bool:
    return (folder / "checkpoints" / "checkpoint.json").exists()


def shard_processes(made: World, number: int = 0) -> list[int]:
    """Ray names the process of an actor after its class."""
    return sorted(made.called(number, "ray::ShardActor"))


JOBS = ("cd-1", "cd-2", "cd-4", "private-2", "propagation-2")


@pytest.fixture(scope="module")
def local_runs(tmp_path_factory):
    """By job, the runs of one driver that starts a cluster of its own."""
    folder = tmp_path_factory.mktemp("jobs")
    with world() as made:
        process = drive(made, folder, jobs=",".join(JOBS))
        code = process.wait(SECONDS)
    assert code == 0, (folder / "driver.log").read_text()[-3000:]
    return {job: fw.Trajectory.load(folder / job / "run.npz") for job in JOBS}


@pytest.mark.parametrize("job", JOBS)
def test_local_workers_give_the_run_of_one_machine(job, local_runs, alone):
    run, (method, shards) = local_runs[job], job.split("-")
    assert_same(run, alone[method])
    assert run.settings["shards"]["count"] == int(shards)
    assert run.settings["shards"]["losses"] == 0


def test_the_lines_of_the_page_run_on_two_shards(tmp_path):
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "performance.md").read_text(), re.DOTALL)
    names = "import flockwise as fw\nfrom tests.cluster import driver\n"
    names += "(problem, _), method = driver.task(), fw.CoordinateDescent()\n"
    where = f"import os\nos.chdir({str(tmp_path)!r})\n"
    with world() as made:
        command = [sys.executable, "-W", "ignore", "-c", f"{names}{where}{code}\nrun.save('run.npz')\n"]
        run = finished(made.start(0, command, tmp_path / "driver.log"), tmp_path)
    assert run.settings["shards"]["count"] == 2
    assert (tmp_path / "checkpoints").is_dir()


def test_a_killed_worker_reads_its_samples_anew_and_the_run_is_the_same(alone, tmp_path):
    given = {"samples": tmp_path / "samples", "models": tmp_path / "models"}
    driver.write_samples(given["samples"])
    with world() as made:
        process = drive(made, tmp_path, shards=2, hold=1, method="private", **given)
        wait_for(lambda: has_checkpoint(tmp_path), SECONDS, "the first checkpoint")
        shards = shard_processes(made)
        assert len(shards) == 2
        kill(shards[1])
        (tmp_path / "go").touch()
        run = finished(process, tmp_path)
    assert run.settings["shards"]["losses"] >= 1
    assert_same(run, alone["private"])
    written = sorted(file.name for file in given["models"].iterdir())
    assert written == [f"{kind}-0000{k}.parquet" for kind in ("models", "own-models") for k in range(2)]


def test_a_damaged_file_is_named_and_nothing_is_written(tmp_path):
    folder = tmp_path / "run"
    driver.write_samples(tmp_path / "samples")
    file = tmp_path / "samples" / "1.parquet"
    content = bytearray(file.read_bytes())
    content[200:300] = bytes(100)
    file.write_bytes(content)
    with world() as made:
        process = drive(made, folder, shards=2, samples=tmp_path / "samples", models=folder / "models")
        assert process.wait(SECONDS) != 0
    words = (folder / "driver.log").read_text()
    assert f"{file} is damaged or cannot be read" in words
    assert "Unhandled error" not in words, "it is said once, though no shard can read it"
    assert sorted(found.name for found in folder.iterdir()) == ["driver.log", "progress"]


def test_a_run_on_three_times_the_memory_of_a_process_is_that_on_one_machine(tmp_path):
    write_population(tmp_path / "data", 145_000, 100, 55)
    population = limited.problem(tmp_path / "data").population
    assert population.n_samples * (population.n_features + 1) * 4 >= 3 * (MEGABYTES << 20)
    with world() as made:
        options = [str(tmp_path / "data"), str(MEGABYTES), "7"]
        command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.limited", *options]
        log = tmp_path / "driver.log"
        code = made.start(0, command, log).wait(SECONDS)
    assert code == 0, log.read_text()[-3000:]
    assert "the samples do not fit" in log.read_text()
    told = json.loads((tmp_path / "data" / "run.json").read_text())
    assert (told["shards"]["count"], told["shards"]["losses"]) == (7, 0)
    alone = limited.simulate(tmp_path / "data", "cpu")
    np.testing.assert_allclose(told["records"], alone.column("objective"), rtol=1e-9)
    files = (tmp_path / "data" / "models").glob("models-*.parquet")
    parts = pa.concat_tables([pq.read_table(file) for file in sorted(files)])
    order = np.argsort(parts["agent"].to_numpy().astype(int))
    models = np.column_stack([parts[f"x{k}"].to_numpy() for k in range(population.n_features)])
    np.testing.assert_array_equal(models[order], np.asarray(alone.models))
    shutil.rmtree(tmp_path / "data")


@pytest.fixture(scope="module")
def two_machines():
    """Two machines with a Ray node each."""
    # Ray's sockets lie in this folder, and their names have to be short.
    folder = Path(f"/tmp/fw{os.getpid()}")
    with world(machines=2) as made:
        bring_up(made, 0, folder)
        bring_up(made, 1, folder)
        yield made
    shutil.rmtree(folder)


def bring_up(made: World, number: int, folder: Path) -> None:
    """A node on this machine. Ray ends one that is not there after half a minute, as on a busy machine."""
    for _ in range(NODE_STARTS):
        made.start_node(number, folder)
        wait_for(lambda: made.has_ended(number) or is_up(made, number + 1), SECONDS, f"node {number}")
        if not made.has_ended(number):
            return
        made.kill_machine(number)
    pytest.fail((folder / f"node{number}.log").read_text()[-3000:])


def is_up(made: World, count: int) -> bool:
    """Whether so many nodes are part of the cluster."""
    command = "import ray,sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR'); "
    command += "print(sum(node['Alive'] for node in ray.nodes()))"
    python = [sys.executable, "-W", "ignore", "-c", command, made.cluster]
    asked = subprocess.run(
        made.inside(0, python), capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    sys.stdout.write(asked.stderr[-2000:])
    return asked.returncode == 0 and int(asked.stdout.split()[-1]) >= count


def test_two_machines_give_the_run_of_one(two_machines, alone, tmp_path):
    run = finished(drive(two_machines, tmp_path, address=two_machines.cluster), tmp_path)
    assert run.settings["shards"]["count"] == 2, "one shard for each machine"
    assert_same(run, alone["cd"])


def test_a_killed_driver_goes_on_from_its_checkpoint(two_machines, alone, tmp_path):
    process = drive(two_machines, tmp_path, address=two_machines.cluster, method="private", hold=1)
    wait_for(lambda: has_checkpoint(tmp_path), SECONDS, "the first checkpoint")
    kill(process.pid)
    process.wait(SECONDS)
    assert not (tmp_path / "run.npz").exists()
    before = progress(tmp_path)
    again = drive(two_machines, tmp_path, address=two_machines.cluster, method="private", resume=1, shards=3)
    run = finished(again, tmp_path)
    assert 0 < before < progress(tmp_path)
    assert run.settings["shards"]["count"] == 3
    assert_same(run, alone["private"])


CONFIGURATION = """
[data]
source = "synthetic"
agents = 400
dimension = 10
test_samples = 10

[graph]
kind = "knn"
from = "targets"
k = 5

[objective]
loss = "logistic"
tradeoff = 1.0

[method]
name = "cd"
time = {time}

[privacy]
kind = "none"

[engine]
name = "{engine}"
threads = 1
"""


def test_the_command_runs_on_a_cluster_and_goes_on_after_its_end(two_machines, tmp_path):
    config, out = tmp_path / "run.toml", tmp_path / "out"
    # Without an end that it could reach before it is killed.
    config.write_text(CONFIGURATION.format(time=1e5, engine="ray"))
    command = [sys.executable, "-W", "ignore", "-m", "flockwise.cli", "simulate", str(config)]
    command += ["--out", str(out), "--no-baselines", "--address", two_machines.cluster]
    first = two_machines.start(0, command, tmp_path / "first.log")
    wait_for((out / "checkpoints" / "checkpoint.json").exists, SECONDS, "the first checkpoint")
    kill(first.pid)
    first.wait(SECONDS)
    assert not (out / "run.npz").exists()
    config.write_text(CONFIGURATION.format(time=4.0, engine="ray"))
    second = two_machines.start(0, [*command, "--resume", "--shards", "3"], tmp_path / "second.log")
    words = tmp_path / "second.log"
    assert second.wait(SECONDS) == 0, words.read_text()[-3000:]
    assert "3 shards: " in words.read_text()
    assert "balance" in words.read_text()
    config.write_text(CONFIGURATION.format(time=4.0, engine="cpu"))
    alone = build(Config.read(config)).simulate()
    run = fw.Trajectory.load(out / "run.npz")
    np.testing.assert_array_equal(np.asarray(run.models), np.asarray(alone.models))


def test_a_killed_machine_sets_all_back_to_the_checkpoint_and_the_run_is_the_same(
    two_machines, alone, tmp_path
):
    process = drive(two_machines, tmp_path, address=two_machines.cluster, hold=1)
    wait_for(lambda: has_checkpoint(tmp_path), SECONDS, "the first checkpoint")
    assert [len(shard_processes(two_machines, number)) for number in range(2)] == [1, 1]
    two_machines.kill_machine(1)
    (tmp_path / "go").touch()
    run = finished(process, tmp_path)
    assert run.settings["shards"]["losses"] >= 1
    assert_same(run, alone["cd"])


def test_a_cluster_that_does_not_answer_is_named(tmp_path):
    with world() as made:
        process = drive(made, tmp_path, address="10.77.0.1:6399")
        assert process.wait(SECONDS) != 0
    words = (tmp_path / "driver.log").read_text()
    assert "no Ray cluster answers at '10.77.0.1:6399'" in words
    assert not has_checkpoint(tmp_path)
