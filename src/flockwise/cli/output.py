"""How a run ends that has a report: files in --out, a table, what is guaranteed, and where the rest is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flockwise.cli.console import print_table, say, step
from flockwise.files import write_json
from flockwise.report import NOT_PRIVATE, Comparison, Page, pictures, save_picture


def show_report(folder: Path, page: Page, seed: int, targets: NDArray[np.float64] | None) -> None:
    """Write metrics.json, the pictures and, when these are there, report.html; then print the results."""
    comparison = page.comparison
    with step("drawing and writing the report"):
        drawn = pictures(comparison, targets)
        about = {"privacy": "dp" if comparison.guarantees else "none", "version": page.version}
        write_json(folder / "metrics.json", comparison.document(seed, **about))
        for picture in drawn:
            save_picture(picture, folder)
        page.write(folder / "report.html", drawn)
    _print_results(comparison)
    for guarantee in comparison.guarantees.values():
        say(f"\nprivate: {guarantee.explain()}")
    if not comparison.guarantees:
        say(NOT_PRIVATE)
    elif len(comparison.guarantees) < len(comparison.runs):
        say("The other rows are not differentially private.")
    say(f"\nThe report is {folder / 'report.html'}")


def _print_results(comparison: Comparison) -> None:
    """The methods side by side."""
    n_agents = comparison.problem.n_agents
    word = "accuracy" if comparison.metric == "accuracy" else "RMSE"
    headings = ("method", word, "sd", "objective", "updates/agent", "vectors/agent")
    rows = [
        (
            row.name,
            f"{row.metric:.4f}" if comparison.is_tested else "–",
            f"{row.metric_sd:.4f}" if comparison.is_tested else "–",
            f"{row.objective:,.4f}",
            f"{row.updates / n_agents:,.1f}",
            f"{row.vectors / n_agents:,.1f}",
        )
        for row in comparison.rows
    ]
    print_table(headings, rows, words=("method",))
