"""Workers with a mistake in them, to see that the crash test would notice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

import flockwise.privacy.ledger
from flockwise.privacy.ledger import Account, Ledger, LedgerRow
from flockwise.privacy.messages import Release, encode


class Bug:
    """No bug: what a worker does where a bug might change it."""

    def payload_after_crash(self, last: Release) -> bytes:
        return last.payload

    def after_send(self) -> None:
        """Nothing is left to do: the charge was on disk before."""


class ChargeAfterSend(Bug):
    """Sends first and writes the charge afterwards."""

    def __init__(self) -> None:
        store = Ledger._store_entry
        self._charges = charges = list[Callable[[], None]]()

        def postpone(self: Ledger, row: LedgerRow, after: Account) -> None:
            before = self._account

            def charge() -> None:
                now, self._account = self._account, before
                store(self, row, after)
                self._account = now

            charges.append(charge)

        Ledger._store_entry = postpone

    def after_send(self) -> None:
        self._charges.pop()()


class RedrawAfterCrash(Bug):
    """Keeps the charge but not the bytes, and makes them anew, with new noise, when it starts again."""

    def payload_after_crash(self, last: Release) -> bytes:
        noise = np.random.default_rng().normal(size=len(last.vector))
        return encode(last.number, last.vector + noise)


class LogIsKept(Bug):
    """Leaves what it has committed in the log beside the ledger."""

    def __init__(self) -> None:
        Ledger._empty_log = lambda self: None


class NoLock(Bug):
    """Lets two processes have the ledger at once. What the second one appends is still refused."""

    def __init__(self) -> None:
        flockwise.privacy.ledger._locked = lambda folder: nullcontext()


class NoLockAtAll(NoLock):
    """Neither locks nor looks whether the ledger is still as it was left."""

    def __init__(self) -> None:
        super().__init__()

        def store_blindly(self: Ledger, row: LedgerRow, after: Account) -> None:
            with self._transaction() as run:
                run("UPDATE account SET n_entries = ?, seal = ?", (after.n_entries, after.seal))
                run(
                    "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?)",
                    (row.number, row.recorded, row.event, row.payload, row.seal),
                )

        Ledger._store_entry = store_blindly


BUGS: dict[str | None, type[Bug]] = {
    None: Bug,
    "charge after send": ChargeAfterSend,
    "redraw after crash": RedrawAfterCrash,
    "log is kept": LogIsKept,
    "no lock": NoLock,
    "no lock at all": NoLockAtAll,
}
