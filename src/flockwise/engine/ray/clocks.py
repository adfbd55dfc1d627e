"""The clocks of a shard: the first ticks, how many are to come, and ghosts that go on to their next one."""

from __future__ import annotations

import numpy as np
from numba import njit

from flockwise.code_cache import compiled
from flockwise.engine.cpu.kernels import copy_into
from flockwise.randomness.clocks import NEVER, tick_gap


@compiled()
def first_gaps(seed, ids, next_ticks):
    """When each agent wakes for the first time."""
    for position in range(ids.shape[0]):
        next_ticks[position] = tick_gap(seed, ids[position], 0)


@compiled()
def count_gaps(clocks, n_own, until):
    """How many ticks of the own agents come up to `until`."""
    count = 0
    for agent in range(n_own):
        time, done = clocks.next_ticks[agent], clocks.updates[agent]
        while time <= until and time < NEVER:
            count += 1
            done += 1
            time = time + tick_gap(clocks.seed, clocks.ids[agent], done) if done < clocks.limit else NEVER
    return count


@njit(inline="always")
def comes_before(time, number, other_time, other_number):
    """Whose tick comes first; ties go to the lower number, as in the sweeps."""
    return time < other_time or (time == other_time and number < other_number)


@compiled()
def move_ghosts(clocks, offsets, agents, n_own, earlier, models, ghosts, next_ticks, new_models):
    """Ghosts go on to their new ticks and models; own agents behind whom they moved count them no longer."""
    for k in range(ghosts.shape[0]):
        ghost = ghosts[k]
        number, old, new = clocks.ids[ghost], clocks.next_ticks[ghost], next_ticks[k]
        clocks.next_ticks[ghost] = new
        copy_into(models[ghost], new_models[k])
        for e in range(offsets[ghost - n_own], offsets[ghost - n_own + 1]):
            agent = np.int64(agents[e])
            time, own = clocks.next_ticks[agent], clocks.ids[agent]
            if comes_before(old, number, time, own) and not comes_before(new, number, time, own):
                earlier[agent] -= 1
