"""All that an agent heard in its conversation, round by round, and the result.

A conversation is a function of what was heard in it. So nothing else has to outlast the process: an agent
that starts again comes to the same point and says the same bytes. A round is in the journal before the
agent's next relay leaves. At the end the result takes the place of the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec
import numpy as np

from flockwise.database import Database, Run, only_reading
from flockwise.net.store import NUMBERS
from flockwise.protocol.conversation import Direction, Heard, Vector

NAME: Final = "conversation.sqlite"
VERSION: Final = 1
TABLES: Final = (
    "CREATE TABLE beginning (only INTEGER PRIMARY KEY CHECK (only = 0), ties BLOB NOT NULL)",
    "CREATE TABLE round (number INTEGER PRIMARY KEY, heard BLOB NOT NULL)",
    "CREATE TABLE ended (only INTEGER PRIMARY KEY CHECK (only = 0), result BLOB NOT NULL)",
)


@dataclass(frozen=True)
class Ended:
    """The result of a conversation: a direction, or nothing, and then the agent learns alone.

    relays: the last ones, which neighbors may still miss. rounds: how many there were.
    """

    direction: Direction | None
    relays: list[bytes]
    rounds: int


@dataclass
class JournalRecord:
    """A journal without its rounds.

    edges: weights by neighbor, as the conversation began with them; None before it has.
    """

    edges: dict[int, float] | None = None
    ended: Ended | None = None


class Journal(Protocol):
    """Every method has its effect when it returns, and the effect outlasts the process."""

    def load(self) -> JournalRecord: ...

    def rounds(self) -> Iterator[Heard]:
        """One after the other: together they may be larger than the memory."""
        ...

    def begin(self, edges: Mapping[int, float]) -> None: ...

    def add(self, heard: Heard) -> None:
        """The next round."""
        ...

    def end(self, ended: Ended) -> None:
        """Keep the result, and forget the rounds."""
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
        # The rounds take far more room than the result.
        self._file = Database(folder / NAME, TABLES, VERSION, shrinks=True)

    def load(self) -> JournalRecord:
        with self._file.reading() as run:
            begun = run("SELECT ties FROM beginning").fetchone()
            return JournalRecord(None if begun is None else dict(_EDGES.decode(begun[0])), _ended(run))

    def rounds(self) -> Iterator[Heard]:
        with self._file.reading() as run:
            for (data,) in run("SELECT heard FROM round ORDER BY number"):
                yield {sender: _vector(numbers) for sender, numbers in _ROWS.decode(data)}

    def begin(self, edges: Mapping[int, float]) -> None:
        data = msgspec.msgpack.encode(list(edges.items()))
        with self._file.writing(outlasts_power_cut=False) as run:
            run("INSERT INTO beginning VALUES (0, ?)", (data,))

    def add(self, heard: Heard) -> None:
        data = msgspec.msgpack.encode([(sender, _bytes(vector)) for sender, vector in heard.items()])
        with self._file.writing(outlasts_power_cut=False) as run:
            run("INSERT INTO round (heard) VALUES (?)", (data,))

    def end(self, ended: Ended) -> None:
        vector = None if ended.direction is None else _bytes(ended.direction.vector)
        quality = 0.0 if ended.direction is None else ended.direction.quality
        data = msgspec.msgpack.encode(_Result(vector, quality, ended.relays, ended.rounds))
        with self._file.writing() as run:
            run("INSERT OR REPLACE INTO ended VALUES (0, ?)", (data,))
            run("DELETE FROM round")

    def close(self) -> None:
        self._file.close()


_EDGES: Final = msgspec.msgpack.Decoder(list[tuple[int, float]])
_ROWS: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
_RESULT: Final = msgspec.msgpack.Decoder(_Result)


def _bytes(vector: Vector) -> bytes:
    return vector.astype(NUMBERS).tobytes()


def _vector(data: bytes) -> Vector:
    return np.frombuffer(data, NUMBERS).astype(np.float64)


def read_result(folder: Path) -> Ended | None:
    """The result in the journal of this folder, also while an agent uses it; None before there is one."""
    if not (folder / NAME).is_file():
        return None
    with only_reading(folder / NAME, VERSION) as run:
        return _ended(run)


def _ended(run: Run) -> Ended | None:
    row = run("SELECT result FROM ended").fetchone()
    if row is None:
        return None
    result = _RESULT.decode(row[0])
    direction = None if result.vector is None else Direction(_vector(result.vector), result.quality)
    return Ended(direction, result.relays, result.rounds)
