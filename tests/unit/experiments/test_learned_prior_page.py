"""docs/learned-prior.md as it is committed: its tables are those of the numbers beside it."""

import json
from pathlib import Path

import pytest
from experiments.prior import EPSILONS, ROTATED, SPLITS, WANTED, table
from experiments.result import Result

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = json.loads((DOCS / "learned-prior" / "prior.json").read_text(encoding="utf-8"))
RESULT = Result.from_document(DOCUMENT)


def test_the_tables_are_what_the_numbers_of_a_full_run_tell():
    assert not DOCUMENT["quick"]
    assert table(RESULT) in (DOCS / "learned-prior.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "epsilon"), WANTED)
def test_own_models_keep_at_least_the_share_that_is_wanted(name, epsilon):
    row = RESULT.find(what="learned_prior", data=name, epsilon=epsilon, metric="share")
    assert row.runs == SPLITS
    assert row.ours >= WANTED[name, epsilon]


@pytest.mark.parametrize("size", ROTATED)
def test_accuracies_on_the_rotated_task_are_at_least_those_that_are_wanted(size):
    runs, wanted = ROTATED[size]
    here = {"agents": size[0], "dimension": size[1], "metric": "accuracy"}
    rows = RESULT.where(what="learned_prior", **here)
    assert [row.runs for row in rows] == [runs] * 3
    for row, accuracy in zip(rows, wanted, strict=False):
        assert row.ours >= accuracy


def test_every_data_set_has_every_method_at_every_epsilon():
    shares = [row for row in RESULT.rows if row.metric == "share"]
    for name in DOCUMENT["settings"]["data"]:
        found = [(row.what, row.epsilon) for row in shares if row.more["data"] == name]
        assert set(found) == {("pooled", None)} | {
            (what, epsilon)
            for what in ("release_once", "gradient_descent", "learned_prior")
            for epsilon in EPSILONS
        }
