"""The SQLite file of a ledger: locking, reading, and transactions that are on disk when they return.

The file has a write-ahead log and `synchronous=FULL`: a commit is one append, synced before COMMIT
returns. With a rollback journal the same setting lets a power cut undo a transaction that was already
reported as committed (the deleted journal can come back), and noise that was already sent would be
drawn a second time.

The log lives in a second file, which is easily lost: a cleanup removes it, a copy leaves it behind, and
SQLite then takes the rest for a whole, older ledger. So whatever the log holds is moved into the file
itself, and synced there, before anything that depends on it may leave the agent: after every commit, and
when the file is opened after a crash between the two.

The lock is an open exclusive transaction on an empty database beside the file. The operating system
releases it when the process dies, however it dies. Readers need no lock, so that a ledger can be
looked at while its agent runs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Final, Self

from flockwise.errors import LedgerError
from flockwise.privacy.entries import Account, Row, problems

NAME: Final = "ledger.sqlite"
LOCK_NAME: Final = "ledger.lock"
VERSION: Final = 1
ACCOUNT_TABLE: Final = (
    "CREATE TABLE account (agent TEXT NOT NULL, plan TEXT, n_entries INTEGER NOT NULL, seal BLOB NOT NULL)"
)
ENTRY_TABLE: Final = (
    "CREATE TABLE entry (number INTEGER PRIMARY KEY, recorded TEXT NOT NULL, event TEXT NOT NULL, "
    "payload BLOB, seal BLOB NOT NULL)"
)
SECONDS_TO_WAIT_FOR_READERS: Final = 10


@dataclass(frozen=True)
class Statement:
    """What a ledger says, and what is wrong with it."""

    account: Account
    rows: tuple[Row, ...]
    problems: tuple[str, ...]


class LedgerFile:
    """The open file of one agent, held by this process alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = (os.getpid(), get_ident())
        self._resources = ExitStack()
        try:
            with _explained(folder):
                self._resources.enter_context(_locked(folder))
                self._connection = self._resources.enter_context(closing(_connect(folder)))
                self._empty_log()
        except LedgerError:
            self.close()
            raise

    @classmethod
    def create(cls, folder: Path, account: Account) -> Self:
        """A new file with an account in it. What a crash left half made is made anew; an account never is."""
        folder.mkdir(parents=True, exist_ok=True)
        file = cls(folder)
        with file._transaction() as run:
            if run("SELECT name FROM sqlite_schema").fetchone() is not None:
                raise LedgerError(f"{folder}: there is a ledger already; open it, it knows what is spent")
            run(ACCOUNT_TABLE)
            run(ENTRY_TABLE)
            run(f"PRAGMA user_version = {VERSION}")
            run(
                "INSERT INTO account VALUES (?, ?, ?, ?)",
                (account.agent, account.plan, account.n_entries, account.seal),
            )
        # The names of new files are on disk only when their folders are.
        _sync(folder)
        _sync(folder.parent)
        return file

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The file of an agent that has one."""
        _refuse_missing(folder)
        return cls(folder)

    def read(self) -> Statement:
        with _explained(self._folder):
            return _read(self._folder, self._connection)

    def grant(self, account: Account) -> None:
        """Write what the agent may spend, where nothing was granted yet."""
        with self._transaction() as run:
            changed = run(
                "UPDATE account SET plan = ?, seal = ? WHERE plan IS NULL AND n_entries = 0",
                (account.plan, account.seal),
            )
            self._refuse_foreign_changes(changed.rowcount)

    def append(self, row: Row, before: Account, after: Account) -> None:
        """Add an entry to the chain that this process knows; whatever else has been written is refused."""
        with self._transaction() as run:
            changed = run(
                "UPDATE account SET n_entries = ?, seal = ? WHERE n_entries = ? AND seal = ?",
                (after.n_entries, after.seal, before.n_entries, before.seal),
            )
            self._refuse_foreign_changes(changed.rowcount)
            run(
                "INSERT INTO entry VALUES (?, ?, ?, ?, ?)",
                (row.number, row.recorded, row.event, row.payload, row.seal),
            )

    def close(self) -> None:
        self._resources.close()

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """All or nothing. After an error the file is closed: only a fresh look tells what is on the disk."""
        if (os.getpid(), get_ident()) != self._owner:  # a fork has the file, but not the lock
            raise LedgerError(f"{self._folder}: the ledger belongs to the process and thread that opened it")
        try:
            with _explained(self._folder):
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection.execute
                self._connection.execute("COMMIT")
                self._empty_log()
        except BaseException:
            self.close()  # rolls back what is not committed
            raise

    def _empty_log(self) -> None:
        """Move all that is committed from the log into the file, and sync the file."""
        (is_blocked, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_blocked:
            raise LedgerError(
                f"{self._folder}: another process has been reading the ledger for more than "
                f"{SECONDS_TO_WAIT_FOR_READERS} seconds; nothing was sent; end that one and start the agent "
                "again: it sends what is charged already"
            )

    def _refuse_foreign_changes(self, n_changed: int) -> None:
        if n_changed != 1:
            raise LedgerError(
                f"{self._folder}: the ledger was changed by someone else since it was opened; "
                "nothing was sent; make sure that only one process uses it, and start the agent again"
            )


def read_statement(folder: Path) -> Statement:
    """What the ledger in this folder says, without locking or changing it."""
    _refuse_missing(folder)
    with _explained(folder), closing(_connect(folder, mode="ro")) as connection:
        return _read(folder, connection)


def _read(folder: Path, connection: sqlite3.Connection) -> Statement:
    run = connection.execute
    if (version := run("PRAGMA user_version").fetchone()[0]) != VERSION:
        raise LedgerError(
            f"{folder}: a ledger has version {VERSION}, this file has {version}: it is no ledger, or "
            "one that was never finished"
        )
    accounts = [Account(*fields) for fields in run("SELECT agent, plan, n_entries, seal FROM account")]
    if len(accounts) != 1:
        raise LedgerError(
            f"{folder}: the ledger is damaged: it holds {len(accounts)} accounts instead of one"
        )
    rows = [Row(*fields) for fields in run("SELECT * FROM entry ORDER BY number")]
    broken = [text for (text,) in run("PRAGMA integrity_check") if text != "ok"]
    return Statement(accounts[0], tuple(rows), (*broken, *problems(accounts[0], rows)))


def _connect(folder: Path, mode: str = "rwc") -> sqlite3.Connection:
    uri = f"{(folder / NAME).resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=SECONDS_TO_WAIT_FOR_READERS)
    if mode != "ro":
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # without it macOS leaves the data in the drive's cache
        (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            raise LedgerError(f"{folder}: this file system cannot hold a write-ahead log; use a local disk")
    return connection


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with closing(sqlite3.connect(folder / LOCK_NAME, isolation_level=None, timeout=0)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise  # a full disk, and other reasons that have nothing to do with others
            raise LedgerError(
                f"{folder}: the ledger is in use by another process ({error}); stop that one first, "
                "or give each agent a folder of its own"
            ) from error
        yield


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """SQLite's errors in our words; they tell of files and tables, never of values."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(
            f"{folder}: the ledger cannot be used: {error}; nothing was sent; see to the disk (is it full?) "
            "and start the agent again"
        ) from error


def _refuse_missing(folder: Path) -> None:
    if not (folder / NAME).is_file():
        raise LedgerError(
            f"{folder}: there is no ledger; a new agent gets one by Ledger.create, but one that has released "
            "before has no budget without it"
        )


def _sync(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened, nor need it be
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
