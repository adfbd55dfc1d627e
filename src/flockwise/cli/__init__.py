"""The `flockwise` command."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    `flockwise agent run` as people and services write it goes past the libraries that parse commands and draw
    tables: its process lives for months, and they would take 11 MB of it.
    """
    match sys.argv[1:]:
        case ["agent", "run", *options, folder] if _is_plain(options, folder):
            from flockwise.cli.process import run_agent
            from flockwise.cli.refusals import refusals

            with refusals():
                run_agent(Path(folder), until_input_ends=bool(options))
        case _:
            from flockwise.cli.app import main as run_command

            run_command()


def _is_plain(options: list[str], folder: str) -> bool:
    return options in ([], ["--until-input-ends"]) and not folder.startswith("-")
