"""How many models a descent has sent along an edge, lost ones included."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flockwise.code_cache import compiled
from flockwise.engine.conditions import ConditionTable, appearance, count_catch_ups
from flockwise.method.rules import Descent


def vectors_sent(
    descent: Descent, table: ConditionTable, seed: int, updates: NDArray[np.int64], until: int
) -> int:
    """One vector per update and neighbor, the first broadcasts and the models handed to returning agents."""
    edges, ids = descent.edges, descent.ids
    total = int(updates @ edges.counts)
    if not descent.start_is_public:
        total += int(edges.counts @ _have_appeared(table, np.uint64(seed), ids, until))
    return total + count_catch_ups(table, np.uint64(seed), ids, edges.offsets, edges.neighbors, -1, until)


@compiled()
def _have_appeared(table, seed, ids, until):
    appeared = np.empty(ids.shape[0], np.int64)
    for position in range(ids.shape[0]):
        appeared[position] = appearance(table, seed, ids[position]) <= until
    return appeared
