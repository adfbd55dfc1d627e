"""A checkpoint: what each shard saved of itself, and a manifest. Any engine can go on from it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import ResumeError
from flockwise.files import write_json
from flockwise.results.trajectory import RECORD_FIELDS, Record

MANIFEST = "checkpoint.json"
FORMAT = 1
# As `shard_file` names them; one that was not written to its end has another ending.
SHARD_FILE = re.compile(r"shard-[0-9a-f]{8}-\d+-\d+\.npz(\.part)?")


class CheckpointState(Mapping[str, NDArray[Any]]):
    """The state of all agents, gathered from the files when it is asked for."""

    def __init__(self, files: tuple[Path, ...], now: int) -> None:
        self.files, self._now = files, now

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name == "now":
            return np.array(self._now)
        parts = [read_arrays(file, name) for file in self.files]
        order = np.argsort(np.concatenate([positions for positions, _ in parts]))
        return np.concatenate([array for _, array in parts])[order]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        with _opened(self.files[0]) as saved:
            return tuple(name for name in saved.files if name != "positions")

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._names, "now"))

    def __len__(self) -> int:
        return len(self._names) + 1


class Checkpoint:
    """A run as it was at a barrier: `simulate(..., resume=Checkpoint.read(folder))` goes on from there."""

    stopped: ClassVar[str] = "interrupted"

    def __init__(self, about: Mapping[str, Any], files: tuple[Path, ...]) -> None:
        try:
            self.settings: Mapping[str, Any] = about["settings"]
            self.problem_fingerprint: str = about["problem_fingerprint"]
            self.records = tuple(_record(record) for record in about["records"])
            self.state = CheckpointState(files, int(about["now"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ResumeError(f"{MANIFEST} is not a checkpoint's: {error!r}") from error

    @classmethod
    def read(cls, folder: str | Path) -> Checkpoint:
        """From the folder that a run was given for its checkpoints."""
        manifest = Path(folder) / MANIFEST
        if not manifest.is_file():
            raise ResumeError(f"{folder}: there is no checkpoint here; start the run anew")
        try:
            document = json.loads(manifest.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise ResumeError(f"{manifest} has format {document['format']}, this version reads {FORMAT}")
            files = tuple(Path(folder) / name for name in document["files"])
            about = document["about"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResumeError(f"{manifest} is damaged: {error!r}") from error
        for file in files:
            if not file.is_file():
                raise ResumeError(f"{file} is missing: a checkpoint is of use only with all of its files")
        return cls(about, files)


def write_manifest(folder: Path, files: list[str], about: Mapping[str, Any]) -> None:
    """The last step of a checkpoint. Files of shards that it does not name are then removed.

    These are of the checkpoint before, or of a driver that was lost before this step.
    """
    write_json(folder / MANIFEST, {"format": FORMAT, "files": files, "about": _without_nan(about)})
    _remove_shard_files(folder, files)


def remove_unfinished(folder: Path) -> None:
    """Files of shards that the manifest does not name: of a checkpoint that could not be made."""
    manifest = folder / MANIFEST
    named = json.loads(manifest.read_text(encoding="utf-8"))["files"] if manifest.is_file() else ()
    _remove_shard_files(folder, but=named)


def remove_checkpoint(folder: Path) -> None:
    """The manifest first: without it no file of a shard is of use."""
    if (folder / MANIFEST).is_file():
        (folder / MANIFEST).unlink()
        _remove_shard_files(folder, but=())


def _remove_shard_files(folder: Path, but: Collection[str]) -> None:
    for file in folder.iterdir():
        if SHARD_FILE.fullmatch(file.name) and file.name not in but:
            file.unlink(missing_ok=True)


def shard_file(run: str, ticks: int, shard: int) -> str:
    """The name of a shard's file. run: eight hexadecimal digits that no other run has."""
    return f"shard-{run}-{ticks}-{shard}.npz"


def read_arrays(file: Path, *names: str) -> tuple[NDArray[Any], ...]:
    """The positions and the arrays that one shard saved."""
    with _opened(file) as saved:
        return (_read(saved, file, "positions"), *(_read(saved, file, name) for name in names))


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        stream = file.open("rb")
    except OSError as error:
        raise ResumeError(f"{file} is missing or cannot be read: {error}") from error
    with stream:
        try:
            saved = np.load(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise ResumeError(f"{file} is damaged: {error}") from error
        with saved:
            yield saved


def _read(saved: Any, file: Path, name: str) -> NDArray[Any]:
    try:
        return saved[name]
    except Exception as error:  # zlib, zipfile and NumPy each have their own way to say it
        raise ResumeError(f"{file} is damaged: {error}") from error


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what a record has none of is null there."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


def _record(values: Mapping[str, Any]) -> Record:
    """As it was before JSON."""
    measures = {name: math.nan if value is None else value for name, value in values["measures"].items()}
    numbers: Any = {name: math.nan if values[name] is None else values[name] for name in RECORD_FIELDS}
    return Record(**numbers, measures=measures)
