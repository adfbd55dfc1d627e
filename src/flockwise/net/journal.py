"""What an agent heard in its conversation, round by round, and what came of it.

A conversation is a function of what was heard in it. So that is all that has to outlast the process: with it
an agent that starts again comes to the same point and says the same bytes. A round is in the journal before
the agent's next relay leaves. At the end what came of it takes the place of the rounds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from flockwise.errors import MissingExtra, NetworkError
from flockwise.net.store import NUMBERS, explained
from flockwise.protocol.conversation import Direction, Heard

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

NAME: Final = "conversation.sqlite"
VERSION: Final = 1
TABLES: Final = (
    "CREATE TABLE beginning (only INTEGER PRIMARY KEY CHECK (only = 0), ties BLOB NOT NULL)",
    "CREATE TABLE round (number INTEGER PRIMARY KEY, heard BLOB NOT NULL)",
    "CREATE TABLE ended (only INTEGER PRIMARY KEY CHECK (only = 0), result BLOB NOT NULL)",
)


@dataclass(frozen=True)
class Ended:
    """What came of a conversation: a direction, or nothing, and then the agent learns alone.

    relays: the last ones, which neighbors may still miss. rounds: how many there were.
    """

    direction: Direction | None
    relays: list[bytes]
    rounds: int


@dataclass
class Record:
    """What a journal holds besides the rounds.

    ties: those that the conversation began with; None before it has.
    """

    ties: dict[int, float] | None = None
    ended: Ended | None = None


class Journal(Protocol):
    """Every method has its effect when it returns, and the effect outlasts the process."""

    def load(self) -> Record: ...

    def rounds(self) -> Iterator[Heard]:
        """One after the other: together they may be larger than the memory."""
        ...

    def begin(self, ties: Mapping[int, float]) -> None: ...

    def add(self, heard: Heard) -> None:
        """The next round."""
        ...

    def end(self, ended: Ended) -> None:
        """Keep what came of it, and forget the rounds."""
        ...


class _Result(msgspec.Struct, array_like=True):
    vector: bytes | None
    quality: float
    relays: list[bytes]
    rounds: int


class FileJournal:
    """A SQLite file in the folder of the agent's state, which its store keeps locked.

    Rounds outlast the process and not a power cut: to wait for the disk in every round would cost more than
    all else. The end outlasts both.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        with explained(self._path):
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def load(self) -> Record:
        with explained(self._path):
            run = self._connection.execute
            begun = run("SELECT ties FROM beginning").fetchone()
            ended = run("SELECT result FROM ended").fetchone()
            return Record(
                None if begun is None else dict(_TIES.decode(begun[0])),
                None if ended is None else _ended(ended[0]),
            )

    def rounds(self) -> Iterator[Heard]:
        with explained(self._path):
            for (data,) in self._connection.execute("SELECT heard FROM round ORDER BY number"):
                yield _heard(data)

    def begin(self, ties: Mapping[int, float]) -> None:
        with explained(self._path):
            data = msgspec.msgpack.encode(list(ties.items()))
            self._connection.execute("INSERT INTO beginning VALUES (0, ?)", (data,))

    def add(self, heard: Heard) -> None:
        rows = [(sender, vector.astype(NUMBERS).tobytes()) for sender, vector in heard.items()]
        with explained(self._path):
            data = msgspec.msgpack.encode(rows)
            self._connection.execute("INSERT INTO round (heard) VALUES (?)", (data,))

    def end(self, ended: Ended) -> None:
        vector = None if ended.direction is None else ended.direction.vector.astype(NUMBERS).tobytes()
        quality = 0.0 if ended.direction is None else ended.direction.quality
        data = msgspec.msgpack.encode(_Result(vector, quality, ended.relays, ended.rounds))
        with explained(self._path):
            run = self._connection.execute
            run("PRAGMA synchronous = FULL")
            run("BEGIN IMMEDIATE")
            try:
                run("INSERT OR REPLACE INTO ended VALUES (0, ?)", (data,))
                run("DELETE FROM round")
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise

    def close(self) -> None:
        self._connection.close()

    def _prepare(self) -> None:
        run = self._connection.execute
        (version,) = run("PRAGMA user_version").fetchone()
        if version == 0:
            run("PRAGMA auto_vacuum = FULL")  # the rounds take far more room than what comes of them
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        if version == 0:
            run("BEGIN IMMEDIATE")
            for table in TABLES:
                run(table)
            run(f"PRAGMA user_version = {VERSION}")
            run("COMMIT")
        elif version != VERSION:
            raise NetworkError(
                f"{self._path}: has version {version}, and a conversation is kept in version {VERSION}; run "
                "the version of Flockwise that wrote it"
            )


_TIES: Final = msgspec.msgpack.Decoder(list[tuple[int, float]])
_ROWS: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
_RESULT: Final = msgspec.msgpack.Decoder(_Result)


def _heard(data: bytes) -> Heard:
    return {
        sender: np.frombuffer(numbers, NUMBERS).astype(np.float64) for sender, numbers in _ROWS.decode(data)
    }


def _ended(data: bytes) -> Ended:
    result = _RESULT.decode(data)
    direction = None
    if result.vector is not None:
        direction = Direction(np.frombuffer(result.vector, NUMBERS).astype(np.float64), result.quality)
    return Ended(direction, result.relays, result.rounds)
