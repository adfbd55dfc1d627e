"""Everything that a run needs to go on, as plain arrays: what engines start from and hand back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.code_cache import compiled
from flockwise.engine.conditions import ConditionTable, scheduled_tick
from flockwise.method.admm import COPY, OWN
from flockwise.method.rules import Descent, Meetings
from flockwise.randomness.clocks import PARTNER, uniform_word

NOBODY = -1


@dataclass
class MailState:
    """Messages of all directed edges: received (number −1: never heard) and under way ("pending").

    The edge j → i stands at the position of j among i's neighbors.
    """

    sent: NDArray[np.int64]
    numbers: NDArray[np.int64]
    inbox: NDArray[Any]
    pending_edges: NDArray[np.int64]
    pending_arrivals: NDArray[np.int64]
    pending_numbers: NDArray[np.int64]
    pending_models: NDArray[Any]


@dataclass
class DescentState:
    """Models and clocks, and the messages where the network is not ideal.

    tail_sums: in a private run, the sum of each agent's releases in the second half of its plan.
    """

    models: NDArray[Any]
    next_ticks: NDArray[np.int64]
    updates: NDArray[np.int64]
    mail: MailState | None = None
    tail_sums: NDArray[np.float64] | None = None

    @staticmethod
    def begin(rule: Descent, table: ConditionTable, seed: np.uint64) -> DescentState:
        """Θ(0) and everyone's first tick."""
        ticks, updates = first_ticks(table, seed, rule.ids), np.zeros(rule.n_agents, np.int64)
        tail_sums = None if rule.noise is None else np.zeros(rule.start.shape)
        return DescentState(rule.start.copy(), ticks, updates, None, tail_sums)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Flat, for a file."""
        arrays = {"models": self.models, "next_ticks": self.next_ticks, "updates": self.updates}
        if self.mail is not None:
            arrays |= {f"mail_{f.name}": getattr(self.mail, f.name) for f in fields(MailState)}
        if self.tail_sums is not None:
            arrays["tail_sums"] = self.tail_sums
        return arrays

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> DescentState:
        mail = None
        if "mail_sent" in arrays:
            mail = MailState(**{f.name: arrays[f"mail_{f.name}"].copy() for f in fields(MailState)})
        tail_sums = arrays["tail_sums"].copy() if "tail_sums" in arrays else None
        models, next_ticks, updates = (arrays[name].copy() for name in ("models", "next_ticks", "updates"))
        return DescentState(models, next_ticks, updates, mail, tail_sums)


class MeetingsState(NamedTuple):
    """The variables of gossip ADMM and the clocks.

    copies, auxiliary and duals have one row per directed edge: what i holds for its neighbor j is at the
    position of j among i's neighbors.
    """

    models: NDArray[Any]
    copies: NDArray[Any]
    auxiliary: NDArray[Any]
    duals: NDArray[Any]
    next_ticks: NDArray[np.int64]
    updates: NDArray[np.int64]

    @staticmethod
    def begin(rule: Meetings, table: ConditionTable, seed: np.uint64) -> MeetingsState:
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
            first_ticks(table, seed, rule.ids),
            np.zeros(rule.n_agents, np.int64),
        )

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> MeetingsState:
        """From a saved run, which is left as it is."""
        return MeetingsState(**{name: arrays[name].copy() for name in MeetingsState._fields})


@compiled()
def first_ticks(table, seed, ids):
    """When each agent wakes for the first time."""
    ticks = np.empty(ids.shape[0], np.int64)
    for position in range(ids.shape[0]):
        ticks[position] = scheduled_tick(table, seed, ids[position], 0, 0)
    return ticks


def tail_averages(
    models: NDArray[Any], updates: NDArray[np.int64], start: int, tail_sums: NDArray[np.float64]
) -> NDArray[Any]:
    """The mean of each agent's releases from update `start` on; its present model before there is one."""
    counts = np.maximum(updates - start, 0)[:, None]
    return np.where(counts > 0, tail_sums / np.maximum(counts, 1), models).astype(models.dtype)


def reverse_edges(offsets: NDArray[np.int64], neighbors: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each directed edge the position of the opposite one.

    Edges are sorted by agent, then neighbor. Sorted by neighbor, then agent, they are the
    opposite edges in the first order.
    """
    agents = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return np.lexsort((agents, neighbors))


@compiled()
def chosen_edge(seed, number, update, offsets, position):
    """The directed edge to the neighbor that agent `number` wakes at this update, or NOBODY if it has none.

    The remainder of a 64-bit word: no neighbor is more probable than another by more than 2⁻⁶⁴.
    """
    first = offsets[position]
    count = offsets[position + 1] - first
    if count == 0:
        return NOBODY
    return first + np.int64(uniform_word(seed, number, update, PARTNER, 0) % np.uint64(count))
