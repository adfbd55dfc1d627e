"""Matrices and edge lists → sorted CSR in which every entry occurs once and no zero is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from flockwise.errors import GraphError
from flockwise.graph.invariants import LARGEST_INT32


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
    kept, conflict = _distinct(rows.astype(np.int64) * coo.shape[0] + columns, coo.data)
    if conflict is not None:
        one, other = conflict
        raise GraphError(
            f"agents {rows[one]} and {columns[one]} have two weights, "
            f"{float(coo.data[one])} and {float(coo.data[other])}; keep one"
        )
    return sparse.coo_array((coo.data[kept], (rows[kept], columns[kept])), shape=coo.shape).tocsr()


@dataclass(frozen=True)
class EdgeList:
    """Checked undirected edges first < second, with a weight each; duplicates may remain."""

    n_agents: int
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    weights: NDArray[np.float64]
    agent_names: Sequence[str] | None

    @classmethod
    def checked(
        cls, n_agents: int, edges: ArrayLike, weights: ArrayLike | None, agent_names: Sequence[str] | None
    ) -> EdgeList:
        pairs = np.asarray(edges)
        if pairs.size == 0:
            pairs = np.empty((0, 2), dtype=np.int64)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise GraphError(f"edges must be integers of shape (k, 2), got {pairs.dtype} of {pairs.shape}")
        values = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
        if values.shape != (len(pairs),):
            raise GraphError(f"{len(pairs)} edges need as many weights, got an array of shape {values.shape}")
        _check_agents(n_agents, pairs)
        low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
        edge_list = cls(n_agents, low.astype(np.int32), high.astype(np.int32), values, agent_names)
        edge_list._check()
        return edge_list

    def _check(self) -> None:
        loops = self.first == self.second
        if loops.any():
            raise GraphError(f"{self._where(loops)}: an agent cannot be its own neighbor; remove the row")
        bad = ~(np.isfinite(self.weights) & (self.weights >= 0))
        if bad.any():
            value = float(self.weights[np.argmax(bad)])
            raise GraphError(f"{self._where(bad)}: weight {value} must be finite and not negative")

    def upper_triangle(self) -> sparse.csr_array:
        """Each edge once, agent after agent, neighbors ascending, zeros dropped."""
        kept, conflict = _distinct(self.first * np.int64(self.n_agents) + self.second, self.weights)
        if conflict is not None:
            row, other = sorted(conflict)
            raise GraphError(
                f"rows {row + 1} and {other + 1} give {self._pair(row)} two weights, "
                f"{float(self.weights[row])} and {float(self.weights[other])}; keep one"
            )
        kept = kept[self.weights[kept] > 0]
        offsets = np.zeros(self.n_agents + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.first[kept], minlength=self.n_agents), out=offsets[1:])
        entries = (self.weights[kept], self.second[kept], offsets)
        return sparse.csr_array(entries, shape=(self.n_agents,) * 2)

    def _where(self, bad: NDArray[np.bool_]) -> str:
        row = int(np.argmax(bad))
        return f"row {row + 1}, {self._pair(row)}"

    def _pair(self, row: int) -> str:
        one, other = (agent_label(self.agent_names, ends[row]) for ends in (self.first, self.second))
        return f"agents {one} and {other}"


def _check_agents(n_agents: int, agents: NDArray[Any]) -> None:
    """Every agent index is in 0 … n−1; `agents` has one row per edge."""
    if not 1 <= n_agents <= LARGEST_INT32:
        raise GraphError(f"a graph has between 1 and {LARGEST_INT32} agents, got {n_agents}")
    if agents.size and (agents.min() < 0 or agents.max() >= n_agents):
        row = int(np.argmax(((agents < 0) | (agents >= n_agents)).any(axis=1)))
        raise GraphError(
            f"row {row + 1}, edge {agents[row].tolist()}: agents are numbered 0 to {n_agents - 1}"
        )


def _distinct(
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
