"""What an agent of a network keeps besides its ledger: what it sent, what it received, what it was given.

Without privacy there is no ledger, and the store is the outbox: number and bytes of a message are on disk
before the message leaves. With privacy the ledger is; the store then holds only what can be had again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Protocol, Self

import numpy as np

from flockwise.data.samples import Samples
from flockwise.errors import NetworkError
from flockwise.net.locks import take_lock
from flockwise.net.wire import Sent

NAME: Final = "state.sqlite"
LOCK_NAME: Final = "state.lock"
VERSION: Final = 1
SECONDS_TO_WAIT_FOR_READERS: Final = 10
NUMBERS: Final = np.dtype("<f8")
TABLES: Final = (
    "CREATE TABLE owner (agent TEXT NOT NULL, newer_release INTEGER)",
    "CREATE TABLE sent (only INTEGER PRIMARY KEY CHECK (only = 0), number INTEGER, data BLOB NOT NULL)",
    "CREATE TABLE received (sender TEXT PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE batch (number INTEGER PRIMARY KEY, features BLOB NOT NULL, targets BLOB NOT NULL)",
)


@dataclass
class State:
    """All that a store holds.

    newer_release: number of a release that a neighbor holds and this agent's ledger lacks. batches: samples
    that were added while the agent ran, as they came.
    """

    sent: Sent | None = None
    received: dict[str, bytes] = field(default_factory=dict)
    newer_release: int | None = None
    batches: list[Samples] = field(default_factory=list)


class Store(Protocol):
    """Every method has its effect when it returns; one that raises may have it or not.

    Effects outlast the process. Those of `mark_newer_release` and `add_batch` outlast a power cut too. What
    was sent or received need not: without privacy a neighbor shows an agent what it had sent, and with
    privacy what was sent is in the ledger, which outlasts everything.
    """

    def load(self) -> State: ...

    def save_sent(self, sent: Sent) -> None: ...

    def save_received(self, received: Mapping[str, bytes], forgotten: Iterable[str] = ()) -> None: ...

    def mark_newer_release(self, number: int) -> None: ...

    def add_batch(self, batch: Samples) -> None: ...

    def close(self) -> None: ...


class FileStore:
    """A SQLite file in the agent's folder, made when there is none, and held by one process at a time."""

    def __init__(self, folder: str | Path, agent: str) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._resources = ExitStack()
        self._synchronous: str | None = None
        try:
            self._resources.enter_context(_locked(self._folder))
            with explained(self._folder):
                self._connection = self._resources.enter_context(closing(_connect(self._folder)))
                self._begin(agent)
        except BaseException:
            self.close()
            raise

    def load(self) -> State:
        with explained(self._folder):
            run = self._connection.execute
            sent = run("SELECT number, data FROM sent").fetchone()
            ((newer_release,),) = run("SELECT newer_release FROM owner")
            return State(
                None if sent is None else Sent(*sent),
                dict(run("SELECT sender, data FROM received")),
                newer_release,
                [_batch(*row) for row in run("SELECT features, targets FROM batch ORDER BY number")],
            )

    # Neighbors have these two and send them again: it is enough if they outlast the process. To wait for
    # the disk would cost a gateway more than all else that it does.

    def save_sent(self, sent: Sent) -> None:
        with self._transaction(synchronous="NORMAL") as run:
            run("INSERT OR REPLACE INTO sent VALUES (0, ?, ?)", (sent.number, sent.data))

    def save_received(self, received: Mapping[str, bytes], forgotten: Iterable[str] = ()) -> None:
        with self._transaction(synchronous="NORMAL") as run:
            for sender in forgotten:
                run("DELETE FROM received WHERE sender = ?", (sender,))
            for row in received.items():
                run("INSERT OR REPLACE INTO received VALUES (?, ?)", row)

    def mark_newer_release(self, number: int) -> None:
        with self._transaction() as run:
            run("UPDATE owner SET newer_release = ?", (number,))

    def add_batch(self, batch: Samples) -> None:
        row = (batch.features.astype(NUMBERS).tobytes(), batch.targets.astype(NUMBERS).tobytes())
        with self._transaction() as run:
            run("INSERT INTO batch (features, targets) VALUES (?, ?)", row)

    def close(self) -> None:
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, agent: str) -> None:
        """Make the tables of a new file; refuse a file of another agent or of another version."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            # Without these tables the file is still new: they need not outlast a power cut.
            with self._transaction(synchronous="NORMAL") as run:
                for table in TABLES:
                    run(table)
                run("INSERT INTO owner VALUES (?, NULL)", (agent,))
                run(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise NetworkError(
                f"{self._folder}: the state of an agent has version {VERSION}, {NAME} has version {version}; "
                "run the version of Flockwise that wrote it"
            )
        ((owner,),) = self._connection.execute("SELECT agent FROM owner")
        if owner != agent:
            raise NetworkError(
                f"{self._folder}: the state in this folder is that of agent {owner!r}, not of {agent!r}; "
                "give each agent a folder of its own"
            )

    @contextmanager
    def _transaction(
        self, synchronous: Literal["FULL", "NORMAL"] = "FULL"
    ) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """All or nothing; when it ends it survives a power cut (FULL) or the end of the process (NORMAL)."""
        with explained(self._folder):
            if synchronous != self._synchronous:
                self._connection.execute(f"PRAGMA synchronous = {synchronous}")
                self._synchronous = synchronous
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _batch(features: bytes, targets: bytes) -> Samples:
    values = np.frombuffer(targets, NUMBERS).astype(np.float64)
    rows = np.frombuffer(features, NUMBERS).astype(np.float64)
    return Samples(rows.reshape(len(values), -1), values)


def _connect(folder: Path) -> sqlite3.Connection:
    """With a write-ahead log that is synced at every commit, so that a commit is one append.

    The file holds samples that were added: nobody but the owner may read it, nor the log, which takes over
    its mode.
    """
    (folder / NAME).touch(mode=0o600)
    connection = sqlite3.connect(
        folder / NAME, isolation_level=None, timeout=SECONDS_TO_WAIT_FOR_READERS, check_same_thread=False
    )
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def _locked(folder: Path) -> closing[sqlite3.Connection]:
    lock = take_lock(folder / LOCK_NAME)
    if lock is None:
        raise NetworkError(
            f"{folder}: the agent in this folder is running already; stop it first, or give each agent a "
            "folder of its own"
        )
    return closing(lock)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """SQLite's errors in our words; they tell of files and tables, never of values."""
    try:
        yield
    except sqlite3.Error as error:
        raise NetworkError(
            f"{folder}: the agent's state cannot be used: {error}; see to the disk (is it full?) and start "
            "the agent again"
        ) from error
