"""One browser for all tests, and pages as users get them: of a run, and of a reproduction."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import experiments
import pytest
from experiments.page import ExperimentSection, Reproduction
from experiments.result import Result
from tests.reports.browser import Browser

from flockwise.data import linear_classification
from flockwise.engine import simulate
from flockwise.graph import angular_graph
from flockwise.method import CoordinateDescent, Global, Local, ReleaseOnce
from flockwise.objective import Objective, Problem
from flockwise.privacy import Budget
from flockwise.report import Comparison, Page, pictures
from flockwise.report.plots import WIDTH
from flockwise.report.theme import draw
from flockwise.results import choose_tradeoff

NUMBERS = Path(__file__).parents[2] / "docs" / "reproduction"
LONG_NAME = "somebody whose name is longer than a column of a small screen"


@pytest.fixture(scope="session")
def browser():
    started = Browser()
    yield started
    started.close()


@pytest.fixture(scope="session")
def task():
    """Agents with names, one of them long."""
    made = linear_classification(40, 4, seed=3, test_samples=50)
    names = (LONG_NAME, *(f"agent {number}" for number in range(1, 40)))
    named = {side: replace(getattr(made, side), given_names=names) for side in ("train", "test")}
    return replace(made, **named)


@pytest.fixture(scope="session")
def comparison(task):
    """A plain and a private run beside the baselines."""
    graph = angular_graph(task.targets, source="targets", agent_names=task.train.agent_names)
    problem = Problem(task.train, graph, Objective(tradeoff=2.0))
    runs = [simulate(problem, method, test=task.test) for method in (Local(), Global())]
    runs.append(simulate(problem, CoordinateDescent(), engine="reference", updates=20, test=task.test))
    private = ReleaseOnce(Budget(1.0, 1e-5))
    runs.append(simulate(problem, private, engine="reference", updates=5, test=task.test))
    return Comparison.of(problem, *runs)


@pytest.fixture(scope="session")
def report(comparison, task, tmp_path_factory):
    """The page of a run."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    Page(
        title="40 agents learn a model each",
        comparison=comparison,
        data_description="The synthetic task",
        settings={"data": {"source": "synthetic", "columns": ["a" * 30, "b" * 30]}},
        version="1.2.3",
        choice=choose_tradeoff([(comparison.problem, task.test)], (0.5, 2.0, 8.0)),
        choice_description="On validation data.",
    ).write(file, pictures(comparison, task.targets))
    return file


@pytest.fixture(scope="session")
def reproduction(tmp_path_factory):
    """The page of the committed numbers, which are without curves to draw; the first as a quick run."""
    sections = []
    kept = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in NUMBERS.glob("*.json")}
    for name in filter(kept.get, experiments.NAMES):
        document = kept[name]
        document = {"guarantees": ["One.\nTwo."], **document, "quick": not sections}
        module = importlib.import_module(f"experiments.{name}")
        result = Result.from_document(document)
        shown = document | {"rows": result.document()["rows"]}
        figure = draw(WIDTH, 3.0, _paint)
        sections.append(ExperimentSection(module.TITLE, module.story(result), module.CAPTION, figure, shown))
    file = tmp_path_factory.mktemp("reproduction") / "report.html"
    Reproduction(sections, "1.2.3").write(file)
    return file


def _paint(figure):
    figure.subplots().set(xlabel="a picture")
