"""How much a neighbor may send: a bucket that fills with time, and that every message takes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flockwise.checks import Count, Positive, check_fields
from flockwise.errors import NetworkError
from flockwise.net.time import SECOND


@dataclass(frozen=True)
class RateLimit:
    """Messages per second in the long run, and how many may come at once."""

    per_second: Positive = 100.0
    burst: Count = 200

    def __post_init__(self) -> None:
        check_fields(self, NetworkError)


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
