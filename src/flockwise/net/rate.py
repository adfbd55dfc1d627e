"""How much a neighbor may send: a bucket that fills with time, and that every message takes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from flockwise.errors import NetworkError

SECOND: Final = 10**9  # nanoseconds


@dataclass(frozen=True)
class RateLimit:
    """Messages per second in the long run, and how many may come at once."""

    per_second: float = 100.0
    burst: int = 200

    def __post_init__(self) -> None:
        if not (0 < self.per_second < math.inf and self.burst >= 1):
            raise NetworkError(
                f"a rate limit needs a finite per_second > 0 and a burst of at least 1, got "
                f"per_second={self.per_second!r}, burst={self.burst!r}"
            )


# A neighbor says one thing a round, and rounds follow each other as fast as a small network carries them.
CONVERSING_RATE: Final = RateLimit(per_second=1000.0, burst=1000)


class Bucket:
    """One neighbor's share. Times are nanoseconds of any clock; one that goes back fills nothing."""

    __slots__ = ("_last", "_limit", "_tokens")

    def __init__(self, limit: RateLimit, now: int) -> None:
        self._limit = limit
        self._tokens = float(limit.burst)
        self._last = now

    def take(self, now: int) -> bool:
        """Whether one more message may pass now."""
        limit, tokens = self._limit, self._tokens
        if now > self._last:
            tokens += (now - self._last) / SECOND * limit.per_second
            tokens = min(tokens, float(limit.burst))
            self._last = now
        has_room = tokens >= 1
        self._tokens = tokens - has_room
        return has_room
