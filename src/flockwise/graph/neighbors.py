"""Exact k nearest neighbors; equally near ones are taken in the order of their index.

Both metrics are one search: the cosine grows exactly as the distance between unit vectors falls.
A matrix product or a k-d tree finds the neighbors fast but rounds in its own way; wherever the
k-th and the next neighbor are too close to tell apart, distances computed coordinate after
coordinate decide. So the result depends neither on the BLAS library nor on the number of threads.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from flockwise.code_cache import compiled
from flockwise.errors import GraphError

# Up to this many coordinates a k-d tree was faster than the matrix product, for 10 k and 50 k normal vectors.
MOST_TREE_COORDINATES = 10
LARGEST_COORDINATE = 1e150  # squares of larger ones would leave float64's range
SCORES_PER_BLOCK = 1 << 23  # 64 MB of float64

Floats: TypeAlias = NDArray[np.float64]
Agents: TypeAlias = NDArray[np.int32]


def nearest(points: Floats, k: int) -> Agents:
    """The k nearest other rows of each row in Euclidean distance, (n, k), nearest first."""
    largest = float(np.abs(points).max())
    if largest > LARGEST_COORDINATE:
        raise GraphError(f"a coordinate of size {largest:.3g} is too large to compute distances; rescale")
    # A coordinate that is 0 for everyone changes no distance, and fewer of them may allow a tree.
    matters = np.flatnonzero(points.any(axis=0))
    points = np.ascontiguousarray(points[:, matters if matters.size else [0]])
    if points.shape[1] <= MOST_TREE_COORDINATES:
        return _nearest_by_tree(points, k)
    return _nearest_by_product(points, np.arange(len(points)), k)


def nearest_rows(rows: Any, k: int) -> Agents:
    """`nearest` for the rows of a SciPy CSR array, from −‖x − y‖²/2 + ‖x‖²/2 = x·y − ‖y‖²/2.

    SciPy's product adds up coordinate after coordinate, so its rounding is the same everywhere.
    """
    transposed = rows.T.tocsr()
    half_squares = rows.power(2).sum(axis=1) / 2
    found = np.empty((rows.shape[0], k), dtype=np.int32)
    for block in _blocks(rows.shape[0], rows.shape[0]):
        scores = (rows[block] @ transposed).toarray() - half_squares
        _best_of_block(scores, block.start, found[block])
    return found


def _nearest_by_tree(points: Floats, k: int) -> Agents:
    from scipy.spatial import KDTree  # slow to import, and no business of a real agent

    n_agents = len(points)
    listed = min(k + 2, n_agents)  # the agent itself, its neighbors, and the first one left out
    distances, order = map(np.asarray, KDTree(points).query(points, k=listed, workers=-1))
    own = order == np.arange(n_agents)[:, None]
    # More than k copies of a vector may hide the agent itself; then all listed distances are 0: a tie.
    own[~own.any(axis=1), 0] = True
    others = order[~own].reshape(n_agents, listed - 1)
    apart = distances[~own].reshape(n_agents, listed - 1)
    found = others[:, :k].astype(np.int32)
    # Ties among the k chosen do not matter to a graph: only those at the boundary do.
    if listed > k + 1:
        tied = np.flatnonzero(apart[:, k] - apart[:, k - 1] <= 1e-12 * apart[:, k])
        if len(tied):
            found[tied] = _nearest_by_product(points, tied, k)
    return found


def _nearest_by_product(points: Floats, agents: NDArray[np.int64], k: int) -> Agents:
    """Neighbors of some agents among all points, in blocks of x·y − ‖y‖²/2 from one matrix product each."""
    # Centered: a common offset would drown the differences in rounding.
    centered = points - points.mean(axis=0)
    squares = np.einsum("ij,ij->i", centered, centered)
    keys = np.column_stack([centered, -squares / 2]).T
    queries = np.column_stack([centered, np.ones(len(points))])
    # No less than the rounding of two such scores and of the two distances that would decide.
    slack = 8 * (points.shape[1] + 2) * np.finfo(np.float64).eps * float(squares.max())
    found = np.empty((len(agents), k), dtype=np.int32)
    blocks = _blocks(len(agents), len(points))
    # One buffer for all blocks: fresh memory costs as much time as the product itself.
    buffer = np.empty((blocks[0].stop, len(points)))
    for block in blocks:
        asking = agents[block]
        scores = np.matmul(queries[asking], keys, out=buffer[: len(asking)])
        _nearest_of_block(scores, slack, asking, points, found[block])
    return found


def _blocks(n_rows: int, n_columns: int) -> list[slice]:
    size = max(1, SCORES_PER_BLOCK // n_columns)
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


@njit
def _insert(best: Floats, ids: Agents, score: float, index: int) -> None:
    """Insert into a list in falling order, after its equals, and drop the last."""
    place = len(best) - 1
    while place > 0 and best[place - 1] < score:
        best[place], ids[place] = best[place - 1], ids[place - 1]
        place -= 1
    best[place], ids[place] = score, index


@njit
def _best(scores: Floats, own: int, best: Floats, ids: Agents) -> None:
    """The highest scores but the agent's own, the lower index first among equals."""
    best[:] = -np.inf
    last = len(best) - 1
    worst = -np.inf
    for index in range(len(scores)):
        if scores[index] > worst and index != own:
            _insert(best, ids, scores[index], index)
            worst = best[last]


@njit
def _nearest_candidates(
    scores: Floats, cutoff: float, own: int, points: Floats, best: Floats, ids: Agents
) -> None:
    """The nearest by exact distance among all whose score reaches the cutoff."""
    best[:] = -np.inf
    last = len(best) - 1
    for index in range(len(scores)):
        if scores[index] >= cutoff and index != own:
            square = 0.0
            for coordinate in range(points.shape[1]):
                difference = points[own, coordinate] - points[index, coordinate]
                square += difference * difference
            if -square > best[last]:
                _insert(best, ids, -square, index)


@compiled(parallel=True)
def _best_of_block(scores: Floats, first: int, found: Agents) -> None:
    k = found.shape[1]
    for row in prange(len(scores)):
        _best(scores[row], first + row, np.empty(k), found[row])


@compiled(parallel=True)
def _nearest_of_block(
    scores: Floats, slack: float, agents: NDArray[np.int64], points: Floats, found: Agents
) -> None:
    k = found.shape[1]
    for row in prange(len(scores)):
        # One more than wanted: its score tells whether the boundary is clear.
        best, ids = np.empty(k + 1), np.empty(k + 1, dtype=np.int32)
        _best(scores[row], agents[row], best, ids)
        if best[k - 1] - best[k] > slack:
            found[row] = ids[:k]
        else:
            cutoff = float(best[k - 1]) - slack
            _nearest_candidates(scores[row], cutoff, agents[row], points, best[:k], found[row])
