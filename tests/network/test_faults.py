"""Schedules of faults: nothing breaks without a bug, every bug breaks something, and a seed is a run.

More of them: `python -m tests.network.faults --schedules 10000`; a failing one again: `--seed 123`.
"""

import os
import random
import subprocess
import sys
from itertools import count

import numpy as np
import pytest
from tests.network.faults.__main__ import run
from tests.network.faults.bugs import BUGS
from tests.network.faults.problem import OBJECTIVE, Quadratics, random_edges, random_samples
from tests.network.faults.watch import Broken

from flockwise.objective import LocalObjective
from flockwise.runtime.own_model import problem_of_one

QUICK = 12
SHARE = 500
SHARE_WITH_FILES = 15
# Each bug shows in a tenth of the schedules, or more; the rarest in one of 60.
SCHEDULES_TO_FIND_A_BUG = 300


def test_a_seed_is_one_run():
    assert run(3) == run(3)
    assert run(3).digest != run(4).digest


def test_a_few_schedules_break_nothing():
    for seed in range(QUICK):
        run(seed)


@pytest.mark.network
def test_many_schedules_break_nothing():
    for seed in range(QUICK, QUICK + SHARE):
        run(seed)


@pytest.mark.network
def test_schedules_with_real_files_and_secure_noise_break_nothing():
    for seed in range(SHARE_WITH_FILES):
        run(seed, has_files=True)


@pytest.mark.network
@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_found(bug):
    assert any(is_broken(seed, bug) for seed in range(SCHEDULES_TO_FIND_A_BUG))


def is_broken(seed, bug):
    try:
        run(seed, bug)
    except Broken:
        return True
    return False


@pytest.mark.network
def test_a_seed_is_one_run_in_every_process():
    """Also where sets and dictionaries are hashed in another way."""
    program = "from tests.network.faults.__main__ import run; print(run(11).digest, run(12).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hashing},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashing in ("1", "2")
    }
    assert digests == {f"{run(11).digest} {run(12).digest}\n"}


@pytest.mark.network
def test_schedules_meet_every_kind_of_fault():
    """Else they would show nothing."""
    seen = set()
    for seed in count():
        seen |= {what for what, number in run(seed).counts.items() if number}
        if seen >= WANTED:
            break
        assert seed < 100, f"never seen: {WANTED - seen}"


HOSTILE = ["bad_signature", "malformed", "oversized", "replayed", "stale", "stolen_name", "unknown_sender"]
ABSURD = ["not_finite", "too_large", "weight", "wrong_dimension", "wrong_label", "wrong_network"]
WANTED = {"died at a write", "stopped: behind", "stopped: ledger", "stopped: store"} | {
    f"dropped: {reason}" for reason in HOSTILE + ABSURD
}


def test_the_objective_of_the_schedules_is_equation_2():
    chance, names = random.Random(1), ["a", "b", "c", "d"]
    samples = {name: random_samples(chance, 2, least=1) for name in names}
    edges = random_edges(chance, names)
    ours = Quadratics(samples, edges)
    generator = np.random.default_rng(0)
    for _ in range(10):
        models = dict(zip(names, generator.normal(size=(4, 2)), strict=True))
        apart = [weight * square_distance(models, edge) for edge, weight in edges.items()]
        value = 0.5 * sum(apart) + sum(local_value(samples, edges, models, name) for name in names)
        assert ours.value(models) == pytest.approx(value)
        assert ours.least < value


def square_distance(models, edge):
    one, other = (models[name] for name in edge)
    return float((one - other) @ (one - other))


def local_value(samples, edges, models, name):
    """μ·D·c·ℒ of one agent."""
    problem = problem_of_one(OBJECTIVE, samples[name])
    degree = sum(weight for edge, weight in edges.items() if name in edge)
    return degree * problem.pulls[0] * LocalObjective.of_agent(problem, 0).value(models[name])
