"""What a command leaves in its files: each whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flockwise.errors import ConfigError
from flockwise.files import write_whole


def output_folder(path: Path) -> Path:
    """The folder, made if need be, before any work is done for it."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out {path}: is a file; name a folder")
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_json(path: Path, document: Any) -> None:
    """A readable document."""
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
