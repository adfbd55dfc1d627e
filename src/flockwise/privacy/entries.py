"""What a ledger says, and the chain of seals that shows whether it still says it.

Every entry carries a SHA-256 hash over itself and the seal before it, and the account carries the
number of entries and the last seal. So an edited, missing, added or reordered entry is found, at the
end as well. This finds damage and accidents. It does not stop the owner of the file, who could write
a whole new chain or put back an old copy: keep ledgers out of restores from backups, because an agent
with an old ledger would spend the same budget twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from flockwise.privacy.mechanisms import Mechanism, event_from_json, event_to_json

CHAIN_BEGINS: Final = b"flockwise ledger 1"


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
class Row:
    """An entry as it is stored."""

    number: int
    recorded: str
    event: str
    payload: bytes | None
    seal: bytes

    @classmethod
    def of(cls, entry: Entry, previous_seal: bytes) -> Row:
        event = _event_text(entry.event)
        seal = _seal(previous_seal, entry.number, entry.recorded, event, entry.payload)
        return cls(entry.number, entry.recorded, event, entry.payload, seal)

    def entry(self) -> Entry:
        return Entry(self.number, _event(self.event), self.payload, self.recorded)


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

    def after(self, row: Row) -> Account:
        return dataclasses.replace(self, n_entries=row.number, seal=row.seal)


def problems(account: Account, rows: Iterable[Row]) -> Iterator[str]:
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


def _event_text(event: Mechanism) -> str:
    return json.dumps(event_to_json(event))


def _event(text: str) -> Mechanism:
    return event_from_json(json.loads(text))
