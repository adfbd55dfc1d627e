"""`flockwise reproduce`: the experiments of the paper in experiments/, which stay outside the package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flockwise.errors import FlockwiseError

REPOSITORY = Path(__file__).resolve().parents[3]


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="fig1 fig1_paper fig2a fig2b fig2c fig2c_paper larger_box fig3 fig4 table1 table1_paper "
            "prop1 thm2 text scaling, or all of them; prior and planner go beyond the paper.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder for NAME.json, the pictures and report.html.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Few instances and points: a look at everything in a few minutes.")
    ] = False,
    docs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="Write the story of all results in --out to this file, and its numbers to a folder FILE.",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments and put each published value beside ours.

    A run that was interrupted goes on where it was when the same command is given again.
    """
    load("experiments.command").reproduce(names, out, quick, docs)


def load(module: str) -> Any:
    """An experiment or a benchmark: they lie in the repository beside the package, and are not installed."""
    folder = module.partition(".")[0]
    if not (REPOSITORY / folder / "__init__.py").is_file():
        raise FlockwiseError(f"the {folder} are kept in the repository: run this command from a clone of it")
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    return importlib.import_module(module)
