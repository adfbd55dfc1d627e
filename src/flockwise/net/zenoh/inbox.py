"""From the threads of a transport into the event loop: in batches, in order, and within bounds.

A wake-up of the loop costs more than a message does, so one wakes it for all that have come. Nobody can fill
the memory: a sender that is ahead of the loop by more than its share loses what it sends on top.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

# So many at a stretch; then whatever else waits in the loop has its turn.
AT_A_STRETCH: Final = 256

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """A queue that any thread may fill and the loop empties.

    deliver: called in the loop, once for each item. It must not raise.
    share: how many items of one sender may wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Item], None], *, share: int
    ) -> None:
        self._loop = loop
        self._deliver = deliver
        self._share = share
        self._lock = threading.Lock()
        self._items: deque[tuple[str, Item]] = deque()
        self._waiting: Counter[str] = Counter()
        self._is_awake = False
        self._is_closed = False

    def put(self, sender: str, item: Item) -> bool:
        """Whether there was room for it."""
        with self._lock:
            if self._is_closed:
                return True
            if self._waiting[sender] >= self._share:
                return False
            self._waiting[sender] += 1
            self._items.append((sender, item))
            if self._is_awake:
                return True
            self._is_awake = True
        self._loop.call_soon_threadsafe(self._empty)
        return True

    def close(self) -> None:
        """What still waits is lost, and whatever comes later."""
        with self._lock:
            self._is_closed = True
            self._items.clear()
            self._waiting.clear()

    def __len__(self) -> int:
        return len(self._items)

    def _empty(self) -> None:
        for item in self._taken():
            if not self._is_closed:
                self._deliver(item)
        with self._lock:
            self._is_awake = bool(self._items)
        if self._is_awake:
            self._loop.call_soon(self._empty)

    def _taken(self) -> list[Item]:
        with self._lock:
            taken = [self._items.popleft() for _ in range(min(AT_A_STRETCH, len(self._items)))]
            for sender, _ in taken:
                self._waiting[sender] -= 1
                if not self._waiting[sender]:
                    del self._waiting[sender]
        return [item for _, item in taken]
