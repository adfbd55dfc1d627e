"""What a gossip run holds, who wakes whom, and how a run begins: the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.code_cache import compiled
from flockwise.engine.conditions import Conditions
from flockwise.errors import SimulationError
from flockwise.method.admm import COPY, OWN
from flockwise.method.rules import Meetings
from flockwise.randomness.clocks import PARTNER, tick_gap, uniform_word

NOBODY = -1


class MeetingsState(NamedTuple):
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
    def begin(rule: Meetings, seed: int) -> MeetingsState:
        """Everyone at its start, with true copies, z that agree with them, and duals of zero."""
        edges, start = rule.edges, rule.start
        owners = np.repeat(np.arange(rule.n_agents), edges.counts)
        auxiliary = np.empty((owners.size, 2, start.shape[1]), start.dtype)
        auxiliary[:, OWN], auxiliary[:, COPY] = start[owners], start[edges.neighbors]
        return MeetingsState(
            start.copy(),
            start[edges.neighbors],
            auxiliary,
            np.zeros_like(auxiliary),
            first_ticks(np.uint64(seed), rule.ids),
            np.zeros(rule.n_agents, np.int64),
        )

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> MeetingsState:
        """From a saved run, which is left as it is."""
        return MeetingsState(**{name: arrays[name].copy() for name in MeetingsState._fields})


def check_ideal(conditions: Conditions) -> None:
    """Both ends of an edge act on the same tick, which a late or lost message makes impossible."""
    if not conditions.are_ideal:
        raise SimulationError(
            "gossip ADMM exchanges models both ways at once and needs the ideal network; "
            "leave conditions out, or use CoordinateDescent"
        )


@compiled()
def first_ticks(seed: Any, ids: Any) -> Any:
    """When each agent wakes for the first time."""
    ticks = np.empty(ids.shape[0], np.int64)
    for position in range(ids.shape[0]):
        ticks[position] = tick_gap(seed, ids[position], 0)
    return ticks


@compiled()
def chosen_edge(seed: Any, number: Any, update: Any, offsets: Any, position: Any) -> Any:
    """The directed edge to the neighbor that agent `number` wakes at this update, or NOBODY if it has none.

    The remainder of a 64-bit word: no neighbor is likelier than another by more than 2⁻⁶⁴ of certainty.
    """
    first = offsets[position]
    count = offsets[position + 1] - first
    if count == 0:
        return NOBODY
    return first + np.int64(uniform_word(seed, number, update, PARTNER, 0) % np.uint64(count))
