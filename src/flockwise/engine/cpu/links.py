"""How models travel between neighbors, for the compiled sweeps.

`Direct` is the paper's network: a broadcast is there at once, so an agent reads its neighbors'
models where they stand. `flockwise.engine.cpu.mail.Mail` is a network with delays, losses and absences.
The sweeps call the functions below; numba picks the code by the type of the link.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.extending import overload
from numpy.typing import NDArray

from flockwise.engine.cpu.kernels import copy_into, prefetch_range
from flockwise.randomness.clocks import NEVER, tick_gap


class Direct(NamedTuple):
    """Every broadcast arrives at once; `shares` are the weights W_ij / D_ii."""

    shares: NDArray[Any]


def has_room(link, network, agent):
    """Whether the broadcast of an agent that would fire now can be stored; if not, the link says so."""
    raise NotImplementedError("compiled code only")


def gather(link, network, agent, following, later, clocks, models, mean):
    """Write the weighted mean of the neighbors' models, or the own model if there is none, into `mean`."""
    raise NotImplementedError("compiled code only")


def exchange(link, network, agent, clocks, models, new_model):
    """Put the new model in place, count the update, draw the next tick, and send the model out."""
    raise NotImplementedError("compiled code only")


@overload(has_room, jit_options={"forceinline": True})
def _direct_has_room(link, network, agent):
    if link.instance_class is Direct:
        return lambda link, network, agent: True
    return None


@overload(gather, inline="always")
def _direct_gather(link, network, agent, following, later, clocks, models, mean):
    if link.instance_class is not Direct:
        return None

    def gather_direct(link, network, agent, following, later, clocks, models, mean):
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

    return gather_direct


@overload(exchange, inline="always")
def _direct_exchange(link, network, agent, clocks, models, new_model):
    if link.instance_class is not Direct:
        return None

    def exchange_direct(link, network, agent, clocks, models, new_model):
        copy_into(models[agent], new_model)
        done = clocks.updates[agent] + 1
        clocks.updates[agent] = done
        if done < clocks.limit:
            clocks.next_ticks[agent] += tick_gap(clocks.seed, clocks.ids[agent], done)
        else:
            clocks.next_ticks[agent] = NEVER

    return exchange_direct
