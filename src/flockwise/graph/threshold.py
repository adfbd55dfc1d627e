"""The largest threshold that keeps a graph connected: the weakest edge of its maximum spanning tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph


def connecting_cosine(unit: NDArray[np.float64]) -> tuple[float, float]:
    """The smallest cosine on the maximum spanning tree of all pairs, and how far off it may be.

    Prim's algorithm on the complete graph, which is never stored: O(n² · coordinates) time, O(n)
    memory beside a copy of the vectors. They are read n/2 times over, so they are kept in float32:
    a spanning tree's weakest edge moves no further than the cosines do.
    """
    outside = unit.astype(np.float32)  # the first `left` rows are the agents not yet in the tree
    closest = np.full(len(unit), -np.inf, dtype=np.float32)  # their largest cosine to an agent in it
    weakest, joining = 1.0, 0
    for left in range(len(unit) - 1, 0, -1):
        joined = outside[joining].copy()
        outside[joining], closest[joining] = outside[left], closest[left]
        np.maximum(closest[:left], outside[:left] @ joined, out=closest[:left])
        joining = int(np.argmax(closest[:left]))
        weakest = min(weakest, float(closest[joining]))
    return weakest, 2 * (unit.shape[1] + 2) * float(np.finfo(np.float32).eps)


def connecting_weight(upper: sparse.csr_array) -> float:
    """The smallest weight on the maximum spanning tree of a connected graph, exactly."""
    return float(-csgraph.minimum_spanning_tree(-upper).data.max())
