"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> None:
    """Write to a file beside it first, so that an interrupted write leaves the old one as it was."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        write(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_even_if_full(path: str | os.PathLike[str], text: str) -> None:
    """Whole; or over the old text where the disk has no room for both: a reader may then see some of each."""
    target = Path(path)
    try:
        write_whole(target, lambda part: part.write_text(text, encoding="utf-8"))
    except OSError:
        with target.open("r+b") as file:
            file.write(text.encode())
            file.truncate()
