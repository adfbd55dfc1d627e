"""Steps are computed once and kept, whatever happens in between."""

from __future__ import annotations

import pytest
from experiments.workbook import Workbook

calls = []


def double(value):
    calls.append(value)
    return {"twice": (2 * value,)}


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


def test_a_step_is_computed_once(tmp_path):
    first = Workbook(tmp_path, "fig9").compute("a", double, 2)
    again = Workbook(tmp_path, "fig9").compute("a", double, 2)
    assert first == again == {"twice": [4]}
    assert calls == [2]


def test_other_arguments_and_other_experiments_are_other_steps(tmp_path):
    book = Workbook(tmp_path, "fig9")
    book.compute("a", double, 2)
    assert book.compute("a", double, 3) == {"twice": [6]}
    Workbook(tmp_path, "fig8").compute("a", double, 3)
    assert calls == [2, 3, 3]


def test_results_before_an_interruption_are_kept(tmp_path):
    def stop_at_second(done, total, key):
        if done == 1:
            raise KeyboardInterrupt

    book = Workbook(tmp_path, "fig9", stop_at_second)
    book.compute("a", double, 1)
    with pytest.raises(KeyboardInterrupt):
        book.compute("b", double, 2)
    Workbook(tmp_path, "fig9").compute("a", double, 1)
    assert calls == [1]


def test_a_result_that_json_cannot_hold_leaves_nothing_behind(tmp_path):
    book = Workbook(tmp_path, "fig9")
    with pytest.raises(ValueError, match="not JSON compliant"):
        book.compute("a", nothing_known, 1)
    assert list(tmp_path.rglob("*.json")) == []


def nothing_known(_):
    return float("nan")


def test_progress_counts_the_steps(tmp_path):
    seen = []
    book = Workbook(tmp_path, "fig9", lambda *step: seen.append(step))
    book.compute("a", double, 1)
    book.expect(1)
    book.compute("b", double, 2)
    assert seen == [(0, None, "a"), (1, 2, "b")]
    assert book.seconds >= 0
