"""The experiment on learned priors, from canned measurements: shares, claims, table and picture."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pytest
from experiments import prior
from experiments.result import Result
from experiments.scale import Scale

# RMSE of each kind of model; a mixed model gains .1 over local ones.
MEASURED = {
    "measure_local": 0.6,
    "measure_mixed": 0.5,
    "measure_pooled": 0.55,
    "measure_once": 0.59,
    "measure_descent": 0.54,
    "measure_learned": {"error": 0.51, "kept": False},
    "choose_descent": [1.0, 0.5, 4.0],
    "measure_advice": True,
    "measure_rotated": {"own": [0.93, 0.92, 0.79], "kept": [False, False, True], "local": 0.8},
}


class CannedBook:
    """In place of a workbook: nothing is computed."""

    def __init__(self):
        self.expected, self.done = 0, 0

    def expect(self, steps):
        self.expected = steps

    def compute(self, key, function, *arguments):
        self.done += 1
        return MEASURED[function.__name__]


@pytest.fixture
def found(monkeypatch) -> tuple[Result, CannedBook]:
    monkeypatch.setattr(prior, "guarantee_of", lambda name, epsilon: f"{name}, {epsilon}")
    book: Any = CannedBook()
    return prior.run(Scale(quick=True), book), book


def test_shares_are_of_the_gain_of_a_mixed_model_over_local_ones(found):
    result, book = found
    assert book.done == book.expected, "the bar ends where the run does"
    for what, share in (
        ("pooled", 0.5),
        ("release_once", 0.1),
        ("gradient_descent", 0.6),
        ("learned_prior", 0.9),
    ):
        rows = result.where(what=what, data="Exam", metric="share")
        assert [row.ours for row in rows] == pytest.approx([share] * len(rows))
        assert len(rows) == (1 if what == "pooled" else 3)


def test_claims_follow_from_the_rows(found):
    claims = {claim.words: claim.holds for claim in found[0].claims}
    assert claims["On Hsb82 at ε = 1 own models keep at least 85% of a mixed model's gain"]
    assert claims["On Exam at ε = 1 own models keep at least 50% of a mixed model's gain"]
    (rotated,) = [words for words in claims if words.startswith("Rotated features, 100 agents, p = 20")]
    assert not claims[rotated], "at ε = .15 .79 is below .80"


def test_the_table_and_the_picture_show_every_method(found):
    result = Result.from_document(found[0].document())
    story = prior.story(result)
    assert "| Hsb82 | 0.50 (0.00) | 0.10 (0.00) |" in story
    assert "| 100, 20 | 1 | 0.800 | 0.930 | 0.920 | 0.790 * |" in story
    assert story.count("\n| ") == 5, "two headings, two data sets and one size"
    figure = prior.picture(result)
    assert len(figure.axes) == 2
    plt.close(figure)
