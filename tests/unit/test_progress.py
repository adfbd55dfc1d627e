"""Progress is shown where somebody watches, once, and leaves nothing behind."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import pytest

from flockwise import progress
from flockwise.progress import line_of, time_left, watched


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    made = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=made, modules={}))
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    return made


def screen(text):
    """What a terminal shows in the end, where a carriage return writes over the line."""
    shown: list[str] = []
    for part in text.split("\r"):
        shown[: len(part)] = part
    return "".join(shown)


def test_a_terminal_shows_how_far_it_is_and_in_the_end_nothing(terminal):
    with watched("running cd", "ticks") as report:
        assert report is not None
        report(50, 200)
        assert "25%" in screen(terminal.getvalue())
        assert "50 ticks" in screen(terminal.getvalue())
        report(5, None)
        assert screen(terminal.getvalue()).strip() == "running cd  5 ticks"
    assert screen(terminal.getvalue()).strip() == ""


def test_a_log_is_left_alone(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=log, modules={}))
    with watched("running cd", "ticks") as report:
        assert report is None
    assert log.getvalue() == ""


def test_progress_within_progress_and_in_a_thread_is_not_shown(terminal):
    with watched("outer", "steps"), watched("inner", "ticks") as inner:
        assert inner is None
    found = []

    def work():
        with watched("elsewhere", "ticks") as report:
            found.append(report)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None]


def test_a_call_that_soon_ends_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    with watched("running cd", "ticks") as report:
        assert report is not None
        report(1, 2)
    assert terminal.getvalue() == ""


def test_the_time_left_supposes_that_the_rest_goes_as_fast():
    assert time_left(25, 100, 10.0) == "30 s left"
    assert time_left(1, 100, 10.0) == "about 16 min left"
    assert time_left(9, 1000, 10.0) == ""  # code is compiled in the first hundredth
    assert time_left(0, 100, 10.0) == time_left(100, 100, 10.0) == time_left(5, None, 10.0) == ""
    assert line_of("x", "ticks", 100, 100, 1.0).endswith("100%  100 ticks")
