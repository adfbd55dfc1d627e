"""A private agent moves to another device, and takes its right to release along.

All of its folder goes into one file, its ledger and its keys among it. From then on the old folder never
releases again; and not before, so the right is never in two places. An interrupted move is finished when the
command is given again.
"""

from __future__ import annotations

import io
import zipfile
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from flockwise.deploy.folder import (
    AGENT_FILE,
    LOG_FILE,
    MOVED_FILE,
    STATE_FOLDER,
    STATUS_FILE,
    AgentFile,
    AgentFolder,
    read_toml,
)
from flockwise.deploy.keyfiles import read_file, write_file
from flockwise.errors import NetworkError
from flockwise.files import new_folder
from flockwise.net.store import FileStore
from flockwise.privacy.ledger import Ledger, read_statement, sync_folder
from flockwise.runtime.newest import BIRTHS_FILE, ledger_folders, note_births

# In a folder that an agent has moved into: the hash of the bundle that it came in.
CAME_FILE: Final = "came.sha256"
# They belong to the old place and its processes. SQLite makes its shared memory anew.
LEFT_BEHIND: Final = (STATUS_FILE, LOG_FILE, BIRTHS_FILE, MOVED_FILE, CAME_FILE, "errors.log")
LEFT_SUFFIXES: Final = (".lock", "-shm", ".part")


class Moved(msgspec.Struct, frozen=True):
    """Left in a folder whose agent has moved: where the bundle was written, and its hash."""

    bundle: str
    sha256: str


def move_out(path: Path, bundle: Path) -> None:
    """Pack an agent that does not run, and end the right of its folder to release."""
    part = bundle.with_name(bundle.name + ".part")
    if bundle.exists():
        raise NetworkError(f"{bundle}: there is a file already; name a new one")
    if not (path / MOVED_FILE).exists():
        folder = AgentFolder.read(path)
        _check_movable(folder)
        with FileStore(folder.state, folder.name):  # so it does not run meanwhile
            content = _packed(folder)
            write_file(part, content, is_secret=True)
            moved = Moved(str(bundle.resolve()), sha256(content).hexdigest())
            write_file(path / MOVED_FILE, msgspec.json.encode(moved))
            sync_folder(path)
    _finish(path, bundle, part)


def move_in(bundle: Path, path: Path) -> AgentFolder:
    """Unpack it in a new folder, whose ledger is the newest from now on; the bundle is removed."""
    content = read_file(bundle)
    came = sha256(content).hexdigest().encode()
    if not path.exists():
        _unpack(bundle, content, path, came)
    elif not (path / CAME_FILE).is_file() or read_file(path / CAME_FILE) != came:
        raise NetworkError(f"{path}: there is something already; name a new folder")
    sync_folder(path.parent)
    bundle.unlink()
    return AgentFolder.read(path)


def _unpack(bundle: Path, content: bytes, path: Path, came: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            files = {name: packed.read(name) for name in packed.namelist()}
    except zipfile.BadZipFile as error:
        raise NetworkError(f"{bundle}: is damaged, or not what `flockwise agent move-out` wrote") from error
    with new_folder(path, 0o700) as part:
        for name, data in files.items():
            _check_inside(bundle, name)
            write_file(part / name, data, is_secret=True)
        folder = AgentFolder.read(part)
        _check_ledgers(folder)
        note_births(folder)
        write_file(part / CAME_FILE, came)
        sync_folder(part)


def _check_movable(folder: AgentFolder) -> None:
    place = folder.neighborhood.place
    if place.host != folder.name:
        raise NetworkError(
            f"agent {folder.name!r}: gateway {place.host!r} runs it; let it run by itself first: "
            "flockwise network up DIR --processes 0"
        )
    if not (folder.path / folder.settings.data).resolve().is_relative_to(folder.path.resolve()):
        raise NetworkError(
            f"agent {folder.name!r}: its samples are outside of its folder ({folder.settings.data}); put "
            "them into it first"
        )


def _packed(folder: AgentFolder) -> bytes:
    _check_ledgers(folder)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.path.rglob("*")):
            is_left = file.name in LEFT_BEHIND or file.name.endswith(LEFT_SUFFIXES)
            if file.is_file() and not is_left:
                packed.writestr(file.relative_to(folder.path).as_posix(), file.read_bytes())
    return buffer.getvalue()


def _check_ledgers(folder: AgentFolder) -> None:
    """Whole, and each in its one file."""
    for one in ledger_folders(folder.state):
        Ledger.open(one, folder.name).close()


def _finish(path: Path, bundle: Path, part: Path) -> None:
    """The old store says that there are later releases than it knows of; then the bundle gets its name."""
    moved = msgspec.json.decode((path / MOVED_FILE).read_bytes(), type=Moved)
    if not part.is_file() or sha256(part.read_bytes()).hexdigest() != moved.sha256:
        raise NetworkError(
            f"{path}: this agent has moved to {moved.bundle}; move it in there, or bring the file "
            f"{moved.bundle}.part back and give this command again with --to {moved.bundle}"
        )
    state, settings = path / STATE_FOLDER, read_toml(path / AGENT_FILE, AgentFile)
    released = sum(len(read_statement(one).rows) for one in ledger_folders(state))
    with FileStore(state, settings.name) as store:
        store.mark_newer_release(released + 1)
    part.rename(bundle)
    sync_folder(bundle.parent)


def _check_inside(bundle: Path, name: str) -> None:
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts or "\\" in name:
        raise NetworkError(f"{bundle}: holds the file {name!r}, which is not of an agent's folder")
