"""A plan on the screen: while it is made, and when it is."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from flockwise.cli.console import RESULTS, progress_bar, say
from flockwise.cli.files import write_json
from flockwise.config import Config, Experiment, build
from flockwise.planner import Recommendation
from flockwise.planner.document import document
from flockwise.planner.words import advice, basis

WORDS, UNIT = "planning on generated twins", "trials"


def planned(settings: Config, folder: Path) -> Experiment:
    """A configured run whose method is left to a plan; the plan is shown, and kept in the folder."""
    with progress_bar(WORDS, UNIT) as progress:
        experiment = build(settings, planning=progress)
    assert experiment.plan is not None
    write_json(folder / "plan.json", document(experiment.plan))
    show_plan(experiment.plan)
    return experiment


def show_plan(plan: Recommendation) -> None:
    """Every candidate, what the numbers rest on, and the advice."""
    RESULTS.print(_table(plan))
    for line in basis(plan):
        say(line)
    say(f"\n{advice(plan)}")


def _table(plan: Recommendation) -> Table:
    word = "accuracy" if plan.facts.objective.loss.metric == "accuracy" else "RMSE"
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
