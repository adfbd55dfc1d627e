"""When a run records and stops, found from the clocks alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flockwise.code_cache import compiled
from flockwise.engine.conditions import ConditionTable, scheduled_tick
from flockwise.randomness.clocks import NEVER, TIME_UNIT


@compiled()
def count_ticks(table, seed, limit, ids, next_ticks, updates, until, out):
    """How many ticks come up to `until`; lists their times, agent after agent, as far as `out` has room."""
    count = 0
    for agent in range(next_ticks.shape[0]):
        time, done = next_ticks[agent], updates[agent]
        while time <= until and time < NEVER:
            if count < out.shape[0]:
                out[count] = time
            count += 1
            done += 1
            time = scheduled_tick(table, seed, ids[agent], done, time) if done < limit else NEVER
    return count


def time_of_tick(
    n_ticks: int,
    table: ConditionTable,
    seed: int,
    limit: int,
    ids: NDArray[np.int64],
    next_ticks: NDArray[np.int64],
    updates: NDArray[np.int64],
) -> int:
    """The time of the n_ticks-th tick of all agents together, counted from now; NEVER if there are fewer."""
    clocks = table, np.uint64(seed), limit, ids, next_ticks, updates
    running = next_ticks < NEVER
    clocks_end = limit < NEVER or (table.leaves[ids[running]] < NEVER).all()
    times = np.empty(0, np.int64)
    if clocks_end and count_ticks(*clocks, NEVER - 1, times) < n_ticks:
        return NEVER
    # Walk in steps of the expected length until enough ticks lie behind.
    step = max(n_ticks * TIME_UNIT // int(running.sum()), TIME_UNIT // 64)
    until = int(next_ticks.min())
    while (found := count_ticks(*clocks, until, times)) < n_ticks:
        until += step
    times = np.empty(found, np.int64)
    count_ticks(*clocks, until, times)
    return int(np.partition(times, n_ticks - 1)[n_ticks - 1])
