"""docs/planner.md as it is committed, and the kinds of population that it is made of."""

import json
from pathlib import Path

import numpy as np
import pytest
from experiments.grouped import DATA_SETS
from experiments.planner import ALL_KINDS, REAL_EPSILONS, real, table
from experiments.populations import KINDS
from experiments.result import Result

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = json.loads((DOCS / "planner" / "planner.json").read_text(encoding="utf-8"))


def test_the_table_is_what_the_numbers_of_a_full_run_tell():
    assert not DOCUMENT["quick"]
    assert table(Result.from_document(DOCUMENT)) in (DOCS / "planner.md").read_text(encoding="utf-8")


def test_recommended_runs_gain_on_average():
    gains = [gain for row in DOCUMENT["rows"] if row["run"] for gain in row["gains"]]
    assert np.mean(gains) > 0


def test_a_claim_holds_as_the_numbers_say():
    gains = np.array([gain for row in DOCUMENT["rows"] if row["run"] for gain in row["gains"]])
    (claim,) = [one for one in DOCUMENT["claims"] if "nine tenths" in one["words"]]
    assert claim["holds"] == ((gains >= 0).mean() >= 0.9)


def test_every_kind_is_measured_whether_it_was_recommended_or_not():
    words = [row["kind"] for row in DOCUMENT["rows"]]
    assert {kind.words for _, kind in ALL_KINDS} <= set(words)
    assert all(len(row["gains"]) == len(DOCUMENT["seeds"]) for row in DOCUMENT["rows"])
    real = {f"{name}, ε = {epsilon:g}" for name in DATA_SETS for epsilon in REAL_EPSILONS}
    assert real <= set(words)


def test_there_are_many_kinds_and_no_two_are_alike():
    assert len({kind.words for _, kind in ALL_KINDS}) == len(ALL_KINDS) >= 30


@pytest.mark.filterwarnings("ignore:learned prior")
def test_what_was_refused_beforehand_is_run_all_the_same():
    """Else nobody would see what was wrongly refused."""
    row = real("Contraception", 0.1, (0,))
    assert not row["run"]
    assert row["expected"] is None
    assert row["gains"][0] != 0


@pytest.mark.parametrize("kind", KINDS[::9], ids=lambda kind: kind.words)
def test_a_kind_has_the_same_public_facts_on_every_seed(kind):
    one, other = kind.instance(0), kind.instance(1)
    assert one.problem.population.sample_counts.tolist() == other.problem.population.sample_counts.tolist()
    assert not np.array_equal(one.problem.population.targets, other.problem.population.targets)
    longest = np.linalg.norm(one.problem.population.features, axis=1).max()
    assert longest <= one.problem.objective.feature_bound + 1e-9
