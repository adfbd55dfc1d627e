"""Ctrl-C to the real program: it saves, and the resumed run ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import flockwise
from flockwise.config import Config, build
from flockwise.results.trajectory import Trajectory

# The oracle engine needs no compiler and takes its time: there is a run to interrupt.
LONG = """
seed = 4
[data]
source = "synthetic"
agents = 12
dimension = 3
[graph]
kind = "angular"
from = "targets"
[objective]
tradeoff = 2.0
[method]
name = "cd"
updates = 500
record_every = 5.0
[privacy]
kind = "none"
[engine]
name = "reference"
delay = 0.5
loss = 0.1
"""


def start(*arguments, cwd):
    source = Path(flockwise.__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, "-m", "flockwise.cli", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    return tmp_path


def wait_for(process, words):
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"the program ended without {words!r}")


def interrupt(folder, *options, after):
    """Press Ctrl-C that many seconds after the run has begun; what it saved."""
    process = start("simulate", "long.toml", "--out", "out", *options, cwd=folder)
    wait_for(process, "preparing")  # what comes next is the run
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert "flockwise simulate long.toml --out out --resume" in errors
    assert [path.name for path in (folder / "out").iterdir()] == ["run.npz"]
    return Trajectory.load(folder / "out" / "run.npz")


@pytest.mark.slow
def test_ctrl_c_saves_and_resume_goes_on_bit_for_bit(folder):
    interrupted = interrupt(folder, after=0.5)
    for pause in (2, 8, 32):  # a busy machine had no time for the first record
        if interrupted.final.ticks:
            break
        interrupted = interrupt(folder, "--resume", after=pause)
    assert interrupted.stopped == "interrupted"
    assert 0 < interrupted.final.ticks < 6_000

    resumed = start("simulate", "long.toml", "--out", "out", "--resume", "--no-baselines", cwd=folder)
    output, errors = resumed.communicate(timeout=600)
    assert resumed.returncode == 0, errors
    assert "collaborative" in output
    assert "Traceback" not in errors
    ended = Trajectory.load(folder / "out" / "run.npz")
    expected = build(Config.read(folder / "long.toml")).simulate()
    assert ended.records == expected.records
    np.testing.assert_array_equal(ended.models, expected.models)
    np.testing.assert_array_equal(ended.updates, expected.updates)


def test_a_second_ctrl_c_stops_at_once(folder):
    # One barrier in a run of hours: the first Ctrl-C would have to wait for it.
    endless = LONG.replace("record_every = 5.0", "record_every = 1e5").replace("updates = 500", "time = 1e5")
    (folder / "long.toml").write_text(endless)
    process = start("simulate", "long.toml", "--out", "out", cwd=folder)
    wait_for(process, "preparing")  # what comes next is the run
    for _ in range(2):
        time.sleep(1)
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "press Ctrl-C again to stop at once" in errors
    assert "Traceback" not in errors
    assert list((folder / "out").iterdir()) == []
