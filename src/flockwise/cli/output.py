"""How a run ends that has a report: files in --out, a table, what is guaranteed, and where the rest is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flockwise.cli.console import print_table, say, step
from flockwise.files import write_json
from flockwise.report import NOT_PRIVATE, Comparison, Page, pictures, save_picture, verdicts


def show_report(folder: Path, page: Page, seed: int, targets: NDArray[np.float64] | None) -> None:
    """Write metrics.json, the pictures and, when these are there, report.html; then print the results."""
    comparison = page.comparison
    with step("drawing and writing the report"):
        drawn = pictures(comparison, targets)
        found = verdicts(comparison)
        document = comparison.document(
            seed,
            privacy="dp" if comparison.guarantees else "none",
            version=page.version,
            verdicts=[verdict.document() for verdict in found],
        )
        write_json(folder / "metrics.json", document)
        for picture in drawn:
            save_picture(picture, folder)
        page.write(folder / "report.html", drawn)
    _print_results(comparison)
    say("")
    for verdict in found:
        say(verdict.sentence)
    for name, run in comparison.runs.items():
        if run.gap is not None and run.gap.is_far:
            say(f"{name}: {run.gap.words}.")
    for name, guarantee in comparison.guarantees.items():
        say(f"\n{name}: {guarantee.explain()}")
    if not comparison.guarantees:
        say(NOT_PRIVATE)
    elif len(comparison.guarantees) < len(comparison.runs):
        say("The other rows are not differentially private.")
    say(f"\nThe report is {folder / 'report.html'}")


def _print_results(comparison: Comparison) -> None:
    """The methods side by side."""
    n_agents = comparison.problem.n_agents
    word = "accuracy" if comparison.metric == "accuracy" else "RMSE"
    headings = ("method", word, "sd", "updates", "vectors")
    rows = [
        (
            row.name,
            f"{row.metric:.4f}" if comparison.is_tested else "–",
            f"{row.metric_sd:.4f}" if comparison.is_tested else "–",
            f"{row.updates / n_agents:,.1f}",
            f"{row.vectors / n_agents:,.1f}",
        )
        for row in comparison.rows
    ]
    print_table(headings, rows, words=("method",), title="Updates and vectors are those of one agent")
