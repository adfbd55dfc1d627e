"""An agent's state besides its ledger: its last message, those of its neighbors, and samples that came later.

Without privacy there is no ledger, and number and bytes of a message are in the store before the message
leaves. With privacy they are in the ledger, and the store holds only what can be had again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import numpy as np

from flockwise.data.samples import Samples
from flockwise.database import Database, Run, only_reading, take_lock
from flockwise.errors import NetworkError
from flockwise.net.wire import Sent

NAME: Final = "state.sqlite"
LOCK_NAME: Final = "state.lock"
VERSION: Final = 1
NUMBERS: Final = np.dtype("<f8")
TABLES: Final = (
    "CREATE TABLE owner (agent TEXT NOT NULL, newer_release INTEGER, roster INTEGER NOT NULL)",
    "CREATE TABLE sent (only INTEGER PRIMARY KEY CHECK (only = 0), number INTEGER, data BLOB NOT NULL)",
    "CREATE TABLE received (sender TEXT PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE batch (number INTEGER PRIMARY KEY, features BLOB NOT NULL, targets BLOB NOT NULL)",
)


@dataclass
class State:
    """All that a store holds.

    newer_release: number of a release that a neighbor holds and this agent's ledger lacks. roster: version of
    the newest roster that was in effect. batches: samples that were added while the agent ran, as they came.
    """

    sent: Sent | None = None
    received: dict[str, bytes] = field(default_factory=dict)
    newer_release: int | None = None
    roster: int = 0
    batches: list[Samples] = field(default_factory=list)


class Store(Protocol):
    """Every method has its effect when it returns; one that raises may have it or not.

    Effects outlast the process. Those of `mark_newer_release`, `mark_roster` and `add_batch` outlast a power
    cut too. Messages that were sent or received need not. Without privacy a neighbor shows an agent what it
    had sent; with privacy that is in the ledger, which outlasts everything.
    """

    def load(self) -> State: ...

    def save_sent(self, sent: Sent) -> None: ...

    def save_received(self, received: Mapping[str, bytes], forgotten: Iterable[str] = ()) -> None: ...

    def mark_newer_release(self, number: int) -> None: ...

    def mark_roster(self, version: int) -> None: ...

    def add_batch(self, batch: Samples) -> None: ...

    def close(self) -> None: ...


class FileStore:
    """A SQLite file in the agent's folder, made when there is none, and held by one process at a time."""

    def __init__(self, folder: str | Path, agent: str) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            lock = take_lock(self._folder / LOCK_NAME)
            if lock is None:
                raise NetworkError(
                    f"{folder}: the agent in this folder is running already; stop it first, or give each "
                    "agent a folder of its own"
                )
            opened.callback(lock.close)
            self._file = Database(self._folder / NAME, TABLES, VERSION)
            opened.callback(self._file.close)
            self._check_owner(agent)
            self._opened = opened.pop_all()

    def load(self) -> State:
        with self._file.reading() as run:
            return _state(run)

    # Neighbors have these two and send them again: it is enough if they outlast the process. To wait for
    # the disk would cost a gateway more than all else that it does.

    def save_sent(self, sent: Sent) -> None:
        with self._file.writing(outlasts_power_cut=False) as run:
            run("INSERT OR REPLACE INTO sent VALUES (0, ?, ?)", (sent.number, sent.data))

    def save_received(self, received: Mapping[str, bytes], forgotten: Iterable[str] = ()) -> None:
        with self._file.writing(outlasts_power_cut=False) as run:
            for sender in forgotten:
                run("DELETE FROM received WHERE sender = ?", (sender,))
            for row in received.items():
                run("INSERT OR REPLACE INTO received VALUES (?, ?)", row)

    def mark_newer_release(self, number: int) -> None:
        with self._file.writing() as run:
            run("UPDATE owner SET newer_release = ?", (number,))

    def mark_roster(self, version: int) -> None:
        with self._file.writing() as run:
            run("UPDATE owner SET roster = ?", (version,))

    def add_batch(self, batch: Samples) -> None:
        row = (batch.features.astype(NUMBERS).tobytes(), batch.targets.astype(NUMBERS).tobytes())
        with self._file.writing() as run:
            run("INSERT INTO batch (features, targets) VALUES (?, ?)", row)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_owner(self, agent: str) -> None:
        """A new file belongs to the agent that opens it; that of another agent is refused."""
        with self._file.writing(outlasts_power_cut=False) as run:
            (owner,) = run("SELECT agent FROM owner").fetchone() or (None,)
            if owner is None:
                run("INSERT INTO owner VALUES (?, NULL, 0)", (agent,))
            elif owner != agent:
                raise NetworkError(
                    f"{self._folder}: the state in this folder is that of agent {owner!r}, not of {agent!r}; "
                    "give each agent a folder of its own"
                )


def read_state(folder: Path) -> State:
    """What is in the store of this folder, also while an agent uses it."""
    with only_reading(folder / NAME, VERSION) as run:
        return _state(run)


def _state(run: Run) -> State:
    sent = run("SELECT number, data FROM sent").fetchone()
    ((newer_release, roster),) = run("SELECT newer_release, roster FROM owner")
    return State(
        None if sent is None else Sent(*sent),
        dict(run("SELECT sender, data FROM received")),
        newer_release,
        roster,
        [_batch(*row) for row in run("SELECT features, targets FROM batch ORDER BY number")],
    )


def _batch(features: bytes, targets: bytes) -> Samples:
    values = np.frombuffer(targets, NUMBERS).astype(np.float64)
    rows = np.frombuffer(features, NUMBERS).astype(np.float64)
    return Samples(rows.reshape(len(values), -1), values)
