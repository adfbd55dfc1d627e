"""Fetch a few files out of a public zip archive: all of them, verified, or nothing."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from flockwise.errors import DataError

# Far above what is expected of an archive or a member, far below what fills a disk.
MAX_BYTES = 256 * 2**20
PIECE = 2**20


def file_sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def download_folder(
    url: str,
    folder: Path,
    *,
    members: Iterable[str],
    sha256: Mapping[str, str],
    timeout: float = 30.0,
) -> None:
    """Put `members` of the zip at `url`, looked up under folder.name in it, into `folder`.

    Everything happens in a temporary folder beside the wanted one, which appears by a single
    rename once the files named in `sha256` have that hash. A network that fails raises OSError,
    an archive that is not the expected one DataError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        archive, unpacked = Path(scratch, "archive.zip"), Path(scratch, folder.name)
        unpacked.mkdir()
        _fetch(url, archive, timeout)
        _extract(archive, unpacked, members, url)
        for name, expected in sha256.items():
            found = file_sha256(unpacked / name)
            if found != expected:
                raise DataError(
                    f"{url}: {name} has SHA-256 {found}, expected {expected}; nothing was kept. "
                    "Download it again, or from another network"
                )
        _put_in_place(unpacked, folder)


def _fetch(url: str, archive: Path, timeout: float) -> None:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response, archive.open("wb") as file:
            _copy(response, file, url)
    except urllib.error.HTTPError as error:
        with error:  # It is an open response as well.
            raise ConnectionError(f"the server answered {error.code} {error.reason}") from None
    except http.client.HTTPException as error:
        raise ConnectionError(f"the server broke off: {error!r}") from error


def _extract(archive: Path, into: Path, members: Iterable[str], url: str) -> None:
    """Only the members asked for, each to a plain file of our choosing: no path of the archive is used."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for name in members:
                with opened.open(f"{into.name}/{name}") as member, (into / name).open("wb") as file:
                    _copy(member, file, url)
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as error:
        raise DataError(f"{url}: not the expected zip archive ({error}); nothing was kept") from error


def _copy(source: IO[bytes], destination: IO[bytes], url: str) -> None:
    copied = 0
    while piece := source.read(PIECE):
        copied += len(piece)
        if copied > MAX_BYTES:
            raise DataError(f"{url}: larger than {MAX_BYTES} bytes; nothing was kept")
        destination.write(piece)


def _put_in_place(unpacked: Path, folder: Path) -> None:
    try:
        os.rename(unpacked, folder)
    except OSError:
        # Another process may have put the same verified files there in the meantime.
        if not folder.is_dir() or not all((folder / file.name).is_file() for file in unpacked.iterdir()):
            raise
        shutil.rmtree(unpacked)
