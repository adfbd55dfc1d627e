"""How many models a descent has sent along an edge, lost ones included."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from flockwise.engine.conditions import ConditionTable, appearance, count_catch_ups
from flockwise.method.descent import Descent


def vectors_sent(
    descent: Descent, table: ConditionTable, seed: int, updates: NDArray[np.int64], until: int
) -> int:
    """One vector per update and neighbor, the first broadcasts and the models handed to returning agents."""
    graph = descent.problem.graph
    counts = np.diff(graph.offsets)
    total = int(updates @ counts)
    if not descent.start_is_public:
        total += int(counts @ _have_appeared(table, np.uint64(seed), counts.size, until))
    return total + count_catch_ups(table, np.uint64(seed), graph.offsets, graph.neighbors, -1, until)


@njit
def _have_appeared(table, seed, n_agents, until):
    appeared = np.empty(n_agents, np.int64)
    for agent in range(n_agents):
        appeared[agent] = appearance(table, seed, agent) <= until
    return appeared
