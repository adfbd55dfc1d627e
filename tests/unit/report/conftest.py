"""One small problem and its runs, for all tests of pictures and pages."""

from __future__ import annotations

import pytest

from flockwise.data import linear_classification
from flockwise.engine.simulate import simulate
from flockwise.graph import angular_graph
from flockwise.method import CoordinateDescent, Global, Local
from flockwise.objective import Objective, Problem
from flockwise.report import Comparison


@pytest.fixture(scope="session")
def task():
    return linear_classification(14, 3, seed=5, test_samples=40)


@pytest.fixture(scope="session")
def problem(task):
    return Problem(task.train, angular_graph(task.targets, source="targets"), Objective(tradeoff=3.0))


@pytest.fixture(scope="session")
def comparison(task, problem):
    runs = [simulate(problem, method, test=task.test) for method in (Local(), Global())]
    # The oracle engine: the same run, without the wait for a compiler.
    run = simulate(problem, CoordinateDescent(), engine="reference", test=task.test, updates=40)
    return Comparison.of(problem, *runs, run)
