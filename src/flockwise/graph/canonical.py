"""The form in which a graph is stored, its checks, and how matrices and edge lists are brought into it.

Sorted CSR: every entry occurs once, both ways alike, and no zero is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from flockwise.errors import GraphError

LARGEST_INT32 = np.iinfo(np.int32).max
ENTRIES_AT_ONCE = 1 << 21


def agent_blocks(offsets: NDArray[np.int64]) -> Iterator[slice]:
    """All agents in order, in blocks whose rows have no more than so many entries, or a single agent."""
    first, n_agents = 0, len(offsets) - 1
    while first < n_agents:
        fitting = int(np.searchsorted(offsets, int(offsets[first]) + ENTRIES_AT_ONCE, side="right")) - 1
        last = min(max(fitting, first + 1), n_agents)
        yield slice(first, last)
        first = last


def owners_of(offsets: NDArray[np.int64], agents: slice) -> NDArray[np.int32]:
    """Whose row each entry of these agents belongs to."""
    counts = np.diff(offsets[agents.start : agents.stop + 1])
    return np.repeat(np.arange(agents.start, agents.stop, dtype=np.int32), counts)


def entries_of(offsets: NDArray[np.int64], agents: slice) -> slice:
    """Where the rows of these agents stand."""
    return slice(int(offsets[agents.start]), int(offsets[agents.stop]))


def mirrored(upper: sparse.csr_array) -> sparse.csr_array:
    """The symmetric matrix with this strict upper triangle, whose indices must be sorted."""
    return upper + upper.T.tocsr()


def canonical_matrix(matrix: Any) -> sparse.csr_array:
    """A fresh CSR copy with sorted neighbors, every entry once and no stored zero."""
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"a similarity matrix is square, got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"similarity weights are real numbers, got {matrix.dtype}")
    if sparse.issparse(matrix) and matrix.format == "csr" and matrix.has_canonical_format:
        csr = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    else:
        csr = _deduplicated(sparse.coo_array(matrix, dtype=np.float64))
    csr.eliminate_zeros()
    return csr


def _deduplicated(coo: Any) -> sparse.csr_array:
    """CSR in which repeated entries count once; SciPy itself would add them up."""
    csr = coo.tocsr()
    if csr.nnz == coo.nnz:
        return csr
    rows, columns = coo.coords
    kept, conflict = distinct_entries(rows.astype(np.int64) * coo.shape[0] + columns, coo.data)
    if conflict is not None:
        one, other = conflict
        raise GraphError(
            f"agents {rows[one]} and {columns[one]} have two weights, "
            f"{float(coo.data[one])} and {float(coo.data[other])}; keep one"
        )
    return sparse.coo_array((coo.data[kept], (rows[kept], columns[kept])), shape=coo.shape).tocsr()


def upper_triangle(
    n_agents: int, edges: ArrayLike, weights: ArrayLike | None, agent_names: Sequence[str] | None
) -> sparse.csr_array:
    """Undirected edges, each once, agent after agent, with ascending neighbors; zeros are dropped."""
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise GraphError(f"edges must be integers of shape (k, 2), got {pairs.dtype} of {pairs.shape}")
    values = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
    if values.shape != (len(pairs),):
        raise GraphError(f"{len(pairs)} edges need as many weights, got an array of shape {values.shape}")
    first, second = checked_edges(n_agents, pairs, values, agent_names)
    kept, conflict = distinct_entries(first * np.int64(n_agents) + second, values)
    if conflict is not None:
        row, other = conflict
        ends, two = (first[row], second[row]), (values[row], values[other])
        raise two_weights((row, other), ends, two, agent_names)
    kept = kept[values[kept] > 0]
    offsets = np.zeros(n_agents + 1, dtype=np.int64)
    np.cumsum(np.bincount(first[kept], minlength=n_agents), out=offsets[1:])
    return sparse.csr_array((values[kept], second[kept], offsets), shape=(n_agents, n_agents))


def checked_edges(
    n_agents: int,
    pairs: NDArray[Any],
    weights: NDArray[np.float64],
    agent_names: Sequence[str] | None,
    before: int = 0,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The lower and the higher end of each edge. before: rows ahead of these, for messages."""
    _check_agents(n_agents, pairs)
    one, other = pairs.T
    first, second = np.minimum(one, other).astype(np.int32), np.maximum(one, other).astype(np.int32)

    def place(row: int) -> str:
        return f"row {before + row + 1}, agents {_pair((first[row], second[row]), agent_names)}"

    loops = first == second
    if loops.any():
        row = int(np.argmax(loops))
        raise GraphError(f"{place(row)}: an agent cannot be its own neighbor; remove the row")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise GraphError(f"{place(row)}: weight {float(weights[row])} must be finite and not negative")
    return first, second


def two_weights(
    rows: tuple[int, int],
    ends: tuple[int, int],
    weights: tuple[float, float],
    agent_names: Sequence[str] | None,
) -> GraphError:
    """Two rows of an edge list that disagree about an edge."""
    one, other = rows
    return GraphError(
        f"rows {one + 1} and {other + 1} give agents {_pair(ends, agent_names)} two weights, "
        f"{float(weights[0])} and {float(weights[1])}; keep one"
    )


def _pair(ends: tuple[int, int], agent_names: Sequence[str] | None) -> str:
    return " and ".join(agent_label(agent_names, end) for end in ends)


def _check_agents(n_agents: int, agents: NDArray[Any]) -> None:
    """Every agent index is in 0 … n−1; `agents` has one row per edge."""
    if not 1 <= n_agents <= LARGEST_INT32:
        raise GraphError(f"a graph has between 1 and {LARGEST_INT32} agents, got {n_agents}")
    if agents.size and (agents.min() < 0 or agents.max() >= n_agents):
        row = int(np.argmax(((agents < 0) | (agents >= n_agents)).any(axis=1)))
        raise GraphError(
            f"row {row + 1}, edge {agents[row].tolist()}: agents are numbered 0 to {n_agents - 1}"
        )


def distinct_entries(
    keys: NDArray[np.int64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.int64], tuple[int, int] | None]:
    """Positions of one entry per key in ascending key order, and two entries that disagree, if any."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    fresh = np.ones(len(order), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    repeats = np.flatnonzero(~fresh)
    clash = weights[order[repeats]] != weights[order[repeats - 1]]
    if clash.any():
        at = repeats[np.argmax(clash)]
        return order, (int(order[at - 1]), int(order[at]))
    return order[fresh], None


def agent_label(agent_names: Sequence[str] | None, agent: Any) -> str:
    return str(agent) if agent_names is None else repr(agent_names[int(agent)])


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
    for block in agent_blocks(offsets):
        entries = entries_of(offsets, block)
        _check_rows(owners_of(offsets, block), neighbors[entries], weights[entries])


def _check_rows(agents: NDArray[np.int32], neighbors: NDArray[Any], weights: NDArray[Any]) -> None:
    """Entries of whole rows; agents: whose they are."""
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
