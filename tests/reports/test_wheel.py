"""The package as others get it: a wheel in an environment of its own, away from the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.reports

ROOT = Path(__file__).parents[2]
EXTRAS = "graphs,sklearn"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a user works: the example files and nothing else."""
    made = tmp_path_factory.mktemp("user")
    shutil.copytree(ROOT / "examples", made / "examples")
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory, folder):
    """Runs a program of the new environment in the user's folder."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", place / "env"], check=True)
    # The pinned versions, without their hashes: a wheel that was just built has none.
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE)
    (place / "pins.txt").write_text("\n".join(pins))
    pip = [place / "env" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-qq"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", place, ROOT], check=True)
    [wheel] = place.glob("flockwise-*.whl")
    subprocess.run([*pip, "install", "-c", place / "pins.txt", f"{wheel}[{EXTRAS}]", "pandas"], check=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run_there(program, *arguments):
        return subprocess.run(
            [place / "env" / "bin" / program, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run_there


def test_the_python_of_the_readme_runs_from_a_wheel(run):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    code = "import flockwise; print(flockwise.__file__)\n" + "\n".join(blocks)
    done = run("python", "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    where, *printed = done.stdout.splitlines()
    assert "site-packages" in where
    assert printed


def test_a_configured_run_writes_its_report_from_a_wheel(run, folder):
    done = run("flockwise", "simulate", "examples/rooms.toml", "--out", "out")
    assert done.returncode == 0, done.stderr
    [sentence] = [
        line for line in done.stdout.splitlines() + done.stderr.splitlines() if "agents better" in line
    ]
    page = (folder / "out" / "report.html").read_text()
    assert sentence in page.replace("\u00a0", " ")  # a gain and its error stay on one line


@pytest.mark.parametrize("command", [("bench", "start"), ("reproduce", "fig1", "--out", "out")])
def test_a_command_that_needs_the_repository_says_so_in_one_line(run, command):
    done = run("flockwise", *command)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "clone" in done.stderr
