"""The pages' templates, read the same way for all of them."""

from __future__ import annotations

from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined


def templates(*folders: Path) -> Environment:
    """Those of the package, and those in further folders."""
    return Environment(
        loader=ChoiceLoader([PackageLoader("flockwise.report"), *map(FileSystemLoader, folders)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
