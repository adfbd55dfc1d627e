"""Exact parallel asynchrony: fire every agent that no earlier tick can touch any more.

An update reads and writes a neighborhood only. So an agent whose next tick comes before those of
all agents that could touch the same can fire at once, whatever the rest of the network does, and
the run equals the one-at-a-time order. A sweep finds these agents, then fires them: two phases,
so that no clock is read while another thread moves it.

A rule says who may fire and what firing does. Rules are NamedTuples; numba picks the code of
`blocker_of`, `fires_again` and `fire` by their type (the modules descent_rule and gossip_rule).
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
    """What the threads keep: marks, lists and scratch vectors.

    Each thread has a part of the agents. In `lists` its part holds those of them that are ready, in
    one of two rows by turns; the other row still has those who fired in the sweep before.
    `first_waiting[part, j]` is an agent of the part that waits for agent j, and `next_waiting` of it
    the next one that does.
    """

    marks: NDArray[np.uint8]
    lists: NDArray[np.int32]
    counts: NDArray[np.int64]
    taken: NDArray[np.int64]
    first_waiting: NDArray[np.int32]
    next_waiting: NDArray[np.int32]
    vectors: NDArray[Any]
    draws: NDArray[np.float64]
    barrier: NDArray[np.int64]


def blocker_of(rule, agent, clocks):
    """An agent that has to tick before this one may fire, or NOBODY if no earlier tick matters to it."""
    raise NotImplementedError("compiled code only")


def fires_again(rule, agent, clocks):
    """Whether an agent that has just fired may do so again at once, while others fire.

    Only a rule that looks at no clock which another one might move meanwhile can tell; else False.
    """
    raise NotImplementedError("compiled code only")


def fire(rule, agent, following, later, clocks, vectors, draws):
    """Do the agent's update and draw its next tick.

    `following` is who comes next on this thread, `later` who comes after; `vectors` are three scratch
    rows, each long enough for a model and for ROWS_AT_ONCE numbers, and `draws` a row for its noise.
    """
    raise NotImplementedError("compiled code only")


@njit(inline="always")
def ticks_before(other, agent, next_ticks):
    """Whose tick comes first; ties go to the lower index."""
    return next_ticks[other] < next_ticks[agent] or (next_ticks[other] == next_ticks[agent] and other < agent)


# Inlined, as are the overloads of `blocker_of`: a call would copy every array descriptor of the rule.
@njit(forceinline=True)
def earlier_neighbor(center, agent, network, next_ticks):
    """A neighbor of `center` that ticks before `agent` does, or NOBODY."""
    for e in range(network.offsets[center], network.offsets[center + 1]):
        neighbor = np.int64(network.neighbors[e])
        if ticks_before(neighbor, agent, next_ticks):
            return neighbor
    return NOBODY


@njit(inline="always")
def first_of(part, parts, n_agents):
    """The first agent of a thread's part; the one after the last is the first of the next part."""
    return n_agents * part // parts


@njit
def mark_concerned(part, fired, work):
    """Mark those of the part who fired in the last sweep, and those who waited for one who did."""
    n_agents, parts = work.marks.shape[0], work.counts.shape[1]
    first, end = first_of(part, parts, n_agents), first_of(part + 1, parts, n_agents)
    for owner in range(parts):
        start = first_of(owner, parts, n_agents)
        for k in range(start, start + work.counts[fired, owner, 0]):
            agent = np.int64(work.lists[fired, k])
            if first <= agent < end:
                work.marks[agent] = 1
            waiting = np.int64(work.first_waiting[part, agent])
            work.first_waiting[part, agent] = NOBODY
            while waiting != NOBODY:
                work.marks[waiting] = 1
                waiting = np.int64(work.next_waiting[waiting])


@njit
def find_ready(part, ready, until, rule, clocks, work):
    """Phase 1, one thread's part of the agents: list those that may fire, in the order of memory.

    Only those who fired in the last sweep and those who waited for them are looked at. One that may
    not fire yet waits for another that has to tick before.
    """
    mark_concerned(part, 1 - ready, work)
    n_agents, parts = work.marks.shape[0], work.counts.shape[1]
    first = first_of(part, parts, n_agents)
    n_ready = 0
    for agent in range(first, first_of(part + 1, parts, n_agents)):
        if work.marks[agent] == 0:
            continue
        work.marks[agent] = 0
        if clocks.next_ticks[agent] > until:
            continue
        blocker = blocker_of(rule, agent, clocks)
        if blocker == NOBODY:
            work.lists[ready, first + n_ready] = agent
            n_ready += 1
        else:
            work.next_waiting[agent] = work.first_waiting[part, blocker]
            work.first_waiting[part, blocker] = agent
    work.counts[ready, part, 0] = n_ready
    work.taken[part * PADDING] = 0


@njit
def fire_shared(part, ready, until, rule, clocks, work):
    """Phase 2: fire the own list of ready agents, then help with the lists of the other threads.

    An agent that comes first again does the next update, too, while its data is in cache.
    """
    n_agents, parts = work.marks.shape[0], work.counts.shape[1]
    for turn in range(parts):
        owner = (part + turn) % parts
        count = work.counts[ready, owner, 0]
        agents = work.lists[ready, first_of(owner, parts, n_agents) :]
        while True:
            first = atomic_add(work.taken, owner * PADDING, AGENTS_AT_ONCE)  # pyright: ignore[reportCallIssue]
            if first >= count:
                break
            for k in range(first, min(first + AGENTS_AT_ONCE, count)):
                agent = np.int64(agents[k])
                following = np.int64(agents[min(k + 1, count - 1)])
                later = np.int64(agents[min(k + 2, count - 1)])
                while True:
                    fire(rule, agent, following, later, clocks, work.vectors[part], work.draws[part])
                    if clocks.next_ticks[agent] > until or not fires_again(rule, agent, clocks):
                        break


# No reference counts, here and in all that is called from here: each array view would change a counter
# that all threads share, some eighty times an update. The caller keeps the arrays alive.
@njit(nogil=True, _nrt=False)  # pyright: ignore[reportCallIssue]
def sweep_part(part, max_sweeps, until, rule, clocks, work):
    """What one thread does; all threads see the same total, so all leave after the same sweep."""
    parts = work.counts.shape[1]
    for sweep in range(max_sweeps):
        ready = sweep & 1
        find_ready(part, ready, until, rule, clocks, work)
        wait_for_all(work.barrier, parts)
        total = 0
        for other in range(parts):
            total += work.counts[ready, other, 0]
        if total == 0:
            break
        fire_shared(part, ready, until, rule, clocks, work)
        wait_for_all(work.barrier, parts)


class Team:
    """Threads that sweep over all agents together; the result does not depend on how many they are."""

    def __init__(self, threads: int | None, n_agents: int, size: int, dtype: DTypeLike) -> None:
        self.threads = choose_threads(threads, n_agents)
        self._pool = ThreadPoolExecutor(max(self.threads - 1, 1))
        self._work = Workspace(
            marks=np.empty(n_agents, np.uint8),
            lists=np.empty((2, n_agents), np.int32),
            counts=np.zeros((2, self.threads, PADDING), np.int64),
            taken=np.zeros(self.threads * PADDING, np.int64),
            first_waiting=np.empty((self.threads, n_agents), np.int32),
            next_waiting=np.empty(n_agents, np.int32),
            vectors=np.zeros((self.threads, 3, max(size, ROWS_AT_ONCE) + PADDING), dtype),
            draws=np.zeros((self.threads, size + PADDING)),
            barrier=np.zeros(BARRIER_SIZE, np.int64),
        )

    def sweep(self, max_sweeps: int, until: int, rule: Any, clocks: Clocks) -> None:
        """Fire all ticks up to time `until`, or stop after `max_sweeps`."""
        work = self._work
        # Everyone is looked at in the first sweep, and nobody waits yet.
        work.marks[:] = 1
        work.counts[:] = 0
        work.first_waiting[:] = NOBODY
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
