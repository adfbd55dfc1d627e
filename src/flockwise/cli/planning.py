"""A plan on the screen: while it is made, and when it is."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from flockwise.cli.console import print_table, progress_bar, say
from flockwise.config import Config, Experiment, build
from flockwise.files import write_json
from flockwise.planner import Recommendation
from flockwise.planner.trials import Expectation
from flockwise.planner.words import advice, basis, document

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
    word = "accuracy" if plan.facts.objective.loss.metric == "accuracy" else "RMSE"
    print_table(
        ("candidate", "released", "own", "gain", "± sd", "noise", "vectors"),
        (_cells(plan, expected) for expected in plan.expectations),
        words=("candidate",),
        title=f"Expected {word}; noise over sensitivity; vectors that an agent sends",
    )
    for line in basis(plan):
        say(line)
    say(f"\n{advice(plan)}")


def _cells(plan: Recommendation, expected: Expectation) -> list[Text]:
    is_silent = expected.candidate.sends_nothing
    cells = (
        expected.candidate.words,
        "–" if is_silent else f"{expected.mean('released'):.4f}",
        f"{expected.mean('own'):.4f}",
        f"{expected.gain:+.4f}",
        f"{expected.spread:.4f}",
        "–" if is_silent else f"{expected.mean('noise'):.3g}",
        f"{expected.mean('vectors'):,.0f}",
    )
    is_best = plan.chosen is not None and expected is plan.best
    return [Text(cell, style="bold" if is_best else "") for cell in cells]
