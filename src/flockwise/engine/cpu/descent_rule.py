"""Eq. (4) for the compiled sweeps: an agent may fire before all its neighbors do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from flockwise.engine.cpu.kernels import (
    REORDER,
    Ahead,
    AnchorTerm,
    ClippedTerm,
    DataTerm,
    add_local_gradient,
    prefetch,
    prefetch_term,
)
from flockwise.engine.cpu.links import Direct, exchange, gather, has_room
from flockwise.engine.cpu.mail import Mail
from flockwise.engine.cpu.noise import NoNoise, PlannedNoise, add_noise, keep_release
from flockwise.engine.cpu.sweeps import Network, fire, fires_again, may_fire


class DescentRule(NamedTuple):
    """Local terms, network, α_i and μ·c_i of Eq. (4), everyone's model, and the noise of Eq. (6)."""

    term: DataTerm | ClippedTerm | AnchorTerm
    network: Network
    link: Direct | Mail
    step_sizes: NDArray[Any]
    pulls: NDArray[Any]
    models: NDArray[Any]
    noise: NoNoise | PlannedNoise


@overload(may_fire, jit_options={"forceinline": True})
def _descent_may_fire(rule, agent, clocks):
    if rule.instance_class is DescentRule:
        return lambda rule, agent, clocks: has_room(rule.link, rule.network, agent)
    return None


@overload(fires_again, jit_options={"forceinline": True})
def _descent_fires_again(rule, agent, clocks):
    if rule.instance_class is DescentRule:
        # No neighbor of an agent that fires does so at the same time.
        return lambda rule, agent, clocks: may_fire(rule, agent, clocks)
    return None


@njit(forceinline=True)
def prefetch_numbers(rule, agent, clocks):
    """Start to read what is kept of this agent beside its model and samples."""
    prefetch(rule.step_sizes, agent)  # pyright: ignore[reportCallIssue]
    prefetch(rule.pulls, agent)  # pyright: ignore[reportCallIssue]
    prefetch(clocks.ids, agent)  # pyright: ignore[reportCallIssue]
    prefetch(clocks.updates, agent)  # pyright: ignore[reportCallIssue]
    prefetch(clocks.next_ticks, agent)  # pyright: ignore[reportCallIssue]
    prefetch_term(rule.term, agent)


@njit(forceinline=True)
def prefetch_clocks(network, agent, clocks):
    """Start to read the neighbors' next ticks, with which the agent's own is compared after it has fired."""
    for e in range(network.offsets[agent], network.offsets[agent + 1]):
        prefetch(clocks.next_ticks, np.int64(network.neighbors[e]))  # pyright: ignore[reportCallIssue]


# Inlined, since a call would copy every array descriptor of the rule.
@overload(fire, jit_options={"fastmath": REORDER, "forceinline": True})
def _descent_fire(rule, agent, following, later, clocks, vectors, draws):
    if rule.instance_class is not DescentRule:
        return None

    def descend(rule, agent, following, later, clocks, vectors, draws):
        network, link, models = rule.network, rule.link, rule.models
        model = models[agent]
        new_model, gradient = vectors[0, : model.shape[0]], vectors[1, : model.shape[0]]
        prefetch_numbers(rule, later, clocks)
        gather(link, network, agent, following, later, clocks, models, new_model)
        prefetch_clocks(network, agent, clocks)
        start, stop = network.offsets[following], network.offsets[following + 1]
        ahead = Ahead(following, models, network.neighbors, start, stop)
        add_local_gradient(rule.term, agent, model, gradient, vectors[2], ahead)
        add_noise(rule.noise, agent, clocks, gradient, draws)
        step, pull = rule.step_sizes[agent], rule.pulls[agent]
        for d in range(model.shape[0]):
            # The old model stays until exchange() has handed it to those who still need it.
            new_model[d] = model[d] + step * (new_model[d] - model[d] - pull * gradient[d])
        keep_release(rule.noise, agent, clocks, new_model)
        exchange(link, network, agent, clocks, models, new_model)

    return descend
