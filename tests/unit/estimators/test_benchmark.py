"""`flockwise bench estimators` on the smallest data set."""

import json
import os

import numpy as np
import pytest
from benchmarks import estimators
from typer.testing import CliRunner

from flockwise.cli.app import app


def test_as_it_comes_a_regressor_is_as_good_as_what_is_tuned_by_hand(tmp_path):
    file = tmp_path / "exam.json"
    done = CliRunner().invoke(app, ["bench", "estimators", "Exam", "--splits", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    [row] = json.loads(file.read_text())["rows"]
    best = min(row[kind] for kind in estimators.KINDS)
    assert row["above the best"] == pytest.approx(row[estimators.OURS] / best - 1)
    assert row["above the best"] < 0.01
    assert row[estimators.OURS] < min(row["pooled"], row["alone"])


@pytest.mark.slow
@pytest.mark.skipif("FLOCKWISE_DATA" not in os.environ, reason="FLOCKWISE_DATA does not name the data")
def test_so_it_is_on_the_ratings_of_films():
    [row] = estimators.run(["MovieLens"], splits=1)
    assert row["above the best"] < 0.01
    assert row[estimators.OURS] < min(row["pooled"], row["alone"])


def test_settings_by_hand_are_judged_on_rows_that_no_fit_has_seen():
    table = estimators._table("Exam")
    trains = np.random.default_rng(0).random(len(table.targets)) < 0.5
    changed = table._replace(targets=np.where(trains, table.targets, table.targets + 100.0))
    for before, after in zip(*(_models(one, trains) for one in (table, changed)), strict=True):
        np.testing.assert_array_equal(before, after)


def _models(table, trains):
    train, _, _ = estimators._rows(table, trains)
    return [models for _, models in estimators.by_hand(train)][:30]
