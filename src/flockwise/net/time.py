"""Time as a node knows it: integer nanoseconds from some beginning, and a Poisson clock on them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final, Protocol

from flockwise.errors import NetworkError

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

    limit: how many updates it wakes the agent for; asked again every time, because it may grow.
    randomness: the operating system's by default. When agents wake is not a secret, but nobody has to be
    able to foretell it.
    """

    def __init__(
        self,
        rate: float,
        limit: Callable[[], float] = lambda: math.inf,
        *,
        randomness: random.Random | None = None,
    ) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise NetworkError(f"tick_rate must be positive and finite, got tick_rate={rate!r}")
        self._rate = rate
        self._limit = limit
        self._randomness = random.SystemRandom() if randomness is None else randomness

    def next_tick(self, updates: int, now: int) -> int | None:
        if updates >= self._limit():
            return None
        return now + max(1, round(self._randomness.expovariate(self._rate) * SECOND))
