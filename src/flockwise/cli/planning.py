"""A plan on the screen: while it is made, and when it is."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from flockwise.cli.console import print_table, progress_bar, say
from flockwise.config import Config, Experiment, build
from flockwise.files import write_json
from flockwise.planner import Recommendation
from flockwise.planner.recommendation import Group
from flockwise.planner.trials import Expectation
from flockwise.planner.words import advice, basis, document, heading

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
    """Every candidate, by adversary, what the numbers rest on, and the advice."""
    word = "accuracy" if plan.facts.objective.loss.metric == "accuracy" else "RMSE"
    for group in plan.groups:
        print_table(
            ("candidate", "released", "own", "gain, %", "worst, %", "vectors"),
            [
                _local(group),
                *(
                    _cells(
                        expected, plan.chosen is not None and expected.candidate.words == plan.chosen.words
                    )
                    for expected in group.expectations
                ),
            ],
            words=("candidate",),
            title=f"{heading(group)}: expected {word}",
        )
    *reasons, last = plan_lines(plan)
    for line in reasons:
        say(line)
    say(f"\n{last}")


def plan_lines(plan: Recommendation) -> tuple[str, ...]:
    """The basis of the numbers, and the advice last."""
    return (*basis(plan), advice(plan))


def _local(group: Group) -> list[str]:
    return ["local, best penalty", "–", f"{group.local:.3f}", "–", "–", "0"]


def _cells(expected: Expectation, is_chosen: bool) -> list[Text]:
    cells = (
        expected.candidate.words,
        f"{expected.mean('released'):.3f}",
        f"{expected.mean('own'):.3f}",
        f"{100 * expected.gain:+.2f} ± {100 * expected.error:.2f}",
        f"{100 * expected.worst.gain:+.2f}",
        f"{expected.mean('vectors'):,.0f}",
    )
    return [Text(cell, style="bold" if is_chosen else "") for cell in cells]
