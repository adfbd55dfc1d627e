"""Exact parallel asynchrony: fire every agent that no earlier tick can touch any more.

An update reads and writes a neighborhood only. So an agent whose next tick comes before those of
all agents that could touch the same can fire at once, whatever the rest of the network does, and
the run equals the one-at-a-time order. A sweep finds these agents, then fires them: two phases,
so that no clock is read while another thread moves it.

A rule says who may fire and what firing does. Rules are NamedTuples; numba picks the code of
`blocker_of` and `fire` by their type (murmura.engine.descent_rule, murmura.engine.gossip_rule).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from murmura.engine.barrier import BARRIER_SIZE, atomic_add, wait_for_all
from murmura.errors import SimulationError
from murmura.objective.kernels import ROWS_AT_ONCE

# Below this many agents a thread, meeting the others costs more than it saves.
AGENTS_WORTH_A_THREAD = 1000
# Counters and scratch vectors of different threads stay this many numbers apart.
PADDING = 64
# Ready agents that a thread takes at once: few, so that none waits long for a thread that was held up.
AGENTS_AT_ONCE = 16
NOBODY = -1


class Network(NamedTuple):
    """Who hears whom: agent i's neighbors are neighbors[offsets[i]:offsets[i + 1]]."""

    offsets: NDArray[np.int64]
    neighbors: NDArray[np.int32]


class Clocks(NamedTuple):
    """Each agent's next tick and the updates it has done; after `limit` of them it has no clock any more."""

    seed: np.uint64
    limit: int
    next_ticks: NDArray[np.int64]
    updates: NDArray[np.int64]


class Workspace(NamedTuple):
    """Lists and scratch vectors, one part per thread."""

    active: NDArray[np.int32]
    active_counts: NDArray[np.int64]
    ready: NDArray[np.int32]
    ready_counts: NDArray[np.int64]
    taken: NDArray[np.int64]
    blockers: NDArray[np.int32]
    vectors: NDArray[Any]
    barrier: NDArray[np.int64]


def blocker_of(rule, agent, clocks):
    """An agent that has to tick before this one may fire, or NOBODY if no earlier tick matters to it."""
    raise NotImplementedError("compiled code only")


def fire(rule, agent, following, clocks, vectors):
    """Do the agent's update and draw its next tick.

    `following` is who comes next on this thread; `vectors` are three scratch rows, each long enough
    for a model and for ROWS_AT_ONCE numbers.
    """
    raise NotImplementedError("compiled code only")


@njit(inline="always")
def ticks_before(other, agent, next_ticks):
    """Whose tick comes first; ties go to the lower index."""
    return next_ticks[other] < next_ticks[agent] or (next_ticks[other] == next_ticks[agent] and other < agent)


# Inlined, as are the overloads of `blocker_of`: a call would copy every array descriptor of the rule.
@njit(inline="always")
def earlier_neighbor(center, agent, network, next_ticks):
    """A neighbor of `center` that ticks before `agent` does, or NOBODY."""
    for e in range(network.offsets[center], network.offsets[center + 1]):
        neighbor = np.int64(network.neighbors[e])
        if ticks_before(neighbor, agent, next_ticks):
            return neighbor
    return NOBODY


@njit
def find_ready(part, until, rule, clocks, work):
    """Phase 1, one thread's part of the agents: keep those with a tick left, list those that may fire."""
    parts = work.active_counts.shape[0]
    first = clocks.next_ticks.shape[0] * part // parts
    n_active = n_ready = 0
    for k in range(work.active_counts[part, 0]):
        # One integer type for all agents: numba compiles every function once per type.
        agent = np.int64(work.active[first + k])
        if clocks.next_ticks[agent] > until:
            continue
        work.active[first + n_active] = agent
        n_active += 1
        # Most agents still wait for the one that they waited for before: look at that one first.
        blocker = np.int64(work.blockers[agent])
        if blocker != NOBODY and ticks_before(blocker, agent, clocks.next_ticks):
            continue
        blocker = blocker_of(rule, agent, clocks)
        work.blockers[agent] = blocker
        if blocker == NOBODY:
            work.ready[first + n_ready] = agent
            n_ready += 1
    work.active_counts[part, 0] = n_active
    work.ready_counts[part, 0] = n_ready
    work.taken[part * PADDING] = 0


@njit
def fire_shared(part, rule, clocks, work):
    """Phase 2: fire the own list of ready agents, then help with the lists of the other threads."""
    n_agents, parts = clocks.next_ticks.shape[0], work.ready_counts.shape[0]
    for turn in range(parts):
        owner = (part + turn) % parts
        count = work.ready_counts[owner, 0]
        ready = work.ready[n_agents * owner // parts :]
        while True:
            first = atomic_add(work.taken, owner * PADDING, AGENTS_AT_ONCE)  # pyright: ignore[reportCallIssue]
            if first >= count:
                break
            for k in range(first, min(first + AGENTS_AT_ONCE, count)):
                following = np.int64(ready[min(k + 1, count - 1)])
                fire(rule, np.int64(ready[k]), following, clocks, work.vectors[part])


# No reference counts, here and in all that is called from here: each array view would change a counter
# that all threads share, some eighty times an update. The caller keeps the arrays alive.
@njit(nogil=True, _nrt=False)  # pyright: ignore[reportCallIssue]
def sweep_part(part, max_sweeps, until, rule, clocks, work):
    """What one thread does; all threads see the same total, so all leave after the same sweep."""
    parts = work.ready_counts.shape[0]
    for _ in range(max_sweeps):
        find_ready(part, until, rule, clocks, work)
        wait_for_all(work.barrier, parts)
        total = 0
        for other in range(parts):
            total += work.ready_counts[other, 0]
        if total == 0:
            break
        fire_shared(part, rule, clocks, work)
        wait_for_all(work.barrier, parts)


class Team:
    """Threads that sweep over all agents together; the result does not depend on how many they are."""

    def __init__(self, threads: int | None, n_agents: int, size: int, dtype: DTypeLike) -> None:
        self.threads = choose_threads(threads, n_agents)
        self._pool = ThreadPoolExecutor(max(self.threads - 1, 1))
        self._work = Workspace(
            active=np.empty(n_agents, np.int32),
            active_counts=np.zeros((self.threads, PADDING), np.int64),
            ready=np.empty(n_agents, np.int32),
            ready_counts=np.zeros((self.threads, PADDING), np.int64),
            taken=np.zeros(self.threads * PADDING, np.int64),
            blockers=np.full(n_agents, NOBODY, np.int32),
            vectors=np.zeros((self.threads, 3, max(size, ROWS_AT_ONCE) + PADDING), dtype),
            barrier=np.zeros(BARRIER_SIZE, np.int64),
        )

    def sweep(self, max_sweeps: int, until: int, rule: Any, clocks: Clocks) -> None:
        """Fire all ticks up to time `until`, or stop after `max_sweeps`."""
        n_agents, work = clocks.next_ticks.size, self._work
        work.active[:] = np.arange(n_agents, dtype=np.int32)
        work.active_counts[:, 0] = np.diff(n_agents * np.arange(self.threads + 1) // self.threads)
        arguments = max_sweeps, until, rule, clocks, work
        others = [self._pool.submit(sweep_part, part, *arguments) for part in range(1, self.threads)]
        sweep_part(0, *arguments)
        for other in others:
            other.result()


def choose_threads(threads: int | None, n_agents: int) -> int:
    """The wanted number of threads, or as many as pay."""
    if threads is None:
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(available, n_agents // AGENTS_WORTH_A_THREAD))
    if threads < 1:
        raise SimulationError(f"threads must be at least 1, got threads={threads}")
    return min(threads, n_agents)
