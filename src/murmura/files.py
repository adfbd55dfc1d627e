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
