"""Everything that a run needs to go on, as plain arrays: what engines start from and hand back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from murmura.engine.conditions import ConditionTable, scheduled_tick
from murmura.method.descent import Descent


@dataclass
class MailState:
    """Messages of all directed edges: received (number −1: never heard) and under way.

    The edge j → i stands at the position of j among i's neighbors.
    """

    sent: NDArray[np.int64]
    numbers: NDArray[np.int64]
    inbox: NDArray[Any]
    letter_edges: NDArray[np.int64]
    letter_arrivals: NDArray[np.int64]
    letter_numbers: NDArray[np.int64]
    letter_models: NDArray[Any]


@dataclass
class DescentState:
    """Models and clocks, and the messages where the network is not ideal."""

    models: NDArray[Any]
    next_ticks: NDArray[np.int64]
    updates: NDArray[np.int64]
    mail: MailState | None = None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Flat, for a file."""
        arrays = {"models": self.models, "next_ticks": self.next_ticks, "updates": self.updates}
        if self.mail is not None:
            arrays |= {f"mail_{f.name}": getattr(self.mail, f.name) for f in fields(MailState)}
        return arrays

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> DescentState:
        mail = None
        if "mail_sent" in arrays:
            mail = MailState(**{f.name: arrays[f"mail_{f.name}"].copy() for f in fields(MailState)})
        return DescentState(
            arrays["models"].copy(), arrays["next_ticks"].copy(), arrays["updates"].copy(), mail
        )


def initial_state(descent: Descent, seed: int, table: ConditionTable) -> DescentState:
    """Θ(0) and everyone's first tick."""
    n_agents = descent.problem.n_agents
    ticks = first_ticks(table, np.uint64(seed), n_agents)
    return DescentState(descent.start.copy(), ticks, np.zeros(n_agents, np.int64))


@njit
def first_ticks(table, seed, n_agents):
    """When each agent wakes for the first time."""
    ticks = np.empty(n_agents, np.int64)
    for agent in range(n_agents):
        ticks[agent] = scheduled_tick(table, seed, agent, 0, 0)
    return ticks


def reverse_edges(offsets: NDArray[np.int64], neighbors: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each directed edge the position of the opposite one.

    Edges are sorted by agent, then neighbor. Sorted by neighbor, then agent, they are the
    opposite edges in the first order.
    """
    agents = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return np.lexsort((agents, neighbors))
