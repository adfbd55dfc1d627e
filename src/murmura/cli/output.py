"""What a command leaves in --out: each file whole or not at all, and no file but its own touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmura.cli.console import say, step
from murmura.errors import ConfigError
from murmura.report import NOT_PRIVATE, Page, pictures, save_picture
from murmura.results.trajectory import write_whole


def output_folder(path: Path) -> Path:
    """The folder, made if need be, before any work is done for it."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out {path}: is a file; name a folder")
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_json(path: Path, document: Any) -> None:
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_report(folder: Path, page: Page, seed: int, targets: NDArray[np.float64] | None) -> None:
    """metrics.json, the pictures as files, and report.html, which is last: it is there when all is."""
    with step("drawing and writing the report"):
        drawn = pictures(page.comparison, targets)
        about = {"privacy": "none", "version": page.version}
        write_json(folder / "metrics.json", page.comparison.document(seed, **about))
        for picture in drawn:
            save_picture(picture, folder)
        page.write(folder / "report.html", drawn)


def say_where(folder: Path) -> None:
    """The end of every command with a report."""
    say(f"{NOT_PRIVATE}\nThe report is {folder / 'report.html'}")
