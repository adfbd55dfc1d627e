"""Nearly exact k nearest neighbors of millions of vectors, by faiss, which looks into a few cells for each.

How many cells to look into is found by measuring: of a sample, the neighbors found are compared with an exact
search, and more cells are taken until enough of them agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import GraphError, MissingExtra

CELLS_PER_ROOT = 4  # times the root of the number of vectors
# Of the vectors by which faiss places the cells, and of those by which the recall is measured.
POINTS_PER_CELL = 50
SAMPLE = 500
FIRST_PROBES = 4
ROWS_AT_ONCE = 1 << 15


def nearest_nearly(points: NDArray[np.float64], k: int, recall: float) -> NDArray[np.int32]:
    """The k nearest other rows of each row, (n, k), of which about this share is right."""
    if not 0 < recall < 1:
        raise GraphError(f"recall must lie between 0 and 1, got {recall}; leave it out for an exact search")
    faiss = _import_faiss()
    n_agents = len(points)
    vectors = np.ascontiguousarray(points - points.mean(axis=0), np.float32)
    index = _filled_index(faiss, vectors)
    sample = np.random.default_rng(0).choice(n_agents, min(SAMPLE, n_agents), replace=False)
    exact = faiss.IndexFlatL2(vectors.shape[1])
    exact.add(vectors)
    true = _without_self(exact.search(vectors[sample], k + 1)[1], sample, k)
    index.nprobe = FIRST_PROBES
    while index.nprobe < index.nlist:
        found = _without_self(index.search(vectors[sample], k + 1)[1], sample, k)
        if share_found(found, true) >= recall:
            break
        index.nprobe = min(2 * index.nprobe, index.nlist)
    near = np.empty((n_agents, k), np.int32)
    for start in range(0, n_agents, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, n_agents))
        near[rows] = _without_self(index.search(vectors[rows], k + 1)[1], rows, k)
    return near


def share_found(found: NDArray[Any], true: NDArray[Any]) -> float:
    """The share of the true neighbors that were found."""
    return float(np.mean([np.isin(own, other).mean() for own, other in zip(true, found, strict=True)]))


def _filled_index(faiss: Any, vectors: NDArray[np.float32]) -> Any:
    size = vectors.shape[1]
    cells = max(1, min(int(CELLS_PER_ROOT * len(vectors) ** 0.5), len(vectors) // POINTS_PER_CELL))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(size), size, cells)
    index.cp.seed, index.cp.max_points_per_centroid = 1, POINTS_PER_CELL
    index.cp.min_points_per_centroid = 1
    index.train(vectors)
    index.add(vectors)
    return index


def _without_self(found: NDArray[np.int64], rows: NDArray[np.int64], k: int) -> NDArray[np.int32]:
    """The first k of k + 1 neighbors that are there and not the row itself.

    Where a cell has too few, the row stands for what is missing: no edge comes of it.
    """
    is_other = (found != rows[:, None]) & (found >= 0)
    order = np.argsort(~is_other, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(found, order, axis=1)
    return np.where(np.take_along_axis(is_other, order, axis=1), chosen, rows[:, None]).astype(np.int32)


def _import_faiss() -> Any:
    try:
        import faiss  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingExtra("knn_graph(recall=...)", "graphs") from error
    return faiss
