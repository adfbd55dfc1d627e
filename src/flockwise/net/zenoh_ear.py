"""Takes what zenoh has received, a lot at a time.

For zenoh to call Python with every message costs more than the message does: its threads would wait for the
interpreter, and the interpreter for them. So messages gather on zenoh's side, and the event loop looks for
them: all the time on a busy host, a few times a second on an idle one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

# So many may wait. Then zenoh reads no further, and what is sent too fast is held up on its way.
CAPACITY: Final = 2**10
# So many at a stretch; then whatever else waits in the loop has its turn.
AT_A_STRETCH: Final = 2**8
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.05  # seconds

Sample = TypeVar("Sample", covariant=True)


class Source(Protocol[Sample]):
    """A subscription with a queue."""

    def try_recv(self) -> Sample | None: ...


class Ear:
    """Hands over everything that comes from its sources, in the loop, until it is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sources: Iterable[Source[Sample]],
        take: Callable[[Sample], None],
    ) -> None:
        self._loop = loop
        self._drains = [lambda source=source: _drain(source, take) for source in sources]
        self._pause = SHORTEST_PAUSE
        self._next = loop.call_soon(self._look)

    def close(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        most = AT_A_STRETCH
        try:
            most = max(drain() for drain in self._drains)
        finally:  # whatever one message does, the next ones are heard
            self._next = self._loop.call_later(self._pause_after(most), self._look)

    def _pause_after(self, taken: int) -> float:
        if taken == AT_A_STRETCH:
            self._pause = 0.0
        elif taken:
            self._pause = SHORTEST_PAUSE
        else:
            self._pause = min(max(SHORTEST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        return self._pause


def _drain(source: Source[Sample], take: Callable[[Sample], None]) -> int:
    """How many there were."""
    for count in range(AT_A_STRETCH):
        sample = source.try_recv()
        if sample is None:
            return count
        take(sample)
    return AT_A_STRETCH
