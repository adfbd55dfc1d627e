"""What must hold for the arrays of a SimilarityGraph, and the words in which a bad graph is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from flockwise.errors import GraphError

LARGEST_INT32 = np.iinfo(np.int32).max


def check_layout(offsets: NDArray[Any], neighbors: NDArray[Any], weights: NDArray[Any]) -> None:
    """Shapes and ranges: what must hold before any entry can be read."""
    if not offsets.ndim == neighbors.ndim == weights.ndim == 1:
        raise GraphError("offsets, neighbors and weights must be one-dimensional")
    if offsets.dtype.kind not in "iu" or neighbors.dtype.kind not in "iu":
        raise GraphError(f"offsets and neighbors are integers, got {offsets.dtype} and {neighbors.dtype}")
    if not 2 <= len(offsets) <= LARGEST_INT32:
        raise GraphError(f"a graph has at least one agent, got {len(offsets)} offsets")
    if offsets[0] != 0 or offsets[-1] != len(neighbors) or (offsets[1:] < offsets[:-1]).any():
        raise GraphError(f"offsets must rise from 0 to the number of neighbors, {len(neighbors)}")
    if len(weights) != len(neighbors):
        raise GraphError(f"{len(neighbors)} neighbors need as many weights, got {len(weights)}")
    if len(neighbors) and (neighbors.min() < 0 or neighbors.max() >= len(offsets) - 1):
        raise GraphError(f"neighbors are numbered 0 to {len(offsets) - 2}")


def check_entries(offsets: NDArray[Any], neighbors: NDArray[Any], weights: NDArray[Any]) -> None:
    """Weights positive and finite, no self-loop, neighbors ascending."""
    agents = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise GraphError(
            f"agents {agents[at]} and {neighbors[at]}: weight {float(weights[at])} must be finite and "
            "positive; leave out pairs that are not neighbors"
        )
    loops = agents == neighbors
    if loops.any():
        at = int(np.argmax(loops))
        raise GraphError(
            f"agent {agents[at]} has a self-loop of weight {float(weights[at])}; clear the diagonal"
        )
    # Compared only within an agent: from one agent to the next the neighbors may fall.
    falls = (neighbors[1:] <= neighbors[:-1]) & (agents[1:] == agents[:-1])
    if falls.any():
        raise GraphError(f"agent {agents[np.argmax(falls)]}: neighbors must be ascending, each once")


def check_symmetry(csr: sparse.csr_array) -> None:
    """W_ij = W_ji exactly: column by column the arrays must be the same as row by row."""
    columns = csr.tocsc()
    if all(
        np.array_equal(getattr(csr, part), getattr(columns, part)) for part in ("indptr", "indices", "data")
    ):
        return
    difference = sparse.coo_array(csr - csr.T.tocsr())
    agent, neighbor = (int(ends[0]) for ends in difference.coords)
    raise GraphError(
        f"agents {agent} and {neighbor}: weight {float(csr[agent, neighbor])} one way and "
        f"{float(csr[neighbor, agent])} the other; make it symmetric, for instance with "
        "from_scipy(matrix, symmetrize='mean')"
    )
