"""Time as a node knows it: integer nanoseconds from some beginning, and a Poisson clock on them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from flockwise.errors import NetworkError

if TYPE_CHECKING:
    from flockwise.agent.agent import Clock

SECOND: Final = 1_000_000_000


class Time(Protocol):
    """Tells the time in nanoseconds; it never goes back."""

    def now(self) -> int: ...


class RealTime:
    """The machine's monotonic clock: no correction of the date can hasten or delay an agent."""

    def now(self) -> int:
        return time.monotonic_ns()


class PoissonClock:
    """Wakes an agent `rate` times a second on average, independently of everything else.

    limit: after so many updates it never wakes the agent again.
    randomness: the operating system's by default. When agents wake is no secret, but nobody has to be
    able to foretell it.
    """

    def __init__(
        self, rate: float, limit: int | None = None, *, randomness: random.Random | None = None
    ) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise NetworkError(f"tick_rate must be positive and finite, got tick_rate={rate!r}")
        self._rate = rate
        self._limit = limit
        self._randomness = random.SystemRandom() if randomness is None else randomness

    def next_tick(self, updates: int, now: int) -> int | None:
        if self._limit is not None and updates >= self._limit:
            return None
        return now + max(1, round(self._randomness.expovariate(self._rate) * SECOND))


class RenewedClock:
    """A clock that stops after so many updates, and allows as many again for every renewal.

    renewals: how many there have been.
    """

    def __init__(self, clock: Clock, updates: int | None, renewals: Callable[[], int]) -> None:
        self._clock = clock
        self._updates = updates
        self._renewals = renewals

    def next_tick(self, updates: int, now: int) -> int | None:
        if self._updates is None or updates < self._updates:
            return self._clock.next_tick(updates, now)
        # Asked for only now: the answer is on disk.
        is_over = updates >= self._updates * (1 + self._renewals())
        return None if is_over else self._clock.next_tick(updates, now)
