"""How models travel between neighbors, for the compiled sweeps.

`Direct` is the paper's network: a broadcast arrives at once, so an agent reads its neighbors' models where
they are. `Mail` is a network with delays, losses and absences: an inbox per directed edge, and messages under
way. numba picks the code of `has_room`, `gather` and `exchange` by the type of the link.

An agent that fires knows when each neighbor will fire next, and no neighbor fires meanwhile. So it can put a
message that arrives by then straight into the neighbor's inbox; later ones wait as pending until the receiver
knows its next tick. A receiver keeps the highest-numbered model only, so messages may be handed over in any
order. Inbox and pending messages of the edge j → i are at the position of j among i's neighbors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from flockwise.code_cache import compiled
from flockwise.engine.conditions import ConditionTable, appearance, arrival, catches_up, scheduled_tick
from flockwise.engine.cpu.kernels import copy_into, prefetch_range
from flockwise.randomness.clocks import NEVER, tick_gap

NEVER_HEARD = -1


class Direct(NamedTuple):
    """Every broadcast arrives at once; `shares` are the weights W_ij / D_ii."""

    shares: NDArray[Any]


class Mail(NamedTuple):
    """The state of all directed edges; `reverse[e]` is the position of the opposite edge."""

    table: ConditionTable
    weights: NDArray[Any]
    reverse: NDArray[np.int64]
    sent: NDArray[np.int64]
    numbers: NDArray[np.int64]
    inbox: NDArray[Any]
    pending_counts: NDArray[np.int64]
    pending_arrivals: NDArray[np.int64]
    pending_numbers: NDArray[np.int64]
    pending_models: NDArray[Any]
    overflow: NDArray[np.int64]


@njit
def deliver(mail, edge, number, model):
    """The receiver's inbox keeps the highest-numbered model."""
    if number > mail.numbers[edge]:
        mail.numbers[edge] = number
        copy_into(mail.inbox[edge], model)


@njit
def keep_pending(mail, edge, slot, other):
    """Move a pending message of this edge from position `other` to `slot`."""
    if slot != other:
        mail.pending_arrivals[edge, slot] = mail.pending_arrivals[edge, other]
        mail.pending_numbers[edge, slot] = mail.pending_numbers[edge, other]
        copy_into(mail.pending_models[edge, slot], mail.pending_models[edge, other])


@njit
def post(mail, edge, time, number, model):
    """Leave a message under way; older ones that would arrive after it will never be read."""
    count = 0
    for k in range(mail.pending_counts[edge]):
        if mail.pending_arrivals[edge, k] < time:
            keep_pending(mail, edge, count, k)
            count += 1
    mail.pending_arrivals[edge, count] = time
    mail.pending_numbers[edge, count] = number
    copy_into(mail.pending_models[edge, count], model)
    mail.pending_counts[edge] = count + 1


@njit
def collect(mail, edge, until):
    """Hand over the messages of this edge that arrive by `until`; numbers rise along the queue."""
    count = 0
    for k in range(mail.pending_counts[edge]):
        if mail.pending_arrivals[edge, k] <= until:
            deliver(mail, edge, mail.pending_numbers[edge, k], mail.pending_models[edge, k])
        else:
            keep_pending(mail, edge, count, k)
            count += 1
    mail.pending_counts[edge] = count


@njit
def send(mail, edge, time, number, model, receiver_tick):
    """A message that arrives at `time` at a receiver whose next tick is known."""
    if time <= receiver_tick:
        deliver(mail, edge, number, model)
    else:
        post(mail, edge, time, number, model)


@compiled()
def send_start(mail, network, clocks, models, start_is_public):
    """Message 0: the model that each agent starts from, known without a message if it is public."""
    for agent in range(models.shape[0]):
        appears = appearance(mail.table, clocks.seed, clocks.ids[agent])
        mail.sent[agent] = appears
        if appears == NEVER:
            continue
        for e in range(network.offsets[agent], network.offsets[agent + 1]):
            receiver = np.int64(network.neighbors[e])
            time = appears
            if not start_is_public:
                time = arrival(mail.table, clocks.seed, clocks.ids[agent], 0, clocks.ids[receiver], appears)
            if time < NEVER:
                send(mail, mail.reverse[e], time, 0, models[agent], clocks.next_ticks[receiver])


def has_room(link, network, agent):
    """Whether the broadcast of an agent that would fire now can be stored; if not, the link says so."""
    raise NotImplementedError("compiled code only")


@overload(has_room, jit_options={"forceinline": True})
def _compile_has_room(link, network, agent):
    if link.instance_class is Direct:
        return lambda link, network, agent: True
    return _mail_has_room


def _mail_has_room(link, network, agent):
    capacity = link.pending_arrivals.shape[1]
    for e in range(network.offsets[agent], network.offsets[agent + 1]):
        if link.pending_counts[link.reverse[e]] == capacity:
            link.overflow[0] = 1
            return False
    return True


def gather(link, network, agent, following, later, clocks, models, mean):
    """Write the weighted mean of the neighbors' models, or the own model if there is none, into `mean`."""
    raise NotImplementedError("compiled code only")


@overload(gather, inline="always")
def _compile_gather(link, network, agent, following, later, clocks, models, mean):
    return _direct_gather if link.instance_class is Direct else _mail_gather


def _direct_gather(link, network, agent, following, later, clocks, models, mean):
    size = mean.shape[0]
    start, stop = network.offsets[agent], network.offsets[agent + 1]
    if start == stop:
        copy_into(mean, models[agent])
        return
    for d in range(size):
        mean[d] = 0
    e = start
    while e + 2 <= stop:
        model_0, model_1 = models[network.neighbors[e]], models[network.neighbors[e + 1]]
        share_0, share_1 = link.shares[e], link.shares[e + 1]
        for d in range(size):
            mean[d] += share_0 * model_0[d] + share_1 * model_1[d]
        e += 2
    if e < stop:
        neighbor_model, share = models[network.neighbors[e]], link.shares[e]
        for d in range(size):
            mean[d] += share * neighbor_model[d]
    # The next agent's model, and the list of neighbors of the one after: whose models are fetched then.
    prefetch_range(models, following * size, following * size + size)
    prefetch_range(network.neighbors, network.offsets[later], network.offsets[later + 1])
    prefetch_range(link.shares, network.offsets[later], network.offsets[later + 1])


def _mail_gather(link, network, agent, following, later, clocks, models, mean):
    now = clocks.next_ticks[agent]
    heard = 0.0
    for d in range(mean.shape[0]):
        mean[d] = 0
    for e in range(network.offsets[agent], network.offsets[agent + 1]):
        neighbor = np.int64(network.neighbors[e])
        if catches_up(
            link.table, clocks.seed, clocks.ids[agent], clocks.ids[neighbor], link.sent[neighbor], now
        ):
            deliver(link, e, clocks.updates[neighbor], models[neighbor])
        if link.numbers[e] > NEVER_HEARD:
            weight, received = link.weights[e], link.inbox[e]
            heard += weight
            for d in range(mean.shape[0]):
                mean[d] += weight * received[d]
    if heard == 0:
        copy_into(mean, models[agent])
    else:
        for d in range(mean.shape[0]):
            mean[d] /= heard


def exchange(link, network, agent, clocks, models, new_model):
    """Put the new model in place, count the update, draw the next tick, and send the model out."""
    raise NotImplementedError("compiled code only")


@overload(exchange, inline="always")
def _compile_exchange(link, network, agent, clocks, models, new_model):
    return _direct_exchange if link.instance_class is Direct else _mail_exchange


def _direct_exchange(link, network, agent, clocks, models, new_model):
    copy_into(models[agent], new_model)
    done = clocks.updates[agent] + 1
    clocks.updates[agent] = done
    if done < clocks.limit:
        clocks.next_ticks[agent] += tick_gap(clocks.seed, clocks.ids[agent], done)
    else:
        clocks.next_ticks[agent] = NEVER


def _mail_exchange(link, network, agent, clocks, models, new_model):
    now, seed, done = clocks.next_ticks[agent], clocks.seed, clocks.updates[agent] + 1
    ids, own = clocks.ids, clocks.ids[agent]
    first, last = network.offsets[agent], network.offsets[agent + 1]
    for e in range(first, last):
        # Neighbors that came back since the last broadcast were handed the old model then.
        receiver = np.int64(network.neighbors[e])
        if catches_up(link.table, seed, ids[receiver], own, link.sent[agent], now):
            deliver(link, link.reverse[e], done - 1, models[agent])
    copy_into(models[agent], new_model)
    clocks.updates[agent] = done
    link.sent[agent] = now
    upcoming = NEVER
    if done < clocks.limit:
        upcoming = scheduled_tick(link.table, seed, own, done, now)
    clocks.next_ticks[agent] = upcoming
    for e in range(first, last):
        receiver = np.int64(network.neighbors[e])
        time = arrival(link.table, seed, own, done, ids[receiver], now)
        if time < NEVER:
            send(link, link.reverse[e], time, done, new_model, clocks.next_ticks[receiver])
        collect(link, e, upcoming)
