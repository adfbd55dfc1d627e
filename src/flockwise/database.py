"""SQLite files of one process, and the lock that keeps others away."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from flockwise.errors import FlockwiseError, NetworkError

SECONDS_TO_WAIT_FOR_READERS: Final = 10

Run: TypeAlias = Callable[..., sqlite3.Cursor]


class Advice(NamedTuple):
    """Errors of SQLite and of the disk in our words; they name files and tables, never values."""

    error: type[FlockwiseError]
    words: str

    @contextmanager
    def given(self, path: Path) -> Iterator[None]:
        """For what the block does with this file or folder."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self.error(f"{path}: {self.words.format(error)}") from error


LOCK: Final = Advice(NetworkError, "cannot be used: {}; see to the disk and its rights")
STATE: Final = Advice(
    NetworkError,
    "the agent's state cannot be used: {}; see to the disk (is it full?) and start the agent again",
)


def connect(path: Path, *, shrinks: bool = False) -> sqlite3.Connection:
    """To a file with a write-ahead log, so a commit is one append; the log takes over the mode of the file.

    Nobody but its owner may read a new one. shrinks: it gives room back when rows are deleted.
    """
    path.touch(mode=0o600)
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=SECONDS_TO_WAIT_FOR_READERS, check_same_thread=False
    )
    try:
        if shrinks:
            connection.execute("PRAGMA auto_vacuum = FULL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # without it macOS leaves the data in the drive's cache
        (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            raise sqlite3.OperationalError("this file system cannot hold a write-ahead log, use a local disk")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reading(path: Path) -> AbstractContextManager[sqlite3.Connection]:
    """To a file that another process may be using; nothing of it is changed."""
    return closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=SECONDS_TO_WAIT_FOR_READERS)
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[Run]:
    """All or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection.execute
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def take_lock(path: Path, advice: Advice = LOCK) -> sqlite3.Connection | None:
    """For one process: held until it is closed; None if another process holds it.

    It is an exclusive transaction on an empty database. The system ends it with the process, however it dies.
    """
    with advice.given(path):
        lock = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except BaseException as error:
            lock.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                return None
            raise
        return lock


class Database:
    """An agent's file with these tables, made when there is none."""

    def __init__(self, path: Path, tables: Sequence[str], version: int, *, shrinks: bool = False) -> None:
        self._path = path
        with STATE.given(path):
            self._connection = connect(path, shrinks=shrinks)
            try:
                self._prepare(tables, version)
            except BaseException:
                self.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[Run]:
        with STATE.given(self._path):
            yield self._connection.execute

    @contextmanager
    def writing(self, *, outlasts_power_cut: bool = True) -> Iterator[Run]:
        """All or nothing. When it ends, the change outlasts a power cut, or at least the process."""
        with STATE.given(self._path):
            how = "FULL" if outlasts_power_cut else "NORMAL"
            self._connection.execute(f"PRAGMA synchronous = {how}")
            with transaction(self._connection) as run:
                yield run

    def close(self) -> None:
        self._connection.close()

    def _prepare(self, tables: Sequence[str], version: int) -> None:
        (found,) = self._connection.execute("PRAGMA user_version").fetchone()
        if found:
            _check_version(self._path, found, version)
            return
        # Without its tables a file is still new: they need not outlast a power cut.
        with self.writing(outlasts_power_cut=False) as run:
            for table in tables:
                run(table)
            run(f"PRAGMA user_version = {version}")


@contextmanager
def only_reading(path: Path, version: int) -> Iterator[Run]:
    """A file of this version, whether or not a process uses it; nothing of it is changed."""
    if not path.is_file():
        raise NetworkError(f"{path}: there is no such file; name the folder of an agent")
    with STATE.given(path), connect_reading(path) as connection:
        _check_version(path, connection.execute("PRAGMA user_version").fetchone()[0], version)
        yield connection.execute


def _check_version(path: Path, found: int, version: int) -> None:
    if found != version:
        raise NetworkError(
            f"{path}: has version {found}, and this version of Flockwise reads version {version}; "
            "run the version that wrote it"
        )
