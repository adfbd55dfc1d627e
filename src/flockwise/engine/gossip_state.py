"""What a gossip run holds, who wakes whom, and how a run begins: the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from flockwise.engine.sweeps import Network
from flockwise.errors import SimulationError
from flockwise.method.admm import COPY, OWN, Gossip
from flockwise.randomness.clocks import PARTNER, tick_gap, uniform_word

NOBODY = -1


class GossipState(NamedTuple):
    """The variables of all agents and their clocks.

    copies, auxiliary and duals have one row per directed edge: that of i and its neighbor j is what
    i holds, at the position of j among i's neighbors.
    """

    models: NDArray[Any]
    copies: NDArray[Any]
    auxiliary: NDArray[Any]
    duals: NDArray[Any]
    next_ticks: NDArray[np.int64]
    updates: NDArray[np.int64]

    @staticmethod
    def begin(gossip: Gossip, seed: int) -> GossipState:
        """Everyone at its start, with true copies, z that agree with them, and duals of zero."""
        graph, start = gossip.problem.graph, gossip.start
        owners = np.repeat(np.arange(graph.n_agents), graph.neighbor_counts)
        auxiliary = np.empty((owners.size, 2, start.shape[1]), start.dtype)
        auxiliary[:, OWN], auxiliary[:, COPY] = start[owners], start[graph.neighbors]
        return GossipState(
            start.copy(),
            start[graph.neighbors],
            auxiliary,
            np.zeros_like(auxiliary),
            first_ticks(np.uint64(seed), graph.n_agents),
            np.zeros(graph.n_agents, np.int64),
        )

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> GossipState:
        """From a saved run, which is left as it is."""
        return GossipState(**{name: arrays[name].copy() for name in GossipState._fields})


def check_ideal(ideal: bool) -> None:
    """Both ends of an edge act on the same tick, which a late or lost message makes impossible."""
    if not ideal:
        raise SimulationError(
            "gossip ADMM exchanges models both ways at once and needs the ideal network; "
            "leave conditions out, or use CoordinateDescent"
        )


@njit
def first_ticks(seed: Any, n_agents: Any) -> Any:
    """When each agent wakes for the first time."""
    ticks = np.empty(n_agents, np.int64)
    for agent in range(n_agents):
        ticks[agent] = tick_gap(seed, agent, 0)
    return ticks


@njit
def chosen_edge(seed: Any, agent: Any, update: Any, network: Network) -> Any:
    """The directed edge to the neighbor that the agent wakes at this update, or NOBODY if it has none.

    The remainder of a 64-bit word: no neighbor is likelier than another by more than 2⁻⁶⁴ of certainty.
    """
    first = network.offsets[agent]
    count = network.offsets[agent + 1] - first
    if count == 0:
        return NOBODY
    return first + np.int64(uniform_word(seed, agent, update, PARTNER, 0) % np.uint64(count))
