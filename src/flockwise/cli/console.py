"""Helpers of all commands: printed results, notes and progress, the folder of --out, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from flockwise.errors import ConfigError
from flockwise.progress import outermost, time_left

RESULTS = Console()
NOTES = Console(stderr=True, highlight=False)
SECONDS_BETWEEN_LINES = 30
# No table is wider.
MOST_COLUMNS = 1000
INTERRUPTED = 130  # what shells give a program that Ctrl-C ended
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it
STOPPING = b"\nStopping at the next barrier, then saving; press Ctrl-C again to stop at once.\n"


def say(words: str) -> None:
    """A note, as it is: brackets in it are not markup."""
    NOTES.print(Text(words), soft_wrap=True)


def say_error(words: str) -> None:
    """The reason of a refusal, in red, unbroken."""
    NOTES.print(Text(words, style="red"), soft_wrap=True)


def print_table(
    headings: Iterable[str],
    rows: Iterable[Sequence[Any]],
    *,
    words: Sequence[str] = (),
    title: str | None = None,
) -> None:
    """Print it. Columns of numbers are aligned to the right, those named in `words` to the left."""
    print_whole(table_of(headings, rows, words=words, title=title))


def print_whole(shown: RenderableType) -> None:
    """As wide as it is: a terminal breaks its lines, where rich would cut columns."""
    options = RESULTS.options.update(width=MOST_COLUMNS)
    needed = Measurement.get(RESULTS, options, shown).maximum
    Console(width=max(RESULTS.width, needed)).print(shown)


def table_of(
    headings: Iterable[str],
    rows: Iterable[Sequence[Any]],
    *,
    words: Sequence[str] = (),
    title: str | None = None,
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for heading in headings:
        is_text = heading in words
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=is_text)
    for row in rows:
        table.add_row(*row)
    return table


def output_folder(path: Path) -> Path:
    """The folder of --out. It is made before any work is done for it."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out {path}: is a file; name a folder")
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def folder_for_results(path: Path) -> Iterator[Path]:
    """The folder of --out for work that may be refused: a new one then goes again, if nothing is in it."""
    is_new = not path.exists()
    try:
        yield output_folder(path)
    except BaseException:
        if is_new:
            with suppress(OSError):  # of a folder with files in it
                path.rmdir()
        raise


@contextmanager
def step(words: str) -> Iterator[None]:
    """A moving line while something is prepared, and a quiet one with its time when it is done."""
    started = time.perf_counter()
    with NOTES.status(Text(f"{words} …")):
        yield
    _done(words, started)


class Report(Protocol):
    """Says how far something is: steps done, steps in all if that is known, and what is done now."""

    def __call__(self, done: int, total: int | None, detail: str = "") -> None: ...


@contextmanager
def progress_bar(words: str, unit: str) -> Iterator[Report]:
    """A bar with the time left, without an end where the number of steps is unknown.

    Without a terminal there is no bar, but a line now and then, with the time left.
    """
    started = said = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=False),
        TextColumn("{task.fields[steps]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    bar = Progress(*columns, console=NOTES, transient=True, disable=not NOTES.is_terminal)
    with outermost(), bar:
        task = bar.add_task(words, total=None, steps="")

        def report(done: int, total: int | None, detail: str = "") -> None:
            nonlocal said
            now = time.perf_counter()
            if NOTES.is_terminal:
                shown = f"{words}: {detail}" if detail else words
                bar.update(task, description=shown, completed=done, total=total, steps=f"{done:,} {unit}")
            elif now - said >= SECONDS_BETWEEN_LINES:
                said = now
                count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
                say(
                    ", ".join(
                        filter(
                            None, (f"{words}: {count} {unit}", detail, time_left(done, total, now - started))
                        )
                    )
                )

        yield report
    _done(words, started)


def _done(words: str, started: float) -> None:
    elapsed = time.perf_counter() - started
    NOTES.print(Text.assemble(("✓ ", "green"), words, (f"  {elapsed:.1f} s", "dim")))


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C was pressed. Pressed again, it ends the process at once."""
    asked = threading.Event()

    def handle(signum: int, frame: FrameType | None) -> None:
        if asked.is_set():
            _leave()
        asked.set()
        # Straight to the terminal: a handler may run in the middle of another write to a console.
        os.write(2, STOPPING)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _leave() -> NoReturn:
    """End the process here: an exception would have to unwind compiled code, which can crash instead."""
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)
    os._exit(INTERRUPTED)
