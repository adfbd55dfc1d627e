"""A plan on the screen: while it is made, and when it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from flockwise.cli.console import NOTES, RESULTS, say, step
from flockwise.cli.files import write_json
from flockwise.config import Config, Experiment, build
from flockwise.planner import Plan
from flockwise.planner.document import document
from flockwise.planner.plan import Progress as ReportProgress
from flockwise.planner.words import advice, basis

WORDS = "planning on generated twins"


@contextmanager
def planning() -> Iterator[ReportProgress]:
    """A bar on a terminal; elsewhere a line when it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=NOTES, transient=True, disable=not NOTES.is_terminal)
    with nullcontext() if NOTES.is_terminal else step(WORDS), bar:
        # The first trials compile the methods, which takes longer than all the others.
        task = bar.add_task(WORDS, total=None)

        def report(done: int, expected: int) -> None:
            bar.update(task, completed=done, total=expected)

        yield report


def planned(settings: Config, folder: Path) -> Experiment:
    """A configured run whose method is left to a plan; the plan is shown, and kept in the folder."""
    with planning() as progress:
        experiment = build(settings, planning=progress)
    assert experiment.plan is not None
    write_json(folder / "plan.json", document(experiment.plan))
    show_plan(experiment.plan)
    return experiment


def show_plan(plan: Plan) -> None:
    """Every candidate, what the numbers rest on, and the advice."""
    RESULTS.print(_table(plan))
    for line in basis(plan):
        say(line)
    say(f"\n{advice(plan)}")


def _table(plan: Plan) -> Table:
    word = "accuracy" if plan.facts.loss.metric == "accuracy" else "RMSE"
    title = f"Expected {word}; noise over sensitivity; vectors that an agent sends"
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for heading in ("candidate", "released", "own", "gain", "± sd", "noise", "vectors"):
        table.add_column(heading, justify="left" if heading == "candidate" else "right", no_wrap=True)
    for expected in plan.expectations:
        is_silent = expected.candidate.sends_nothing
        table.add_row(
            expected.candidate.words,
            "–" if is_silent else f"{expected.mean('released'):.4f}",
            f"{expected.mean('own'):.4f}",
            f"{expected.gain:+.4f}",
            f"{expected.spread:.4f}",
            "–" if is_silent else f"{expected.mean('noise'):.3g}",
            f"{expected.mean('vectors'):,.0f}",
            style="bold" if plan.chosen is not None and expected is plan.best else None,
        )
    return table
