"""One vector per agent: what the graph builders accept, and unit vectors for angles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from flockwise.errors import GraphError


def dense_vectors(vectors: Any) -> NDArray[np.float64]:
    """A finite float64 array (agents, coordinates)."""
    points = np.ascontiguousarray(vectors, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape:
        raise GraphError(f"vectors have one row per agent and at least one column, got shape {points.shape}")
    finite = np.isfinite(points)
    if not finite.all():
        agent, column = (int(at) for at in np.argwhere(~finite)[0])
        raise _not_finite(agent, column, points[agent, column])
    return points


def sparse_vectors(vectors: Any) -> sparse.csr_array:
    """A finite float64 sparse array (agents, coordinates) with sorted coordinates."""
    rows = sparse.csr_array(vectors, dtype=np.float64, copy=True)
    rows.sum_duplicates()  # as SciPy means it: repeated entries of a matrix add up; also sorts
    finite = np.isfinite(rows.data)
    if not finite.all():
        at = int(np.argmin(finite))
        agent = int(np.searchsorted(rows.indptr, at, side="right")) - 1
        raise _not_finite(agent, int(rows.indices[at]), rows.data[at])
    return rows


def unit_vectors(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each vector divided by its length; a zero vector has no direction and is refused."""
    largest = np.abs(points).max(axis=1)
    _refuse_zero(largest)
    # Divided by the largest coordinate first: squares of tiny or huge ones would leave float64's range.
    scaled = points / largest[:, None]
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def unit_rows(rows: sparse.csr_array) -> sparse.csr_array:
    """`unit_vectors` for sparse rows."""
    largest = abs(rows).max(axis=1).toarray().ravel()
    _refuse_zero(largest)
    scaled = sparse.csr_array(sparse.diags_array(1 / largest) @ rows)
    lengths = np.sqrt(scaled.power(2).sum(axis=1))
    return sparse.csr_array(sparse.diags_array(1 / lengths) @ scaled)


def _refuse_zero(largest: NDArray[np.float64]) -> None:
    if not largest.all():
        raise GraphError(
            f"agent {int(np.argmin(largest != 0))}: its vector is zero and has no direction; "
            "give it a value, leave the agent out, or use Euclidean distances"
        )


def _not_finite(agent: int, column: int, value: float) -> GraphError:
    return GraphError(f"agent {agent}, column {column}: value {float(value)} is not finite; replace it")
