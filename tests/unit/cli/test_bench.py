"""`flockwise bench` runs and writes its numbers; what they are is not a matter for a test."""

import json
import os
import sys
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks import gpu, peers, start
from benchmarks.engine import MEANINGS, ONE_THREAD, in_own_process, private_descent, start_run
from benchmarks.growth import measure, start_seconds
from benchmarks.peer_jobs import flockwise_job, numpy_job
from benchmarks.peer_jobs.job import Job
from benchmarks.workload import benchmark_problem
from typer.testing import CliRunner

from flockwise.cli.app import app
from flockwise.engine import ENGINES
from flockwise.errors import FlockwiseError

KEYS = {
    "updates_per_second",
    "bytes_per_update",
    "bandwidth_gb_s",
    "machine_bandwidth_gb_s",
    "bandwidth_share",
    "numpy_ratio",
}


@pytest.mark.slow
def test_bench_engine_writes_its_numbers(tmp_path):
    file = tmp_path / "engine.json"
    options = ["--agents", "3000", "--dimension", "7", "--degree", "4", "--threads", "2", "--json", str(file)]
    done = CliRunner().invoke(app, ["bench", "engine", *options])
    assert done.exit_code == 0, done.output
    result = json.loads(file.read_text())
    assert result.keys() >= KEYS
    assert MEANINGS.keys() <= result.keys()
    assert all(result[key] > 0 for key in KEYS)
    mean_samples = (result["bytes_per_update"] / 4 - (result["degree"] + 2) * 7) / 8
    assert 50 < mean_samples < 60
    assert result["bandwidth_share"] == pytest.approx(
        result["updates_per_second"] * result["bytes_per_update"] / result["machine_bandwidth_gb_s"] / 1e9
    )


def test_bench_start_measures_the_first_two_examples_of_the_readme(monkeypatch):
    ran = []
    monkeypatch.setattr(start, "_seconds", lambda folder, *arguments: ran.append(arguments) or 2.5)
    done = CliRunner().invoke(app, ["bench", "start"])
    assert done.exit_code == 0, done.output
    assert all(f"{name}_next_seconds" in done.output for name in start.EXAMPLES)
    five, ten = (code for (option, code), _ in groupby(one[:2] for one in ran) if option == "-c")
    assert "PersonalizedClassifier(" in five
    assert "fw.simulate(" in ten
    assert ran[-1] == ("-m", "flockwise.cli", "--help")


def test_bench_gpu_says_what_to_install_where_it_cannot_run():
    missing = ENGINES["gpu"].missing()
    if missing is None:
        pytest.skip("the gpu engine runs here")
    done = CliRunner().invoke(app, ["bench", "gpu"])
    assert done.exit_code != 0
    assert str(missing) in " ".join(str(done.exception or done.output).split())


def test_every_tuning_of_a_private_case_is_measured_in_both_halves_of_its_plan(monkeypatch):
    """On the cpu engine: this is about which updates are measured."""
    spans = []

    def start(rule, settings):
        run = ENGINES["cpu"].start(rule, settings)
        advance = run.advance

        def advance_and_note(until):
            status = advance(until)
            spans.append(run.result().updates.mean())
            return status

        return SimpleNamespace(advance=advance_and_note, tune=lambda **changed: None)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None)))
    monkeypatch.setattr(gpu, "ENGINES", {"gpu": SimpleNamespace(start=start)})
    problem = benchmark_problem(200, 4, 4)
    rule: Any = private_descent(problem, gpu.PLANNED_UPDATES)
    tunings = [f"rows={rows}" for rows in range(1, 7)]
    rows = list(gpu.measure("private", problem, rule, tunings))
    assert [row["tuning"] for row in rows] == tunings
    assert spans == spans[:2] * len(tunings)
    assert spans[0] == pytest.approx(rule.noise.tail_start - gpu.MEASURED / 2, abs=1)
    assert spans[1] == pytest.approx(rule.noise.tail_start + gpu.MEASURED / 2, abs=1)


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"])
def test_a_process_of_its_own_has_one_thread_for_matrices_and_compiled_loops(name):
    assert in_own_process(os.getenv, name, environment=ONE_THREAD) == "1"


def test_a_measurement_that_fails_says_why():
    with pytest.raises(FlockwiseError, match=r"getsize failed with code 1:(.|\n)*/no/such/file"):
        in_own_process(os.path.getsize, "/no/such/file")


def test_a_start_ends_before_the_first_update(monkeypatch):
    started = []

    def start(*arguments):
        started.append(start_run(*arguments))
        return started[0]

    monkeypatch.setattr("benchmarks.growth.start_run", start)
    assert start_seconds(benchmark_problem(50, 4, 4), 1) > 0
    [run] = started
    assert run.updates.sum() == 0
    assert run._team.earlier.max() > 0  # who ticks before whom has been counted


@pytest.mark.slow
def test_bench_growth_measures_one_size():
    row = measure(2000)
    assert row["agents"] == 2000
    assert row["memory_ratio"] > 1
    assert row["seconds_per_update"] > 0


def test_a_peer_that_does_not_run_is_listed_with_the_reason(monkeypatch, tmp_path):
    none = peers.Peer("nobody", "no_such_job", (), "nothing")
    monkeypatch.setattr(peers, "PEERS", (none,))
    [row] = peers.run(agents=12, rounds=1, repeats=2)["rows"]
    assert row["failure"].endswith("No module named benchmarks.peer_jobs.no_such_job")


def test_what_other_software_is_compared_with_does_the_same_job_as_the_numpy_loop():
    job = Job(agents=30, samples=7, features=5, neighbors=10, rounds=3)
    rounds, models = flockwise_job.work(job)
    numpy_rounds, numpy_models = numpy_job.work(job)
    assert [end.updates for end in rounds.ends[:2]] == [end.updates for end in numpy_rounds.ends[:2]]
    assert rounds.are_enough
    assert numpy_rounds.are_enough
    np.testing.assert_allclose(models, numpy_models, rtol=1e-4, atol=1e-6)
    assert job.loss(models) < np.log(2)
