"""The numbers behind table, pictures and page."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from flockwise.engine import simulate
from flockwise.method import (
    CoordinateDescent,
    Global,
    Local,
    LowPass,
    ModelPropagation,
    ReleaseOnce,
    TunedLocal,
)
from flockwise.objective import CollaborativeObjective
from flockwise.privacy import Budget
from flockwise.report import Comparison


def test_rows_repeat_what_the_runs_say(comparison, problem):
    assert [row.method for row in comparison.rows] == ["local", "global", "collaborative"]
    for row, run in zip(comparison.rows, comparison.runs.values(), strict=True):
        assert row.metric == pytest.approx(np.mean(run.agent_metrics))
        assert row.metric_sd == pytest.approx(np.std(run.agent_metrics))
        assert row.objective == CollaborativeObjective(problem).value(run.models)
        assert (row.updates, row.vectors) == (run.updates.sum(), run.final.vectors)


def test_gaps_are_relative_to_the_optimum(comparison):
    gap = comparison.gaps()["collaborative"]
    run = comparison.runs["collaborative"]
    assert gap[0] == pytest.approx((run.records[0].objective - comparison.optimum) / comparison.optimum)
    assert gap[-1] < 1e-3 * gap[0]
    assert "local" not in comparison.gaps()


def test_gains_are_positive_where_the_agent_is_better_off(comparison):
    method, gains = comparison.gains()
    local, collaborative = (comparison.runs[name].agent_metrics for name in ("local", "collaborative"))
    assert method == "collaborative"
    np.testing.assert_array_equal(gains > 0, collaborative > local)


def test_collaboration_is_compared_with_the_better_of_the_local_models(comparison, problem, task):
    tuned = simulate(problem, TunedLocal(), test=task.test)
    assert tuned.final.metric != comparison.runs["local"].final.metric
    both = Comparison.of(problem, tuned, *comparison.runs.values())
    better = max((comparison.runs["local"], tuned), key=lambda run: run.final.metric)
    np.testing.assert_array_equal(both.alone, better.agent_metrics)
    assert [row.method for row in both.rows] == ["tuned_local", "local", "global", "collaborative"]
    assert len(both.drawn) == 3
    assert any(run is better for run in both.drawn.values())


def test_the_document_is_the_agreed_one(comparison, problem):
    document = json.loads(json.dumps(comparison.document(seed=5), allow_nan=False))
    assert (document["agents"], document["dimension"], document["seed"]) == (14, 3, 5)
    assert [row["method"] for row in document["rows"]] == ["local", "global", "collaborative"]
    for row in document["rows"]:
        assert {"method", "accuracy", "accuracy_sd", "objective", "updates", "vectors"} <= row.keys()
        assert 0 <= row["accuracy"] <= 1
    assert document["optimum"] <= min(row["objective"] for row in document["rows"]) * (1 + 1e-9)


def test_every_run_and_every_own_model_has_a_color_of_its_own(task, problem):
    budget = Budget(1.0, 1e-5)
    methods = [Local(), Global(), CoordinateDescent(), ModelPropagation(), ReleaseOnce(budget)]
    runs = [
        simulate(problem, method, engine="reference", test=task.test, updates=None if number < 2 else 2)
        for number, method in enumerate(methods)
    ]
    low_pass = ReleaseOnce(budget, smoother=LowPass())
    runs.append(simulate(problem, low_pass, test=task.test, seed=1))
    many = Comparison.of(problem, *runs)
    looks = [many.look(row.method, row.model) for row in many.rows]
    assert len(many.rows) == 8
    assert len({color for color, _ in looks}) == len(looks)


def test_without_test_samples_metrics_are_null(comparison, problem):
    runs = {
        name: replace(run, records=(*run.records[:-1], replace(run.final, metric=np.nan, metric_sd=np.nan)))
        for name, run in comparison.runs.items()
    }
    untested = Comparison(problem, runs)
    assert not untested.is_tested
    assert untested.gains() is None
    assert untested.document(seed=0)["rows"][0]["accuracy"] is None
