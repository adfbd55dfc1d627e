"""Pictures and tables of a single run show its own numbers, and none that they do not have."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from flockwise.data import linear_classification
from flockwise.engine import simulate
from flockwise.errors import DataError
from flockwise.graph import angular_graph
from flockwise.method import CoordinateDescent, Local, ReleaseOnce
from flockwise.objective import Problem
from flockwise.privacy import Budget
from flockwise.results import Trajectory


@pytest.fixture(scope="module")
def task():
    return linear_classification(20, 3, seed=2, test_samples=30)


@pytest.fixture(scope="module")
def problem(task):
    return Problem(task.train, angular_graph(task.targets, source="targets"))


@pytest.fixture(scope="module")
def run(problem, task):
    return simulate(problem, CoordinateDescent(), engine="reference", updates=8, test=task.test)


@pytest.fixture(scope="module")
def private(problem, task):
    method = ReleaseOnce(Budget(1.0, 1e-5))
    return simulate(problem, method, engine="reference", updates=3, test=task.test)


def heights(axes):
    return [patch.get_height() for patch in axes.patches]


def test_the_gain_is_that_over_a_run_of_local_models(run, problem, task):
    alone = simulate(problem, Local(), test=task.test)
    gains = run.agent_metrics - alone.agent_metrics
    for figure in (run.plot.gain(), run.plot.gain(alone)):
        [axes] = figure.axes
        assert sum(heights(axes)) == 20
        assert f"mean {gains.mean():+.3g} ± {gains.std(ddof=1) / np.sqrt(20):.2g}" in axes.get_title()


def test_the_means_by_size_are_those_of_all_agents_in_a_group(run):
    [axes] = run.plot.by_size().axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["alone", "together"]
    together = axes.containers[1].lines[0].get_ydata()
    assert run.agent_metrics.min() <= together.min() <= together.max() <= run.agent_metrics.max()


def test_a_budget_is_drawn_with_its_unit_and_only_where_there_is_one(run, private):
    [axes] = private.plot.budget().axes
    assert [bar.get_width() for bar in axes.patches] == [1.0]
    assert private.guarantee.neighboring in axes.get_title()
    assert "not covered" in axes.get_title()
    worse = replace(private, guarantee=replace(private.guarantee, if_all_collude=(5.0, 6.0)))
    assert [bar.get_width() for bar in worse.plot.budget().axes[0].patches] == [1.0, 6.0]
    with pytest.raises(DataError, match="no budget"):
        run.plot.budget()


def test_a_loaded_run_knows_its_sizes_and_asks_for_local_models(run, problem, task, tmp_path):
    run.save(tmp_path / "run.npz")
    loaded = Trajectory.load(tmp_path / "run.npz")
    np.testing.assert_array_equal(loaded.sample_counts, task.train.sample_counts)
    with pytest.raises(DataError, match="alone="):
        loaded.plot.gain()
    assert loaded.plot.gain(simulate(problem, Local(), test=task.test)).axes
    assert len(loaded.plot.by_size().axes[0].containers) == 1


def test_a_pickled_run_holds_no_samples(run):
    copy = pickle.loads(pickle.dumps(run))
    assert copy.alone is None
    np.testing.assert_array_equal(copy.models, run.models)


def test_notebooks_show_what_things_are_as_text(run, private, problem, task):
    named = replace(task.train, feature_names=("<b>", *task.train.feature_names[1:]))
    shown = {
        "20": named._repr_html_(),
        "edges": problem.graph._repr_html_(),
        "accuracy": run._repr_html_(),
        "against": private.guarantee._repr_html_(),
    }
    assert all(word in table and table.startswith("<table>") for word, table in shown.items())
    assert "&lt;b&gt;" in shown["20"]
    assert "<b>" not in shown["20"]
    assert "NOT covered" in shown["against"]
    for told in (shown["against"], private._repr_html_()):
        assert "all others colluding" in told
        assert "one sample of one agent" in told
