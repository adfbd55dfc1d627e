"""Where shards live: in this process, or as actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from flockwise.engine.ray.piece import Piece
from flockwise.engine.ray.shard import Shard


class ShardLost(Exception):
    """A worker or its machine is gone, or what it had sent."""


class Workers(Protocol):
    """Shards by number. What they return may stay with them: a handle can be given to another shard."""

    def submit(self, shard: int, method: str, arguments: Sequence[Any]) -> Any:
        """Call a method of a shard; a handle of its result."""
        ...

    def submit_spread(self, shard: int, method: str, arguments: Sequence[Any], size: int) -> Sequence[Any]:
        """Call a method that returns a tuple of this size; a handle of each part of it."""
        ...

    def wait(self, handles: Sequence[Any]) -> list[Any]:
        """The results; raises ShardLost if one will never come."""
        ...

    def replace_lost(self) -> None:
        """Start lost shards anew; they know nothing of the run yet."""
        ...

    def close(self) -> None: ...


class InProcess:
    """All shards in this process, one after the other: for tests, and to see what a cut would cost."""

    def __init__(self, pieces: Iterable[Piece], *settings: Any) -> None:
        self.shards = [Shard(piece, *settings) for piece in pieces]

    def submit(self, shard: int, method: str, arguments: Sequence[Any]) -> Any:
        return getattr(self.shards[shard], method)(*arguments)

    def submit_spread(self, shard: int, method: str, arguments: Sequence[Any], size: int) -> Sequence[Any]:
        return self.submit(shard, method, arguments)

    def wait(self, handles: Sequence[Any]) -> list[Any]:
        return list(handles)

    def replace_lost(self) -> None:
        pass

    def close(self) -> None:
        self.shards.clear()
