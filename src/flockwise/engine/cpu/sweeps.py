"""Exact parallel asynchrony: fire every agent that no earlier tick can touch any more.

An update reads and writes a neighborhood only. So an agent whose next tick comes before those of all agents
that could touch the same can fire at once, and the run equals the one-at-a-time order. A sweep finds these
agents, then fires them: two phases, so no clock is read while another thread moves it.

Each agent counts the neighbors that tick before it. An agent that fires draws its next tick and is overtaken
by some neighbors: it counts these from now on, and they no longer count it. So the clocks of its neighborhood
are compared once an update, not whenever it waits.

A rule says which of the earliest agents may fire, and what firing does. Rules are NamedTuples with a network;
numba picks the code of `may_fire`, `fires_again` and `fire` by their type (the modules descent and meetings).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from flockwise.code_cache import compiled
from flockwise.engine.cpu.barrier import BARRIER_SIZE, atomic_add, wait_for_all
from flockwise.engine.cpu.kernels import ROWS_AT_ONCE
from flockwise.errors import SimulationError

# Below this many agents a thread, meeting the others costs more than it saves.
AGENTS_WORTH_A_THREAD = 1000
# Counters and scratch vectors of different threads stay this many numbers apart.
PADDING = 64
# Ready agents that a thread takes at once: few, so none waits long for a thread that was held up.
AGENTS_AT_ONCE = 16


class Network(NamedTuple):
    """The edges of the graph: agent i's neighbors are neighbors[offsets[i]:offsets[i + 1]]."""

    offsets: NDArray[np.int64]
    neighbors: NDArray[np.int32]


class Clocks(NamedTuple):
    """Each agent's next tick and the updates it has done; after `limit` of them it has no clock any more.

    ids: the agents' numbers, by which they draw, and by which ties go.
    """

    seed: np.uint64
    limit: int
    ids: NDArray[np.int64]
    next_ticks: NDArray[np.int64]
    updates: NDArray[np.int64]


class Workspace(NamedTuple):
    """Memory of the threads: counts, lists and scratch vectors.

    Each thread has a part of the agents, and in `ready` room to list those of them that may fire.
    earlier[i]: how many neighbors of agent i tick before it does.
    overtakers[k]: the neighbors that have overtaken agents which thread k has fired in this sweep.
    """

    earlier: NDArray[Any]
    ready: NDArray[np.int32]
    ready_counts: NDArray[np.int64]
    taken: NDArray[np.int64]
    overtakers: NDArray[np.int32]
    overtaker_counts: NDArray[np.int64]
    vectors: NDArray[Any]
    draws: NDArray[np.float64]
    barrier: NDArray[np.int64]


def may_fire(rule, agent, clocks):
    """Whether an agent whose next tick is due and comes before those of its neighbors may fire."""
    raise NotImplementedError("compiled code only")


def fires_again(rule, agent, clocks):
    """Whether an agent that has just fired and still comes before its neighbors may do so again at once.

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
def ticks_before(other, agent, clocks):
    """Whose tick comes first; ties go to the lower number."""
    its, own = clocks.next_ticks[other], clocks.next_ticks[agent]
    return its < own or (its == own and clocks.ids[other] < clocks.ids[agent])


@njit(inline="always")
def first_of(part, parts, n_agents):
    """The first agent of a thread's part; the one after the last is the first of the next part."""
    return n_agents * part // parts


@njit
def count_earlier(part, network, clocks, work):
    """How many neighbors tick before each agent of the part."""
    n_agents, parts = work.earlier.shape[0], work.ready_counts.shape[0]
    for agent in range(first_of(part, parts, n_agents), first_of(part + 1, parts, n_agents)):
        count = 0
        for e in range(network.offsets[agent], network.offsets[agent + 1]):
            count += ticks_before(np.int64(network.neighbors[e]), agent, clocks)
        work.earlier[agent] = count


@njit(forceinline=True)
def note_overtakers(part, agent, network, clocks, work):
    """Note the neighbors that tick before an agent which has just fired; returns how many they are."""
    first = work.overtaker_counts[part, 0]
    end = first
    for e in range(network.offsets[agent], network.offsets[agent + 1]):
        neighbor = np.int64(network.neighbors[e])
        # Written in any case: nobody could foretell a branch.
        work.overtakers[part, end] = neighbor
        end += ticks_before(neighbor, agent, clocks)
    work.overtaker_counts[part, 0] = end
    work.earlier[agent] = end - first
    return end - first


@njit
def forget_overtaken(part, work):
    """Decrement `earlier` for agents whose neighbor moved behind them."""
    n_agents, parts = work.earlier.shape[0], work.ready_counts.shape[0]
    first, end = first_of(part, parts, n_agents), first_of(part + 1, parts, n_agents)
    for other in range(parts):
        for k in range(work.overtaker_counts[other, 0]):
            agent = np.int64(work.overtakers[other, k])
            if first <= agent < end:
                work.earlier[agent] -= 1


@njit
def find_ready(part, until, rule, clocks, work):
    """Phase 1, one thread's part of the agents: list those that may fire, in the order of memory."""
    forget_overtaken(part, work)
    n_agents, parts = work.earlier.shape[0], work.ready_counts.shape[0]
    first = first_of(part, parts, n_agents)
    n_ready = 0
    for agent in range(first, first_of(part + 1, parts, n_agents)):
        if work.earlier[agent] == 0 and clocks.next_ticks[agent] <= until and may_fire(rule, agent, clocks):
            work.ready[first + n_ready] = agent
            n_ready += 1
    work.ready_counts[part, 0] = n_ready
    work.taken[part * PADDING] = 0


@njit
def fire_shared(part, until, rule, clocks, work):
    """Phase 2: fire the own list of ready agents, then help with the lists of the other threads.

    If an agent is still earliest in its neighborhood, update it again while its data is in cache.
    """
    n_agents, parts = work.earlier.shape[0], work.ready_counts.shape[0]
    work.overtaker_counts[part, 0] = 0
    for turn in range(parts):
        owner = (part + turn) % parts
        count = work.ready_counts[owner, 0]
        agents = work.ready[first_of(owner, parts, n_agents) :]
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
                    if note_overtakers(part, agent, rule.network, clocks, work) > 0:
                        break
                    if clocks.next_ticks[agent] > until or not fires_again(rule, agent, clocks):
                        break


# No reference counts, here and in all that is called from here: each array view would change a counter
# that all threads share, some eighty times an update. The caller keeps the arrays alive.
@compiled(nogil=True, _nrt=False)  # pyright: ignore[reportCallIssue]
def sweep_part(part, fresh, max_sweeps, until, rule, clocks, work):
    """What one thread does; all threads see the same total, so all leave after the same sweep.

    fresh: whether to count anew who ticks before whom.
    """
    parts = work.ready_counts.shape[0]
    if fresh:
        count_earlier(part, rule.network, clocks, work)
    for _ in range(max_sweeps):
        find_ready(part, until, rule, clocks, work)
        wait_for_all(work.barrier, parts)
        total = 0
        for other in range(parts):
            total += work.ready_counts[other, 0]
        if total == 0:
            break
        fire_shared(part, until, rule, clocks, work)
        wait_for_all(work.barrier, parts)


class Team:
    """Threads that sweep over all agents together; the result does not depend on how many they are.

    The agents are those with a row in the network. Neighbors may stand after them: their clocks and models
    are read here, and moved elsewhere. most_neighbors: of any agent, if others run elsewhere.
    """

    def __init__(
        self,
        threads: int | None,
        network: Network,
        size: int,
        dtype: DTypeLike,
        most_neighbors: int | None = None,
    ) -> None:
        n_agents = network.offsets.size - 1
        if most_neighbors is None:
            most_neighbors = int(np.diff(network.offsets).max(initial=0))
        self.threads = choose_threads(threads, n_agents)
        self._pool = ThreadPoolExecutor(max(self.threads - 1, 1))
        self._work = Workspace(
            # Small, to stay in cache.
            earlier=np.empty(n_agents, np.min_scalar_type(most_neighbors)),
            ready=np.empty(n_agents, np.int32),
            ready_counts=np.zeros((self.threads, PADDING), np.int64),
            taken=np.zeros(self.threads * PADDING, np.int64),
            # Room for all; what is never written takes no memory.
            overtakers=np.empty((self.threads, network.neighbors.size), np.int32),
            overtaker_counts=np.zeros((self.threads, PADDING), np.int64),
            vectors=np.zeros((self.threads, 3, max(size, ROWS_AT_ONCE) + PADDING), dtype),
            draws=np.zeros((self.threads, size + PADDING)),
            barrier=np.zeros(BARRIER_SIZE, np.int64),
        )

    @property
    def earlier(self) -> NDArray[Any]:
        """How many neighbors of each agent tick before it does, as last counted."""
        return self._work.earlier

    def sweep(self, max_sweeps: int, until: int, rule: Any, clocks: Clocks, *, fresh: bool = True) -> None:
        """Fire all ticks up to time `until`, or stop after `max_sweeps`.

        fresh: count `earlier` anew. A caller that has moved clocks after a complete sweep, and `earlier` with
        them, can pass False.
        """
        work = self._work
        work.overtaker_counts[:] = 0
        arguments = fresh, max_sweeps, until, rule, clocks, work
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
