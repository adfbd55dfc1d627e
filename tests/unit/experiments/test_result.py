"""Rows beside published values: their verdicts, and their way to JSON and back."""

from __future__ import annotations

import json
import math

import pytest
from experiments.drawing import on_clean_labels
from experiments.result import Claim, Curve, Result, Row, summary, verdict


def row(**changes):
    values = {
        "what": "private",
        "agents": 100,
        "dimension": 20,
        "variant": "honest",
        "model": "own",
        "metric": "accuracy",
        "ours": 0.8,
    }
    return Row(**(values | changes))


@pytest.mark.parametrize(
    ("metric", "paper", "ours", "sd", "runs", "expected"),
    [
        ("accuracy", None, 0.8, 0.01, 5, ""),
        ("accuracy", 0.8, 0.804, None, 1, "holds"),
        ("accuracy", 0.8, 0.806, None, 1, "better"),
        ("accuracy", 0.8, 0.794, None, 1, "worse"),
        # two standard errors of both means: 2·.01·√(1/5 + 1/5) = .0126 beside the reading error of .005
        ("accuracy", 0.8, 0.817, 0.01, 5, "holds"),
        ("accuracy", 0.8, 0.819, 0.01, 5, "better"),
        ("rmse", 0.9502, 0.9467, None, 5, "better"),
        ("rmse", 0.9502, 0.9503, None, 5, "worse"),
        ("objective", 2.0, 2.09, None, 1, "holds"),
        ("objective", 2.0, 2.11, None, 1, "worse"),
        ("accuracy", 0.8, math.nan, None, 1, ""),
    ],
)
def test_a_verdict_follows_from_the_numbers(metric, paper, ours, sd, runs, expected):
    assert verdict(metric, paper, ours, sd, runs) == expected


def test_published_accuracies_are_drawn_on_clean_labels():
    on_clean = on_clean_labels({100: 0.815})[100]
    assert row(ours=on_clean).as_published == pytest.approx(0.815)
    assert on_clean == pytest.approx(0.85)


def test_what_cannot_be_compared_is_not_judged():
    assert row(paper=0.5, comparable=False).verdict == "not comparable"
    assert row(paper=None, comparable=False).verdict == ""


def test_a_summary_has_a_spread_from_two_values_on():
    assert summary([0.5]) == {"ours": 0.5, "sd": None, "runs": 1}
    found = summary([0.4, 0.6])
    assert found == {"ours": 0.5, "sd": pytest.approx(math.sqrt(0.02)), "runs": 2}


def test_a_row_has_exactly_the_keys_of_the_format():
    document = row(paper=0.7, more={"rho": 0.15}).document()
    keys = "what agents dimension variant model epsilon delta metric paper ours sd runs verdict noisy rho"
    assert " ".join(document) == keys


def test_a_result_survives_its_file():
    result = Result(
        "fig9",
        range(3),
        [row(paper=0.7, more={"rho": 0.15, "guarantee": "not differentially private"}), row(ours=math.nan)],
        guarantees=["words"],
        curves=[Curve("cd", [0, 1], [0.5, math.nan], {"vectors": [1, 2]})],
        settings={"tradeoff": 2.0, "penalties": (1, 2)},
        claims=[Claim("it works", False, "ours")],
    )
    text = json.dumps(result.document(), allow_nan=False)
    again = Result.from_document(json.loads(text))
    assert again.document() == result.document()
    assert again.find(rho=0.15).paper == 0.7
    assert again.where(what="private", model="released") == []
    with pytest.raises(LookupError, match="fig9: 2 rows"):
        again.find(what="private")
