"""Exact parallel asynchrony: fire every agent whose next tick is earlier than its neighbors' next ticks.

An update reads the models of the agent and its neighbors only. So an agent whose next tick comes
before those of all its neighbors can fire at once, whatever the rest of the network does, and the
run equals the one-at-a-time order. A sweep finds these agents, then fires them: two phases, so
that no clock is read while another thread moves it. Ties go to the lower agent index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from murmura.engine.barrier import wait_for_all
from murmura.engine.links import exchange, gather, has_room
from murmura.objective.kernels import REORDER, add_local_gradient


class Network(NamedTuple):
    """Who hears whom: agent i's neighbors are neighbors[offsets[i]:offsets[i + 1]]."""

    offsets: NDArray[np.int64]
    neighbors: NDArray[np.int32]


class Rates(NamedTuple):
    """α_i and μ·c_i of Eq. (4)."""

    step_sizes: NDArray[Any]
    pulls: NDArray[Any]


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
    vectors: NDArray[Any]
    barrier: NDArray[np.int64]


@njit
def comes_first(agent, network, next_ticks):
    """Whether the agent's next tick is before those of all its neighbors."""
    tick = next_ticks[agent]
    for e in range(network.offsets[agent], network.offsets[agent + 1]):
        neighbor = network.neighbors[e]
        other = next_ticks[neighbor]
        if other < tick or (other == tick and neighbor < agent):
            return False
    return True


@njit
def find_ready(part, until, network, link, clocks, work):
    """Phase 1, one thread's part of the agents: keep those with a tick left, list those that may fire."""
    n_agents = clocks.next_ticks.shape[0]
    parts = work.active_counts.shape[0]
    first = n_agents * part // parts
    n_active = n_ready = 0
    for k in range(work.active_counts[part, 0]):
        agent = work.active[first + k]
        if clocks.next_ticks[agent] > until:
            continue
        work.active[first + n_active] = agent
        n_active += 1
        if comes_first(agent, network, clocks.next_ticks) and has_room(link, network, agent):
            work.ready[first + n_ready] = agent
            n_ready += 1
    work.active_counts[part, 0] = n_active
    work.ready_counts[part, 0] = n_ready


@njit(fastmath=REORDER)
def fire(agent, following, term, network, link, rates, clocks, models, vectors):
    """Eq. (4) for one agent, then its broadcast and its next tick."""
    model, mean, gradient = models[agent], vectors[0], vectors[1]
    gather(link, network, agent, following, clocks, models, mean)
    add_local_gradient(term, agent, model, gradient, following)
    step, pull = rates.step_sizes[agent], rates.pulls[agent]
    for d in range(model.shape[0]):
        # The own model stays until exchange() has handed it to those who still need it.
        mean[d] = model[d] + step * (mean[d] - model[d] - pull * gradient[d])
    exchange(link, network, agent, clocks, models, mean)


@njit
def fire_part(part, total, term, network, link, rates, clocks, models, work):
    """Phase 2: one thread's share of the ready agents, as if all threads' lists were one."""
    n_agents, parts = models.shape[0], work.ready_counts.shape[0]
    first, last = total * part // parts, total * (part + 1) // parts
    before = 0
    for other in range(parts):
        count = work.ready_counts[other, 0]
        ready = work.ready[n_agents * other // parts :]
        start, stop = max(first - before, 0), min(last - before, count)
        for k in range(start, stop):
            following = ready[min(k + 1, stop - 1)]
            fire(ready[k], following, term, network, link, rates, clocks, models, work.vectors[part])
        before += count


@njit(nogil=True)
def sweep(part, max_sweeps, until, term, network, link, rates, clocks, models, work):
    """Fire all ticks up to time `until`, or stop after `max_sweeps`; all threads call this, each with its part."""
    parts = work.ready_counts.shape[0]
    for _ in range(max_sweeps):
        find_ready(part, until, network, link, clocks, work)
        wait_for_all(work.barrier, parts)
        total = work.ready_counts[:, 0].sum()
        if total == 0:
            break
        fire_part(part, total, term, network, link, rates, clocks, models, work)
        wait_for_all(work.barrier, parts)
