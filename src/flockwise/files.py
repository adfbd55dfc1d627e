"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_whole(
    path: str | os.PathLike[str], write: Callable[[Path], Any], *, is_secret: bool = False
) -> None:
    """Write to a file beside it first: an interrupted write leaves the old one as it was.

    is_secret: for its owner alone, from the first byte on.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        if is_secret:
            # Make a new file: one that is there already may have other rights, or be a link to elsewhere.
            part.unlink(missing_ok=True)
            part.touch(0o600, exist_ok=False)
        write(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Readable, and without numbers that JSON does not have."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def write_even_if_full(path: str | os.PathLike[str], text: str) -> None:
    """Whole; or over the old text where the disk has no room for both: a reader may then see some of each."""
    target = Path(path)
    try:
        write_text(target, text)
    except OSError:
        with target.open("r+b") as file:
            file.write(text.encode())
            file.truncate()


@contextmanager
def new_folder(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """A folder to fill. It gets its name when the block ends; if that fails, nothing is left of it."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)  # what an interrupted attempt left
    part.parent.mkdir(parents=True, exist_ok=True)
    part.mkdir(mode)
    try:
        yield part
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
