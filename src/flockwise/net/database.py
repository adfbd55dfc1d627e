"""SQLite files of one process, and the lock that keeps others away."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from flockwise.errors import NetworkError

SECONDS_TO_WAIT_FOR_READERS: Final = 10

Run: TypeAlias = Callable[..., sqlite3.Cursor]


class Database:
    """A file with these tables, made when there is none. Nobody but its owner may read it.

    It has a write-ahead log, so a commit is one append; the log takes over the mode of the file.
    """

    def __init__(self, path: Path, tables: Sequence[str], version: int, *, shrinks: bool = False) -> None:
        """shrinks: the file gives room back when rows are deleted."""
        self._path = path
        with self._explained():
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(
                path, isolation_level=None, timeout=SECONDS_TO_WAIT_FOR_READERS, check_same_thread=False
            )
            try:
                self._prepare(tables, version, shrinks)
            except BaseException:
                self.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[Run]:
        with self._explained():
            yield self._connection.execute

    @contextmanager
    def writing(self, *, outlasts_power_cut: bool = True) -> Iterator[Run]:
        """All or nothing. When it ends, the change outlasts a power cut, or at least the process."""
        run = self._connection.execute
        with self._explained():
            run(f"PRAGMA synchronous = {'FULL' if outlasts_power_cut else 'NORMAL'}")
            run("BEGIN IMMEDIATE")
            try:
                yield run
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise

    def close(self) -> None:
        self._connection.close()

    def _prepare(self, tables: Sequence[str], version: int, shrinks: bool) -> None:
        run = self._connection.execute
        (found,) = run("PRAGMA user_version").fetchone()
        if found not in (0, version):
            raise NetworkError(
                f"{self._path}: has version {found}, and this version of Flockwise reads version {version}; "
                "run the version that wrote it"
            )
        if not found and shrinks:
            run("PRAGMA auto_vacuum = FULL")
        run("PRAGMA fullfsync = ON")
        run("PRAGMA journal_mode = WAL")
        if not found:
            # Without its tables a file is still new: they need not outlast a power cut.
            with self.writing(outlasts_power_cut=False):
                for table in tables:
                    run(table)
                run(f"PRAGMA user_version = {version}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors in our words; they name files and tables, never values."""
        try:
            yield
        except sqlite3.Error as error:
            raise NetworkError(
                f"{self._path}: the agent's state cannot be used: {error}; see to the disk (is it full?) and "
                "start the agent again"
            ) from error


def take_lock(path: Path) -> sqlite3.Connection | None:
    """For one process: held until it is closed; None if another process holds it.

    It is an exclusive transaction on an empty database. The system ends it with the process, however it dies.
    """
    try:
        lock = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except BaseException:
            lock.close()
            raise
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return None
        raise NetworkError(f"{path}: cannot be used: {error}; see to the disk and its rights") from error
    return lock
