"""Parts from outside the package, through public registration alone: see toy_parts.py.

Every test runs in a process of its own, where the toys are installed like any other package: a folder on the
path with an entry point in the group "flockwise".
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONFIGURATION = """
seed = 3

[data]
source = "synthetic"
agents = 20
dimension = 3

[graph]
kind = "toy_kernel"
from = "targets"
width = 0.5

[objective]
loss = "toy_hinge"
rounding = 0.7
feature_bound = 2.0
max_samples = 100

[method]
{method}

[privacy]
kind = "dp"
epsilon = 1.0
delta = 1e-5
{privacy}
"""
TOY_METHOD = 'name = "toy_method"\nkind = "toy_mean"\nlength = 2.0'
DESCENT = 'name = "cd"\nupdates = 3'
TOY_NOISE = 'mechanism = "toy_noise"\naccountant = "kov"'
NOT_OURS = "Sensitivity as declared by toy_parts: it was not checked by Flockwise."


def outside(*arguments: str, cwd: Path = ROOT, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def flockwise(*arguments: str, cwd: Path) -> str:
    """All that a command prints."""
    done = outside("-m", "flockwise.cli", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("suite", "least"),
    [
        ("tests/parity/test_conformance.py", 30),
        ("tests/unit/objective", 5),
        ("tests/unit/privacy", 5),
        ("tests/unit/release", 3),
        ("tests/unit/graph", 1),
        ("tests/unit/randomness", 1),
    ],
)
def test_the_suites_that_walk_the_registries_test_the_toys_too(suite, least):
    done = outside("-m", "pytest", "-p", "toy_parts", "-p", "no:xdist", "-q", "-k", "toy", suite)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(done.stdout.rpartition(" passed")[0].split()[-1])
    assert passed >= least


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("method", "privacy"),
    [(TOY_METHOD, ""), (DESCENT, TOY_NOISE)],
    ids=["method and statistic", "mechanism"],
)
def test_a_configuration_names_them_and_the_guarantee_says_whose_word_it_is(
    tmp_path, engine, method, privacy
):
    text = CONFIGURATION.format(method=method, privacy=privacy) + f'\n[engine]\nname = "{engine}"\n'
    (tmp_path / "toy.toml").write_text(text)
    printed = flockwise("simulate", "toy.toml", "--out", "out", cwd=tmp_path)
    assert NOT_OURS in printed
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert NOT_OURS in json.dumps(metrics)
    report = (tmp_path / "out" / "report.html").read_text()
    assert "declared by toy_parts" in report
    for name in ("toy_kernel", "toy_hinge", "toy_method" if method == TOY_METHOD else "toy_noise"):
        assert name in report


def test_a_plan_tries_the_method(tmp_path):
    text = CONFIGURATION.format(method='name = "auto"', privacy="")
    (tmp_path / "toy.toml").write_text(text)
    flockwise("plan", "--problem", "toy.toml", "--json", "plan.json", cwd=tmp_path)
    (group,) = json.loads((tmp_path / "plan.json").read_text())["groups"]
    tried = group["candidates"] + group["fell_behind"]
    assert "toy_method" in {row["method"] for row in tried}


def test_a_wrong_value_of_theirs_is_refused_like_one_of_ours(tmp_path):
    text = CONFIGURATION.format(method=TOY_METHOD, privacy="").replace("width = 0.5", "width = -1")
    (tmp_path / "toy.toml").write_text(text.replace("length = 2.0", 'length = "long"'))
    done = outside("-m", "flockwise.cli", "simulate", "toy.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert "graph.width: got -1; allowed: a number above 0" in done.stderr
    assert 'method.length: got "long"; allowed: a number above 0' in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_the_package_its_names_are_unknown(tmp_path):
    (tmp_path / "toy.toml").write_text(CONFIGURATION.format(method=TOY_METHOD, privacy=""))
    done = subprocess.run(
        [sys.executable, "-m", "flockwise.cli", "simulate", "toy.toml", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert 'objective.loss: got "toy_hinge"; allowed:' in done.stderr
    assert 'graph.kind: got "toy_kernel"; allowed:' in done.stderr


def test_the_loss_trains_predicts_and_is_saved_by_its_name(tmp_path):
    code = """
import numpy as np, toy_parts, flockwise as fw
task = fw.linear_classification(40, 20, seed=0, test_samples=200)
problem = fw.Problem(task.train, fw.angular_graph(task.targets), fw.Objective(toy_parts.ToyHinge(0.7)))
run = fw.simulate(problem, fw.CoordinateDescent(), updates=30, test=task.test)
alone = fw.simulate(problem, fw.Local(), test=task.test)
assert run.score(task.test) > alone.score(task.test) > 0.7
run.save("run.npz")
again = fw.Trajectory.load("run.npz")
assert again.loss == toy_parts.ToyHinge(0.7)
assert np.array_equal(again.predict(task.test.features[:9], 0), run.predict(task.test.features[:9], 0))
"""
    done = outside("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
