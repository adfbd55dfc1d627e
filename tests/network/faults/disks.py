"""Disks: what an agent wrote survives its death, and any write may fail or be the last thing it did."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from flockwise.data import Samples
from flockwise.errors import FlockwiseError, LedgerError, NetworkError
from flockwise.net.store import FileStore, Sent, State, Store
from flockwise.privacy.ledger import NAME, Account, Entry, Ledger, LedgerBase, LedgerRow, read_statement
from flockwise.runtime.testing import MemoryStore

# What becomes of one write: an error or death, before it is on disk or after.
Fault: TypeAlias = Literal["fails before", "fails after", "dies before", "dies after"]
FAULTS: tuple[Fault, ...] = ("fails before", "fails after", "dies before", "dies after")


class Killed(BaseException):
    """The agent's process is no more; nothing may catch it but the world."""


@dataclass
class Writes:
    """What happens to the writes of one disk, and what was ever written in full.

    The log outlives restored backups: it is what the world knows, not what the agent does.
    """

    next_faults: list[Fault] = field(default_factory=list)
    is_full: bool = False
    released: list[tuple[int, bytes]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def do(self, change: Callable[[], None], error: type[FlockwiseError]) -> None:
        fault = self.next_faults.pop(0) if self.next_faults else None
        if fault == "dies before":
            raise Killed
        if fault == "fails before" or self.is_full:
            raise error("the disk failed, as the schedule says")
        change()
        if fault == "dies after":
            raise Killed
        if fault == "fails after":
            raise error("the disk failed after it had written, as the schedule says")


class Disk(Protocol):
    """One agent's disk."""

    writes: Writes

    def open_ledger(self) -> LedgerBase: ...

    def open_store(self) -> Store: ...

    def entries(self) -> list[Entry]:
        """What its ledger holds now."""
        ...

    def close(self) -> None:
        """The process that had it open is gone."""
        ...

    def backup(self) -> Any: ...

    def restore(self, backup: Any) -> None: ...


@dataclass
class _Content:
    """What is on a disk in memory."""

    account: Account
    entries: list[Entry]
    state: State

    def copied(self) -> _Content:
        state = copy(self.state)
        state.received, state.batches = dict(state.received), list(state.batches)
        return _Content(self.account, list(self.entries), state)


class MemoryDisk:
    """As safe as a real one, and fast: it keeps what was committed, and an agent has a copy of it."""

    def __init__(self, agent: str) -> None:
        self.writes = Writes()
        self.content = _Content(Account.opened(agent, None), [], State())

    def open_ledger(self) -> LedgerBase:
        return DiskLedger(self)

    def open_store(self) -> Store:
        return FaultyStore(MemoryStore(self.content.state), self.writes)

    def entries(self) -> list[Entry]:
        return self.content.entries

    def close(self) -> None:
        """Nothing is open."""

    def backup(self) -> Any:
        return self.content.copied()

    def restore(self, backup: Any) -> None:
        self.content = backup.copied()


class DiskLedger(LedgerBase):
    """A ledger on a disk in memory. It is not "durable" to the gate: a schedule draws its noise by seed."""

    is_durable = False

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk.content.account, list(disk.content.entries))
        self._disk = disk

    def _store_grant(self, granted: Account) -> None:
        def change() -> None:
            self._disk.content.account = granted

        self._disk.writes.do(change, LedgerError)

    def _store_entry(self, row: LedgerRow, after: Account) -> None:
        def change() -> None:
            self._disk.content.account = after
            self._disk.content.entries.append(row.entry())
            if row.payload is not None:
                self._disk.writes.released.append((row.number, row.payload))

        self._disk.writes.do(change, LedgerError)


class FaultyStore:
    """A store whose writes the schedule can make fail."""

    def __init__(self, store: Store, writes: Writes) -> None:
        self._store = store
        self._writes = writes

    def load(self) -> State:
        return self._store.load()

    def save_sent(self, sent: Sent) -> None:
        def change() -> None:
            self._store.save_sent(sent)
            self._writes.sent.append(sent)

        self._writes.do(change, NetworkError)

    def save_received(self, received: Mapping[str, bytes], forgotten: Iterable[str] = ()) -> None:
        self._writes.do(lambda: self._store.save_received(received, forgotten), NetworkError)

    def mark_newer_release(self, number: int) -> None:
        self._writes.do(lambda: self._store.mark_newer_release(number), NetworkError)

    def mark_roster(self, version: int) -> None:
        self._writes.do(lambda: self._store.mark_roster(version), NetworkError)

    def add_batch(self, batch: Samples) -> None:
        self._writes.do(lambda: self._store.add_batch(batch), NetworkError)

    def close(self) -> None:
        self._store.close()


class FileDisk:
    """A folder with the real files, for a share of the schedules: secure noise follows no seed."""

    def __init__(self, agent: str, folder: Path) -> None:
        self.writes = Writes()
        self._agent = agent
        self._folder = folder
        self._open: list[FileLedger | FileStore] = []
        self._n_backups = 0

    def open_ledger(self) -> LedgerBase:
        if not (self._folder / NAME).is_file():
            Ledger.create(self._folder, self._agent).close()
        ledger = FileLedger.open(self._folder, self._agent)
        ledger.writes = self.writes
        self._open.append(ledger)
        return ledger

    def open_store(self) -> Store:
        store = FileStore(self._folder, self._agent)
        self._open.append(store)
        return FaultyStore(store, self.writes)

    def entries(self) -> list[Entry]:
        if not (self._folder / NAME).is_file():
            return []
        return [row.entry() for row in read_statement(self._folder).rows]

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def backup(self) -> Any:
        self._n_backups += 1
        copied = self._folder.with_name(f"{self._folder.name}.backup{self._n_backups}")
        shutil.copytree(self._folder, copied)
        return copied

    def restore(self, backup: Any) -> None:
        shutil.rmtree(self._folder)
        shutil.copytree(backup, self._folder)


class FileLedger(Ledger):
    """The real ledger, whose writes the schedule can make fail."""

    writes: Writes

    def _store_grant(self, granted: Account) -> None:
        self._do(lambda: super(FileLedger, self)._store_grant(granted))

    def _store_entry(self, row: LedgerRow, after: Account) -> None:
        def change() -> None:
            super(FileLedger, self)._store_entry(row, after)
            if row.payload is not None:
                self.writes.released.append((row.number, row.payload))

        self._do(change)

    def _do(self, change: Callable[[], None]) -> None:
        try:
            self.writes.do(change, LedgerError)
        except LedgerError:
            self.close()  # as the real one does after an error of the disk
            raise
