"""What a command leaves in --out: each file whole or not at all, and no file but its own touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flockwise.cli.console import say, step
from flockwise.cli.files import write_json
from flockwise.report import NOT_PRIVATE, Comparison, Page, pictures, save_picture


def write_report(folder: Path, page: Page, seed: int, targets: NDArray[np.float64] | None) -> None:
    """metrics.json, the pictures as files, and report.html, which is last: it is there when all is."""
    with step("drawing and writing the report"):
        drawn = pictures(page.comparison, targets)
        about = {"privacy": "dp" if page.comparison.guarantees else "none", "version": page.version}
        write_json(folder / "metrics.json", page.comparison.document(seed, **about))
        for picture in drawn:
            save_picture(picture, folder)
        page.write(folder / "report.html", drawn)


def say_where(folder: Path, comparison: Comparison) -> None:
    """The end of every command with a report: what is guaranteed, and where the rest is."""
    for guarantee in comparison.guarantees.values():
        say(f"\nprivate: {guarantee.explain()}")
    if not comparison.guarantees:
        say(NOT_PRIVATE)
    elif len(comparison.guarantees) < len(comparison.runs):
        say("The other rows are not differentially private.")
    say(f"\nThe report is {folder / 'report.html'}")
