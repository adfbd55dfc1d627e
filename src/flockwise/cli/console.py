"""What the commands show: results on standard output; progress, notes and errors on standard error."""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # only its name is needed here, and it brings a compiler and a plotter along
    from flockwise.report import Comparison

RESULTS = Console()
NOTES = Console(stderr=True, highlight=False)
SECONDS_BETWEEN_LINES = 30


def version() -> str:
    """The installed version."""
    try:
        return importlib.metadata.version("flockwise")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def say(words: str) -> None:
    """A note, as it is: brackets in it are no markup."""
    NOTES.print(Text(words), soft_wrap=True)


def say_error(words: str) -> None:
    """What was refused, in red, unbroken."""
    NOTES.print(Text(words, style="red"), soft_wrap=True)


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
    """A bar with the time left; lines now and then where there is no terminal to move it on."""
    started = time.perf_counter()
    with _bar(words, unit) if NOTES.is_terminal else nullcontext(_log(words, unit)) as report:
        yield report
    _done(words, started)


@contextmanager
def _bar(words: str, unit: str) -> Iterator[Report]:
    """It moves without an end where the number of steps is unknown."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=False),
        TextColumn("{task.fields[steps]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=NOTES, transient=True) as bar:
        task = bar.add_task(words, total=None, steps="")

        def report(done: int, total: int | None, detail: str = "") -> None:
            shown = f"{words}: {detail}" if detail else words
            bar.update(task, description=shown, completed=done, total=total, steps=f"{done:,} {unit}")

        yield report


def _log(words: str, unit: str) -> Report:
    said = -math.inf

    def report(done: int, total: int | None, detail: str = "") -> None:
        nonlocal said
        now = time.perf_counter()
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            say(f"{words}: {count} {unit}" + (f", {detail}" if detail else ""))

    return report


def _done(words: str, started: float) -> None:
    elapsed = time.perf_counter() - started
    NOTES.print(Text.assemble(("✓ ", "green"), words, (f"  {elapsed:.1f} s", "dim")))


def results_table(comparison: Comparison) -> Table:
    """The methods side by side."""
    n_agents = comparison.problem.n_agents
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    word = "accuracy" if comparison.metric == "accuracy" else "RMSE"
    for heading in (word, "sd", "objective", "updates/agent", "vectors/agent"):
        table.add_column(heading, justify="right")
    for row in comparison.rows:
        table.add_row(
            row.name,
            f"{row.metric:.4f}" if comparison.is_tested else "–",
            f"{row.metric_sd:.4f}" if comparison.is_tested else "–",
            f"{row.objective:,.4f}",
            f"{row.updates / n_agents:,.1f}",
            f"{row.vectors / n_agents:,.1f}",
        )
    return table
