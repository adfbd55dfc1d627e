"""How far each shard is, what crosses the cut, and how evenly the work is shared out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flockwise.engine.ray.shard import ShardStatus
from flockwise.randomness.clocks import NEVER, TIME_UNIT

# How many shards a line of progress names.
SHOWN = 8


class Progress(NamedTuple):
    """After a super-step, for each shard: ticks done, and up to which time."""

    ticks: tuple[int, ...]
    times: tuple[float, ...]

    @classmethod
    def of(cls, statuses: Sequence[ShardStatus]) -> Progress:
        times = (float("inf") if one.next_tick == NEVER else one.next_tick / TIME_UNIT for one in statuses)
        return cls(tuple(status.ticks for status in statuses), tuple(times))

    @property
    def words(self) -> str:
        """The ticks of each shard."""
        shares = ", ".join(f"{ticks:,}" for ticks in self.ticks[:SHOWN])
        more = f" and {len(self.ticks) - SHOWN} more" if len(self.ticks) > SHOWN else ""
        return f"shards at {shares}{more} ticks"


def traffic_in_words(told: Mapping[str, Any]) -> str:
    """What a run on shards says at its end; told: as in `CutTraffic.summary`."""
    return (
        f"{told['count']} shards: {told['cut_share']:.2%} of the edges cut, "
        f"{told['boundary_vectors']:,} models ({told['boundary_bytes'] / 1e6:,.1f} MB) sent across in "
        f"{told['super_steps']:,} super-steps, balance {told['balance']:.2f}, {told['losses']} lost"
    )


class CutTraffic:
    """Counted over a run, ticks that were done again included.

    critical_seconds: in each super-step those of the slowest shard, all others waiting for it.
    """

    def __init__(self, n_shards: int) -> None:
        self.super_steps = self.vectors = self.bytes = self.losses = 0
        self.seconds = np.zeros(n_shards)
        self.ticks = np.zeros(n_shards, np.int64)
        self.critical_seconds, self.critical_ticks = 0.0, 0
        self.cut_share = 0.0

    def add(self, statuses: Sequence[ShardStatus]) -> None:
        self.super_steps += 1
        self.vectors += sum(status.vectors for status in statuses)
        self.bytes += sum(status.bytes for status in statuses)
        seconds = np.array([status.seconds for status in statuses])
        fired = np.array([status.fired for status in statuses])
        self.seconds += seconds
        self.ticks += fired
        self.critical_seconds += float(seconds.max())
        self.critical_ticks += int(fired.max())

    @property
    def balance(self) -> float:
        """Ticks per shard over those of the slowest in each super-step: 1 if none ever waits."""
        return float(self.ticks.mean()) / self.critical_ticks if self.critical_ticks else 1.0

    def summary(self) -> dict[str, Any]:
        """Plain values, for a result."""
        return {
            "count": len(self.ticks),
            "cut_share": self.cut_share,
            "super_steps": self.super_steps,
            "boundary_vectors": self.vectors,
            "boundary_bytes": self.bytes,
            "balance": self.balance,
            "busy_seconds": [round(float(seconds), 3) for seconds in self.seconds],
            "critical_seconds": round(self.critical_seconds, 3),
            "losses": self.losses,
        }
