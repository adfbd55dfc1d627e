"""Exact parallel gossip: fire every tick that no earlier one can touch.

The tick of agent i that wakes agent j reads and writes what these two hold, nothing else. An
earlier tick can matter only if it is of i or j, or of a neighbor of either, who might wake them.
So the tick may fire as soon as it comes before the next ticks of all of these; two ticks that may
fire at once share no agent, and the run equals the one-at-a-time order. A sweep finds such ticks,
then fires them: two phases, so that no clock is read while another thread moves it.
"""
# ruff: noqa: ANN001, ANN201 -- numba takes the types from the call

from __future__ import annotations

from concurrent.futures import Executor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from murmura.engine.gossip_state import NOBODY, GossipState, chosen_edge
from murmura.engine.sweeps import Network
from murmura.method.admm import COPY, OWN
from murmura.objective.kernels import REORDER, DataTerm, add_local_gradient
from murmura.randomness.clocks import NEVER, tick_gap


class Rule(NamedTuple):
    """The numbers of murmura.method.admm, by agent or by directed edge, in the dtype of the models."""

    term: DataTerm
    penalty: Any
    gradient_steps: int
    data_weights: NDArray[Any]
    step_sizes: NDArray[Any]
    stiffness: NDArray[Any]
    copy_shares: NDArray[Any]


class Meetings(NamedTuple):
    """Who meets whom next: edges[i] is the one along which i wakes a neighbor at its next tick."""

    seed: np.uint64
    limit: int
    network: Network
    reverse: NDArray[np.int64]
    edges: NDArray[np.int64]


@njit
def draw_edges(meetings, updates):
    """Everyone's choice for its next tick."""
    for agent in range(updates.shape[0]):
        meetings.edges[agent] = chosen_edge(meetings.seed, agent, updates[agent], meetings.network)


@njit(inline="always")
def comes_first_around(center, agent, network, next_ticks):
    """Whether no neighbor of `center` ticks before `agent` does; ties go to the lower index."""
    tick = next_ticks[agent]
    for e in range(network.offsets[center], network.offsets[center + 1]):
        neighbor = network.neighbors[e]
        other = next_ticks[neighbor]
        if other < tick or (other == tick and neighbor < agent):
            return False
    return True


@njit(nogil=True)
def find_ready(first, last, until, meetings, next_ticks, ready):
    """Phase 1: list those from `first` to `last` that may fire, in the same part of `ready`; count them."""
    network = meetings.network
    count = 0
    for agent in range(first, last):
        if next_ticks[agent] > until or not comes_first_around(agent, agent, network, next_ticks):
            continue
        edge = meetings.edges[agent]
        if edge == NOBODY or comes_first_around(network.neighbors[edge], agent, network, next_ticks):
            ready[first + count] = agent
            count += 1
    return count


@njit(fastmath=REORDER)
def minimize_part(agent, following, rule, network, state, pull, gradient):
    """`AgentPart.minimize`: gradient steps on the own model, then the copies in closed form."""
    model, penalty, step = state.models[agent], rule.penalty, rule.step_sizes[agent]
    weight, stiffness = rule.data_weights[agent], rule.stiffness[agent]
    size = model.shape[0]
    first, last = network.offsets[agent], network.offsets[agent + 1]
    pull[:] = 0
    for e in range(first, last):
        share, auxiliary, duals = rule.copy_shares[e], state.auxiliary[e], state.duals[e]
        for d in range(size):
            pull[d] += penalty * auxiliary[OWN, d] - duals[OWN, d]
            pull[d] += share * (penalty * auxiliary[COPY, d] - duals[COPY, d])
    for _ in range(rule.gradient_steps):
        add_local_gradient(rule.term, agent, model, gradient, following)
        for d in range(size):
            model[d] -= step * (weight * gradient[d] + stiffness * model[d] - pull[d])
    for e in range(first, last):
        share, auxiliary, duals, copy = (
            rule.copy_shares[e],
            state.auxiliary[e],
            state.duals[e],
            state.copies[e],
        )
        for d in range(size):
            copy[d] = share * model[d] + (1 - share) * (auxiliary[COPY, d] - duals[COPY, d] / penalty)


@njit
def agree_on(owner, edge, opposite, penalty, state):
    """`agree` on the owner's model, at the owner's end and at the other end of the edge."""
    model, copy = state.models[owner], state.copies[opposite]
    for d in range(model.shape[0]):
        own_dual, copy_dual = state.duals[edge, OWN, d], state.duals[opposite, COPY, d]
        shared = ((own_dual + copy_dual) / penalty + model[d] + copy[d]) / 2
        state.auxiliary[edge, OWN, d] = state.auxiliary[opposite, COPY, d] = shared
        state.duals[edge, OWN, d] = own_dual + penalty * (model[d] - shared)
        state.duals[opposite, COPY, d] = copy_dual + penalty * (copy[d] - shared)


@njit
def schedule(agent, meetings, state):
    """Count the update, draw the next tick and the neighbor to wake then."""
    done = state.updates[agent] + 1
    state.updates[agent] = done
    if done >= meetings.limit:
        state.next_ticks[agent] = NEVER
        return
    state.next_ticks[agent] += tick_gap(meetings.seed, agent, done)
    meetings.edges[agent] = chosen_edge(meetings.seed, agent, done, meetings.network)


@njit
def fire(agent, following, rule, meetings, state, pull, gradient):
    """One tick: both ends minimise their parts, then update their edge."""
    network, edge = meetings.network, meetings.edges[agent]
    if edge == NOBODY:
        minimize_part(agent, following, rule, network, state, pull, gradient)
    else:
        # One integer type for all agents: numba compiles every function once per type.
        partner, opposite = np.int64(network.neighbors[edge]), meetings.reverse[edge]
        minimize_part(agent, partner, rule, network, state, pull, gradient)
        minimize_part(partner, following, rule, network, state, pull, gradient)
        agree_on(agent, edge, opposite, rule.penalty, state)
        agree_on(partner, opposite, edge, rule.penalty, state)
    schedule(agent, meetings, state)


@njit(nogil=True)
def fire_all(agents, rule, meetings, state):
    """Phase 2: the ready agents, or one thread's share of them."""
    pull, gradient = np.empty_like(state.models[0]), np.empty_like(state.models[0])
    for k in range(agents.shape[0]):
        following = agents[min(k + 1, agents.shape[0] - 1)]
        fire(agents[k], following, rule, meetings, state, pull, gradient)


@njit(nogil=True)
def sweep_on_one_thread(max_sweeps, until, rule, meetings, state, ready):
    """Fire all ticks up to time `until`, or stop after `max_sweeps`."""
    for _ in range(max_sweeps):
        total = find_ready(0, ready.shape[0], until, meetings, state.next_ticks, ready)
        if total == 0:
            break
        fire_all(ready[:total], rule, meetings, state)


def sweep_on_threads(
    pool: Executor,
    threads: int,
    max_sweeps: int,
    until: int,
    rule: Rule,
    meetings: Meetings,
    state: GossipState,
    ready: NDArray[np.int64],
) -> None:
    """The same on a pool of threads: both phases are compiled and run outside the interpreter's lock."""
    bounds = [ready.size * part // threads for part in range(threads + 1)]
    for _ in range(max_sweeps):
        searches = [
            pool.submit(find_ready, first, last, until, meetings, state.next_ticks, ready)
            for first, last in pairwise(bounds)
        ]
        counts = [search.result() for search in searches]
        agents = np.concatenate([ready[first:][:count] for first, count in zip(bounds, counts, strict=False)])
        if agents.size == 0:
            break
        shares = np.array_split(agents, threads)
        firings = [pool.submit(fire_all, share, rule, meetings, state) for share in shares]
        for firing in firings:
            firing.result()
