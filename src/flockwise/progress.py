"""The progress of a long call, shown where somebody watches: one line that goes when the call ends."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int | None], None]

# What ends sooner than this many seconds needs no line.
PATIENCE = 1.0
BAR = 24

_shown: ContextVar[bool] = ContextVar("shown", default=False)


@contextmanager
def outermost() -> Iterator[bool]:
    """Whether no other progress is shown around this one: two would overwrite each other."""
    is_first = not _shown.get() and threading.current_thread() is threading.main_thread()
    token = _shown.set(True)
    try:
        yield is_first
    finally:
        _shown.reset(token)


@contextmanager
def watched(words: str, unit: str) -> Iterator[Progress | None]:
    """A function to report to, or None where nobody watches: in a log, in a thread, within another one."""
    with outermost() as is_first:
        if not is_first or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
            yield None
            return
        started, width = time.monotonic(), 0

        def report(done: int, total: int | None) -> None:
            nonlocal width
            elapsed = time.monotonic() - started
            if elapsed < PATIENCE:
                return
            line = line_of(words, unit, done, total, elapsed)
            sys.stderr.write(f"\r{line.ljust(width)}")
            sys.stderr.flush()
            width = len(line)

        try:
            yield report
        finally:
            if width:
                sys.stderr.write(f"\r{' ' * width}\r")
                sys.stderr.flush()


def line_of(words: str, unit: str, done: int, total: int | None, elapsed: float) -> str:
    """running cd ━━━━━━──────  50 %  5,000 ticks, 3 s left."""
    if not total:
        return f"{words}  {done:,} {unit}"
    full = min(done * BAR // total, BAR)
    bar = "━" * full + "─" * (BAR - full)
    left = time_left(done, total, elapsed)
    return f"{words} {bar} {done / total:4.0%}  {done:,} {unit}{left and f', {left}'}"


def time_left(done: int, total: int | None, elapsed: float) -> str:
    """In plain words, as if the rest went as fast; empty where nothing is known.

    The first hundredth says little: code is compiled in it.
    """
    if not total or not total <= 100 * done < 100 * total:
        return ""
    seconds = elapsed * (total - done) / done
    return f"{seconds:.0f} s left" if seconds < 100 else f"about {seconds / 60:.0f} min left"
