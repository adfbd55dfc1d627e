"""`flockwise audit`: what every mechanism claims, and what an attack measures."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from flockwise.audit import CONFIDENCE, Attack, AuditRow, audit_one, every_attack, failed
from flockwise.cli.console import print_table, progress_bar, say, say_error
from flockwise.files import write_json


def audit(
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the simulated noise; secure noise is fresh every time.")
    ] = 0,
    runs: Annotated[
        float, typer.Option(min=0.01, help="How many runs, as a multiple of the usual number.")
    ] = 1.0,
) -> None:
    """Attack every mechanism and compare. Ends with code 1 if one leaks more than it claims."""
    attacks = _attacks()
    rows: list[AuditRow] = []
    with progress_bar("attacking every mechanism", "attacks") as progress:
        for number, attack in enumerate(attacks):
            progress(number, len(attacks), f"{attack.name}, {_updates(attack.updates)}")
            rows.append(audit_one(attack, n_rows=len(attacks), number=number, seed=seed, share=runs))
    if json is not None:
        write_json(json, {"rows": [row.document() for row in rows]})
    headings = ("mechanism", "updates", "δ", "claimed ε", "measured ≥", "share", "runs", "verdict")
    print_table(headings, map(_cells, rows), words=("mechanism", "verdict"))
    _explain(rows)
    if failed(rows):
        raise typer.Exit(1)


def _attacks() -> list[Attack]:
    has_secure_noise = importlib.util.find_spec("opendp") is not None
    if not has_secure_noise:
        say("Left out: secure noise, which real agents use. Install flockwise[secure] to attack it as well.")
    return every_attack(with_secure_noise=has_secure_noise)


def _updates(count: int) -> str:
    return "1 update" if count == 1 else f"{count} updates"


def _cells(row: AuditRow) -> tuple[str | Text, ...]:
    return (
        row.mechanism,
        str(row.updates),
        f"{row.delta:g}",
        f"{row.claimed_epsilon:.3f}",
        f"{row.lower_bound:.3f}",
        f"{row.lower_bound / row.claimed_epsilon:.0%}",
        f"{row.runs:,}",
        Text("holds", style="green") if row.holds else Text("LEAKS", style="bold red"),
    )


def _explain(rows: Sequence[AuditRow]) -> None:
    say(
        f"Neighboring data sets differ in one sample. All {len(rows)} lower bounds hold together with "
        f"{CONFIDENCE:.1%} confidence. A bound far below its claim proves no more than that: the attack may "
        "be weak, or the runs few."
    )
    wrong = failed(rows)
    if wrong:
        names = "; ".join(f"{row.mechanism} at {_updates(row.updates)}" for row in wrong)
        say_error(f"More leaks than is claimed: {names}")
    else:
        say("No mechanism leaks more than it claims.")
