"""docs/reproduction.md as it is committed: told from the numbers beside it, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import experiments
import pytest
from experiments.counted import in_words, kind_of
from experiments.headlines import headlines
from experiments.result import Result, Row
from experiments.story import numbers_of, numbers_text, tell

DOCS = Path(__file__).parents[3] / "docs"
FILES = [DOCS / "reproduction" / f"{name}.json" for name in experiments.NAMES]
SMALL = 400_000  # bytes, for 15 experiments


def documents():
    return [json.loads(file.read_text(encoding="utf-8")) for file in FILES if file.is_file()]


def test_the_page_is_what_the_numbers_tell():
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == tell(documents())


def test_the_numbers_are_those_of_full_runs_and_few():
    assert all(not document["quick"] for document in documents())
    assert sum(file.stat().st_size for file in FILES if file.is_file()) < SMALL


@pytest.mark.parametrize("document", documents(), ids=lambda document: document["name"])
def test_every_experiment_has_numbers_to_show(document):
    result = Result.from_document(document)
    assert headlines(result)
    full = result.document() | {key: document[key] for key in ("quick", "seconds", "version")}
    assert numbers_of(full) == document


def test_what_is_counted_as_noise_as_printed_has_printed_noise():
    rows = [row for document in documents() for row in document["rows"] if row.get("value")]
    kinds = {row["value"]: kind_of(row) for row in rows}
    assert kinds["2a: accuracy, start"] == "zero models, before any noise"
    assert kinds["2b: accuracy, start"] == "a private start, released in our way"
    assert kinds["4: ε = 1, p = 2"] == "Figure 4, by a formula of ours"
    assert kinds["2a: accuracy, T/n = 1"] == kinds["Table 1: ε = 1"] == "noise as printed"
    assert kinds["2c: local, p = 2"] == kinds["4: no privacy, p = 2"] == "without privacy"


def test_ours_is_higher_or_lower_and_not_better():
    assert [in_words(word, "accuracy") for word in ("better", "worse", "holds")] == [
        "higher",
        "lower",
        "holds",
    ]
    assert [in_words(word, "rmse") for word in ("better", "worse", "")] == ["lower", "higher", ""]


def row(**changes):
    values = {"what": "admm", "agents": 100, "dimension": 100, "variant": "baseline", "model": "released"}
    return Row(**(values | {"metric": "iterations_to_final", "ours": 1234.56789} | changes))


def test_numbers_are_rounded_and_settings_are_not():
    delta = 0.006737946999085467
    result = Result("fig1", [0], [row(delta=delta, sd=0.123456789)])
    document = result.document() | {"quick": False, "seconds": 1.0, "version": "1"}
    kept = json.loads(numbers_text(document))
    assert kept == numbers_of(document)
    assert kept["rows"][0]["ours"] == 1234.57
    assert kept["rows"][0]["sd"] == 0.123457
    assert kept["rows"][0]["delta"] == delta
    assert "paper" not in kept["rows"][0]


def test_what_was_not_reached_says_so():
    rows = [
        row(what="collaborative", more={"graph": "dense", "reached": True}),
        row(more={"graph": "dense", "rho": 0.1, "reached": False}),
        row(ours=2000.0, more={"graph": "dense", "rho": 1.0, "reached": True}),
    ]
    found = headlines(Result("fig1", [0], rows))
    assert [words for words, _ in found] == [
        "CD, dense graph: iterations",
        "ADMM with ρ = 1, dense graph: iterations",
    ]
