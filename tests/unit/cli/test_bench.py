"""`flockwise bench` runs and writes its numbers; what they are is not a matter for a test."""

import json
import os

import pytest
from benchmarks.engine import ONE_THREAD, in_own_process
from benchmarks.growth import measure
from typer.testing import CliRunner

from flockwise.cli.app import app
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
    assert all(result[key] > 0 for key in KEYS)
    mean_samples = (result["bytes_per_update"] / 4 - (result["degree"] + 2) * 7) / 8
    assert 50 < mean_samples < 60
    assert result["bandwidth_share"] == pytest.approx(
        result["updates_per_second"] * result["bytes_per_update"] / result["machine_bandwidth_gb_s"] / 1e9
    )


def test_a_process_of_its_own_has_one_thread_for_matrices():
    wanted = in_own_process(os.getenv, "OPENBLAS_NUM_THREADS", environment=ONE_THREAD)
    assert wanted == "1"


def test_a_measurement_that_fails_says_why():
    with pytest.raises(FlockwiseError, match=r"getsize failed with code 1:(.|\n)*/no/such/file"):
        in_own_process(os.path.getsize, "/no/such/file")


@pytest.mark.slow
def test_bench_growth_measures_one_size():
    row = measure(2000)
    assert row["agents"] == 2000
    assert row["memory_ratio"] > 1
    assert row["seconds_per_update"] > 0
