"""Private keys and certificates on disk: whole or not there, and keys readable by their owner alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from flockwise.errors import IdentityError
from flockwise.files import new_folder, write_whole

SECRET_SUFFIXES = (".key", ".npz")


def write_file(path: Path, content: bytes, *, is_secret: bool = False) -> None:
    """In place of what was there, if anything; keys, samples and secrets are for their owner alone."""
    mode = 0o600 if is_secret or path.suffix in SECRET_SUFFIXES else 0o644

    def write(part: Path) -> None:
        # Make a new file: one that is there already may have other rights, or be a link to elsewhere.
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
    with new_folder(folder, 0o700) as part:
        for name, content in files.items():
            (part / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_file(part / name, content)


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IdentityError(
            f"{path}: cannot be read ({error.strerror}); restore it or enroll again"
        ) from error


def read_secret(path: Path) -> bytes:
    """A private key. One that others can read is refused: they may have read it."""
    content = read_file(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise IdentityError(
            f"{path}: others can read this private key; enroll again with a new one, or, if nobody has: "
            f"chmod 600 {path}"
        )
    return content
