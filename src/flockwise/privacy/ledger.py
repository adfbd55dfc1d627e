"""What an agent may spend, has spent and has released: kept before anything leaves.

One transaction stores the charge (the consumed event), the number and the bytes of the release, which
hold the new released model. Only then may the bytes be sent. After a crash they are there to be sent
again, the same ones, at no cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from flockwise.errors import LedgerError
from flockwise.privacy.entries import Account, Entry, Row
from flockwise.privacy.ledger_file import LedgerFile


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
        row = Row.of(entry, self._account.seal)
        after = self._account.after(row)
        self._store_entry(row, after)
        self._account = after
        self._entries.append(entry)

    @abstractmethod
    def _store_grant(self, granted: Account) -> None: ...

    @abstractmethod
    def _store_entry(self, row: Row, after: Account) -> None: ...


class MemoryLedger(LedgerBase):
    """For simulations: the same rules, gone with the process. A real agent needs a `Ledger`."""

    is_durable = False

    def __init__(self, agent: str) -> None:
        super().__init__(Account.opened(agent, None), [])

    def _store_grant(self, granted: Account) -> None:
        """The object itself is the memory."""

    def _store_entry(self, row: Row, after: Account) -> None:
        """The object itself is the memory."""


class Ledger(LedgerBase):
    """A real agent's ledger, in a folder of its own: `create` once, then `open` at every start.

    The two are kept apart because a ledger that is gone is no new budget: what was released stays
    released. One process at a time holds it. After an error of the disk it is closed, and what holds is
    what the next `open` finds.
    """

    is_durable = True

    def __init__(self, file: LedgerFile, account: Account, entries: list[Entry]) -> None:
        super().__init__(account, entries)
        self._file = file

    @classmethod
    def create(cls, folder: str | Path, agent: str) -> Self:
        """A new ledger, with nothing granted and nothing spent."""
        account = Account.opened(agent, None)
        return cls(LedgerFile.create(Path(folder), account), account, [])

    @classmethod
    def open(cls, folder: str | Path, agent: str) -> Self:
        """The ledger that this agent has in this folder, checked from end to end."""
        file = LedgerFile.open(Path(folder))
        try:
            statement = file.read()
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
            return cls(file, statement.account, [row.entry() for row in statement.rows])
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _store_grant(self, granted: Account) -> None:
        self._file.grant(granted)

    def _store_entry(self, row: Row, after: Account) -> None:
        self._file.append(row, self._account, after)
