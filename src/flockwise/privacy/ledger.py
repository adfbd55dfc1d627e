"""The ledger: what an agent may spend, has spent and has released, kept before anything leaves.

One transaction stores the charge (the consumed event), the number and the bytes of the release, which
hold the new released model. Only then may the bytes be sent. After a crash they are there to be sent
again, the same ones, at no cost.

**The chain.** Every entry carries a SHA-256 hash over itself and the seal before it, and the account carries
the number of entries and the last seal. So an edited, missing, added or reordered entry is found, at the
end as well. This finds damage and accidents. It does not stop the owner of the file, who could write
a whole new chain or put back an old copy: keep ledgers out of restores from backups, because an agent
with an old ledger would spend the same budget twice.

**The file** is an SQLite file with a write-ahead log and `synchronous=FULL`: a commit is one append, synced
before COMMIT returns. With a rollback journal the same setting lets a power cut undo a transaction that was
already reported as committed (the deleted journal can come back), and noise that was already sent would be
drawn a second time. The log lives in a second file, which is easily lost: a cleanup removes it, a copy leaves
it behind, and SQLite then takes the rest for a whole, older ledger. So whatever the log holds is moved into
the file itself, and synced there, before anything that depends on it may leave the agent: after every commit,
and when the file is opened after a crash between the two.

**The lock** is an open exclusive transaction on an empty database beside the file. The operating system
releases it when the process dies, however it dies. Readers need no lock, so a ledger can be read while its
agent runs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import get_ident
from typing import Any, ClassVar, Final, Self

from numpy.typing import NDArray

from flockwise.database import (
    SECONDS_TO_WAIT_FOR_READERS,
    Advice,
    Run,
    connect,
    connect_reading,
    take_lock,
    transaction,
)
from flockwise.errors import LedgerError
from flockwise.privacy.mechanisms import Mechanism, event_from_json, event_to_json
from flockwise.privacy.messages import encode

CHAIN_BEGINS: Final = b"flockwise ledger 1"
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
ADVICE: Final = Advice(
    LedgerError,
    "the ledger cannot be used: {}; nothing was sent; see to the disk (is it full?) and start the agent "
    "again",
)


@dataclass(frozen=True)
class Entry:
    """One consumed event. Without a payload nothing was sent for it: the event is lost all the same."""

    number: int
    event: Mechanism
    payload: bytes | None
    recorded: str

    @classmethod
    def now(cls, number: int, event: Mechanism, payload: bytes | None) -> Entry:
        return cls(number, event, payload, datetime.now(UTC).isoformat(timespec="milliseconds"))


@dataclass(frozen=True)
class LedgerRow:
    """An entry as it is stored."""

    number: int
    recorded: str
    event: str
    payload: bytes | None
    seal: bytes

    @classmethod
    def of(cls, entry: Entry, previous_seal: bytes) -> LedgerRow:
        fields = (entry.number, entry.recorded, event_to_json(entry.event), entry.payload)
        return cls(*fields, _seal(previous_seal, *fields))

    def entry(self) -> Entry:
        return Entry(self.number, event_from_json(self.event), self.payload, self.recorded)


@dataclass(frozen=True)
class Account:
    """Whose ledger it is, what it may spend, and where its chain ends."""

    agent: str
    plan: str | None
    n_entries: int
    seal: bytes

    @classmethod
    def opened(cls, agent: str, plan: str | None) -> Account:
        """An account without entries. Its seal covers what was granted: under another grant no entry fits."""
        return cls(agent, plan, 0, _seal(CHAIN_BEGINS, agent, plan))

    def after(self, row: LedgerRow) -> Account:
        return dataclasses.replace(self, n_entries=row.number, seal=row.seal)


@dataclass(frozen=True)
class Statement:
    """The content of a ledger, and what is wrong with it."""

    account: Account
    rows: tuple[LedgerRow, ...]
    problems: tuple[str, ...]


class LedgerBase(ABC):
    """What every ledger does: one grant, entries in order, nothing ever taken back."""

    is_durable: ClassVar[bool]

    def __init__(self, account: Account, entries: list[Entry]) -> None:
        self._account = account
        self._entries = entries
        self._is_claimed = False

    @property
    def agent(self) -> str:
        return self._account.agent

    @property
    def plan(self) -> str | None:
        """The plan that was granted, as text."""
        return self._account.plan

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    @property
    def consumed(self) -> int:
        """How many events are spent, whether or not something was sent for them."""
        return len(self._entries)

    def claim(self) -> None:
        """Take it for one gate, for as long as it is open.

        A second gate would go on from a released model that is no longer the last one, and draw its noise
        under numbers that the first one uses.
        """
        if self._is_claimed:
            raise LedgerError(
                f"agent {self.agent!r}: its ledger has a gate already; release through that one, or close "
                "the ledger and open it again"
            )
        self._is_claimed = True

    def grant(self, plan: str) -> None:
        """Commit a plan, once and for all; after a restart the same one may be named again."""
        if self._account.plan is None:
            granted = Account.opened(self.agent, plan)
            self._store_grant(granted)
            self._account = granted
        elif self._account.plan != plan:
            raise LedgerError(
                f"agent {self.agent!r}: its ledger was granted another plan, and a plan is never replaced; "
                "what it leaves unused is lost; start the agent with the plan that it began with"
            )

    def record(self, entry: Entry) -> None:
        """Charge an event and keep what may be sent for it. When this returns, the bytes may leave."""
        if self._account.plan is None:
            raise LedgerError(f"agent {self.agent!r}: nothing was granted yet; a gate grants its plan first")
        if entry.number != self.consumed + 1:
            raise LedgerError(
                f"agent {self.agent!r}: event {self.consumed + 1} is next, got number={entry.number}"
            )
        row = LedgerRow.of(entry, self._account.seal)
        after = self._account.after(row)
        self._store_entry(row, after)
        self._account = after
        self._entries.append(entry)

    @abstractmethod
    def _store_grant(self, granted: Account) -> None: ...

    @abstractmethod
    def _store_entry(self, row: LedgerRow, after: Account) -> None: ...


class MemoryLedger(LedgerBase):
    """For simulations: the same rules, gone with the process. A real agent needs a `Ledger`."""

    is_durable = False

    def __init__(self, agent: str) -> None:
        super().__init__(Account.opened(agent, None), [])

    def restore(self, plan: str, events: Sequence[Mechanism], released: NDArray[Any]) -> None:
        """Charge the first events of a plan again, the last one with the model that it released.

        For a simulation that resumes.
        """
        self.grant(plan)
        for number, event in enumerate(events, start=1):
            payload = encode(number, released) if number == len(events) else None
            self.record(Entry.now(number, event, payload))

    def _store_grant(self, granted: Account) -> None:
        """The object itself is the memory."""

    def _store_entry(self, row: LedgerRow, after: Account) -> None:
        """The object itself is the memory."""


class Ledger(LedgerBase):
    """A real agent's ledger, in a folder of its own: `create` once, then `open` at every start.

    The two are kept apart because a ledger that is gone is not a new budget: what was released stays
    released. One process at a time holds it. After an error of the disk it is closed, and what holds is
    what the next `open` finds.
    """

    is_durable = True
    after_commit: Callable[[Account], None] | None = None
    """Called with the account after every entry: what it raises is raised by `record`, and nothing leaves."""

    def __init__(self, folder: Path, agent: str) -> None:
        """Lock and open the file; `create` and `open` say what has to be in it."""
        super().__init__(Account.opened(agent, None), [])
        self._folder = folder
        self._owner = (os.getpid(), get_ident())
        self._resources = ExitStack()
        try:
            with ADVICE.given(folder):
                self._resources.enter_context(_locked(folder))
                self._connection = self._resources.enter_context(closing(connect(folder / NAME)))
                self._empty_log()
        except LedgerError:
            self.close()
            raise

    @classmethod
    def create(cls, folder: str | Path, agent: str) -> Self:
        """A new ledger, with nothing granted and nothing spent.

        A file that a crash left half made is made anew; an account never is.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        ledger = cls(path, agent)
        with ledger._transaction() as run:
            if run("SELECT name FROM sqlite_schema").fetchone() is not None:
                raise LedgerError(f"{folder}: there is a ledger already; open it, it knows what is spent")
            run(ACCOUNT_TABLE)
            run(ENTRY_TABLE)
            run(f"PRAGMA user_version = {VERSION}")
            run("INSERT INTO account VALUES (?, ?, ?, ?)", dataclasses.astuple(ledger._account))
        # The names of new files are on disk only when their folders are.
        sync_folder(path)
        sync_folder(path.parent)
        return ledger

    @classmethod
    def open(cls, folder: str | Path, agent: str) -> Self:
        """The ledger that this agent has in this folder, checked from end to end."""
        path = Path(folder)
        _refuse_missing(path)
        ledger = cls(path, agent)
        try:
            with ADVICE.given(path):
                statement = _read(path, ledger._connection)
            if statement.problems:
                raise LedgerError(
                    f"{folder}: the ledger is damaged ({statement.problems[0]}); the agent must stay silent, "
                    f"for nobody can tell what it has spent; look at it with: flockwise ledger show {folder}"
                )
            if statement.account.agent != agent:
                raise LedgerError(
                    f"{folder}: the ledger belongs to agent {statement.account.agent!r}, not to {agent!r}; "
                    "give each agent a folder of its own"
                )
            ledger._account = statement.account
            ledger._entries = [row.entry() for row in statement.rows]
            return ledger
        except BaseException:
            ledger.close()
            raise

    def close(self) -> None:
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _store_grant(self, granted: Account) -> None:
        with self._transaction() as run:
            changed = run(
                "UPDATE account SET plan = ?, seal = ? WHERE plan IS NULL AND n_entries = 0",
                (granted.plan, granted.seal),
            )
            self._refuse_foreign_changes(changed.rowcount)

    def _store_entry(self, row: LedgerRow, after: Account) -> None:
        """Add to the chain that this process knows; whatever else has been written is refused."""
        before = self._account
        with self._transaction() as run:
            changed = run(
                "UPDATE account SET n_entries = ?, seal = ? WHERE n_entries = ? AND seal = ?",
                (after.n_entries, after.seal, before.n_entries, before.seal),
            )
            self._refuse_foreign_changes(changed.rowcount)
            run("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", dataclasses.astuple(row))
        if self.after_commit is not None:
            self.after_commit(after)

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        """All or nothing. After an error the file is closed: only a fresh look tells what is on the disk."""
        if (os.getpid(), get_ident()) != self._owner:  # a fork has the file, but not the lock
            raise LedgerError(f"{self._folder}: the ledger belongs to the process and thread that opened it")
        try:
            with ADVICE.given(self._folder):
                with transaction(self._connection) as run:
                    yield run
                self._empty_log()
        except BaseException:
            self.close()
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
    """Read the ledger in this folder without locking or changing it."""
    _refuse_missing(folder)
    with ADVICE.given(folder), connect_reading(folder / NAME) as connection:
        return _read(folder, connection)


def _read(folder: Path, connection: sqlite3.Connection) -> Statement:
    run = connection.execute
    if (version := run("PRAGMA user_version").fetchone()[0]) != VERSION:
        raise LedgerError(
            f"{folder}: a ledger has version {VERSION}, this file has {version}: it is not a ledger, or "
            "one that was never finished"
        )
    accounts = [Account(*fields) for fields in run("SELECT agent, plan, n_entries, seal FROM account")]
    if len(accounts) != 1:
        raise LedgerError(
            f"{folder}: the ledger is damaged: it holds {len(accounts)} accounts instead of one"
        )
    rows = [LedgerRow(*fields) for fields in run("SELECT * FROM entry ORDER BY number")]
    broken = [text for (text,) in run("PRAGMA integrity_check") if text != "ok"]
    return Statement(accounts[0], tuple(rows), (*broken, *_problems(accounts[0], rows)))


def _problems(account: Account, rows: Iterable[LedgerRow]) -> Iterator[str]:
    """Everything that does not fit, in plain words; nothing for a ledger that is as it was written."""
    seal = Account.opened(account.agent, account.plan).seal
    number = 0
    for row in rows:
        if row.number != number + 1:
            yield f"entry {number + 1} is missing: entry {row.number} comes after {number}"
        if row.seal != _seal(seal, row.number, row.recorded, row.event, row.payload):
            yield f"entry {row.number} is not what was written, or not where it was written"
        number, seal = row.number, row.seal
    if number != account.n_entries:
        yield f"the account counts {account.n_entries} entries, the last one is {number}"
    elif seal != account.seal:
        yield "the account does not end with the seal of its last entry"


def _seal(previous: bytes, *fields: int | str | bytes | None) -> bytes:
    """A hash over the seal before and all fields, each with its type and length: no two records share it."""
    digest = hashlib.sha256(previous)
    for field in fields:
        content = field if isinstance(field, bytes) else repr(field).encode()
        digest.update(f"{type(field).__name__} {len(content)} ".encode())
        digest.update(content)
    return digest.digest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = take_lock(folder / LOCK_NAME, ADVICE)
    if lock is None:
        raise LedgerError(
            f"{folder}: the ledger is in use by another process; stop that one first, or give each agent a "
            "folder of its own"
        )
    with closing(lock):
        yield


def _refuse_missing(folder: Path) -> None:
    if not (folder / NAME).is_file():
        raise LedgerError(
            f"{folder}: there is no ledger; a new agent gets one by Ledger.create, but one that has released "
            "before has no budget without it"
        )


def sync_folder(folder: Path) -> None:
    """Wait until the names of new files in it are on disk: without them the files are lost in a power cut."""
    if os.name != "posix":  # elsewhere a folder cannot be opened, nor need it be
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
