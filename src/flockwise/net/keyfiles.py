"""Private keys and certificates on disk: whole or not there, and keys for their owner's eyes only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flockwise.errors import IdentityError
from flockwise.files import write_whole

OWNER_ONLY: Final = 0o600
OWNER_ONLY_FOLDER: Final = 0o700
EVERYONE: Final = 0o644
SECRET_SUFFIX: Final = ".key"


def write_file(path: Path, content: bytes) -> None:
    """In place of what was there, if anything; a file that ends in .key is for its owner alone."""
    mode = OWNER_ONLY if path.suffix == SECRET_SUFFIX else EVERYONE

    def write(part: Path) -> None:
        # Never opened where it might be there already, with other rights or as a link to elsewhere.
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)

    write_whole(path, write)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """A new folder with all these files in it, or no folder; keys that exist are never overwritten."""
    if folder.exists():
        raise IdentityError(
            f"{folder}: there are keys already; remove the folder if nothing needs them any more"
        )
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)  # what an interrupted attempt left
    part.parent.mkdir(parents=True, exist_ok=True)
    part.mkdir(mode=OWNER_ONLY_FOLDER)
    try:
        for name, content in files.items():
            (part / name).parent.mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)
            write_file(part / name, content)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IdentityError(
            f"{path}: cannot be read ({error.strerror}); restore it or enroll again"
        ) from error


def read_secret(path: Path) -> bytes:
    """A private key; one that others can read is refused, for they may have."""
    content = read_file(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise IdentityError(
            f"{path}: others can read this private key; enroll again with a new one, or, if nobody has: "
            f"chmod 600 {path}"
        )
    return content
