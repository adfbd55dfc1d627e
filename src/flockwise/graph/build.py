"""Similarity graphs from vectors: the angular kernel and k nearest neighbors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from flockwise.data.rows import named_rows
from flockwise.errors import FlockwiseWarning, GraphError
from flockwise.graph.approximate import nearest_nearly
from flockwise.graph.neighbors import nearest, nearest_rows
from flockwise.graph.similarity import SimilarityGraph, mirrored
from flockwise.graph.source import GraphSource, SourceKind, as_source
from flockwise.privacy.tracked import origin_of

Metric: TypeAlias = Literal["cosine", "euclidean"]
EdgeWeights: TypeAlias = Literal["binary", "angular"]

WEIGHTS_PER_BLOCK = 1 << 22  # 32 MB of float64


def angular_graph(
    vectors: Any,
    *,
    gamma: float = 0.1,
    threshold: float | Literal["connected"] = 0.01,
    source: GraphSource | SourceKind = "vectors",
    agent_names: Sequence[str] | None = None,
) -> SimilarityGraph:
    """W_ij = exp((cos φ_ij − 1)/γ), φ_ij the angle between the vectors of agents i and j.

    A number as `threshold` drops all weights below it; 0 keeps every pair. "connected" takes the
    largest threshold that leaves the graph connected: it costs O(n²) time as the others do, but
    one vector after the other (about 5 s for 10 000 agents × 100). Memory is bounded by the edges kept.
    `source` says what the vectors are ("models", "targets", …); unsaid, their origin is unknown, unless they
    are the models of a run, which know it. `agent_names`, the index of a data frame, an exported table or the
    models of a run say whose vectors they are; a population whose agents have names needs it.
    """
    rows = named_rows(vectors, agent_names)
    unit = unit_vectors(dense_vectors(rows.numbers))
    _check_gamma(gamma)
    rule = f"threshold {threshold}"
    if threshold == "connected":
        upper = _connected_triangle(unit, gamma)
        rule = f"largest threshold that keeps it connected, {upper.data.min(initial=np.inf):.4g}"
    elif isinstance(threshold, str) or not 0 <= threshold <= 1:
        raise GraphError(f"threshold must be 'connected' or between 0 and 1, got {threshold!r}")
    else:
        upper = _angular_triangle(unit, gamma, threshold)
    found = as_source(source, f"angular kernel, gamma {gamma}, {rule}", origin_of(vectors))
    return SimilarityGraph.from_canonical(mirrored(upper), found, rows.agent_names)


def knn_graph(
    vectors: Any,
    k: int = 10,
    *,
    metric: Metric = "cosine",
    weights: EdgeWeights = "binary",
    gamma: float = 0.1,
    recall: float | None = None,
    source: GraphSource | SourceKind = "vectors",
    agent_names: Sequence[str] | None = None,
) -> SimilarityGraph:
    """Two agents are neighbors if either is among the k nearest of the other; exact without `recall`.

    vectors: one row per agent, dense or SciPy sparse (a ratings matrix); whose they are, as for the angular
        kernel.
    recall: the share of nearest neighbors that has to be found, such as 0.95: for dense vectors of a million
        agents, by the extra "graphs". It is measured against an exact search for some of them.
    weights: 1 ("binary") or the angular kernel exp((cos φ − 1)/γ) of each edge ("angular").
    Of equally near agents the one with the lower index is taken. An agent whose vector is zero has no
    direction, so where directions are compared it gets no neighbors, with a warning. 100 000 agents
    × 20 coordinates took 27 s on one core; time grows with n², or more slowly with up to ten coordinates.
    """
    is_sparse = sparse.issparse(vectors)
    rows, agent_names, _ = named_rows(vectors, agent_names)
    points: Any = sparse_vectors(rows) if is_sparse else dense_vectors(rows)
    _check_choice("metric", metric, ("cosine", "euclidean"))
    _check_choice("weights", weights, ("binary", "angular"))
    _check_gamma(gamma)
    n_agents, placed, unit = points.shape[0], np.arange(points.shape[0]), points
    if metric == "cosine" or weights == "angular":
        placed = _with_direction(points, agent_names)
        points = points[placed]
    if not 1 <= k < len(placed):
        raise GraphError(f"k must be at least 1 and below the number of agents, {len(placed)}; got {k}")
    if metric == "cosine" or weights == "angular":
        unit = unit_rows(points) if is_sparse else unit_vectors(points)
    search: Any = nearest_rows if is_sparse else nearest
    if recall is not None:
        if is_sparse:
            raise GraphError("recall is for dense vectors; leave it out for a sparse matrix")
        search = partial(nearest_nearly, recall=recall)
    edges = _either_way(search(unit if metric == "cosine" else points, k))
    values = _angular_weights(_cosines(unit, edges), gamma) if weights == "angular" else None
    exactly = "" if recall is None else f", recall {recall}"
    words = f"{k} nearest neighbors, {metric}, {weights} weights{exactly}"
    found = as_source(source, words, origin_of(vectors))
    return SimilarityGraph.from_edges(n_agents, placed[edges], values, source=found, agent_names=agent_names)


def _with_direction(points: Any, agent_names: Sequence[str] | None) -> NDArray[np.int64]:
    """The agents whose vectors are not zero; a warning names the others."""
    is_zero = _largest_coordinates(points) == 0
    without = np.flatnonzero(is_zero)
    if without.size:
        names = [str(agent) if agent_names is None else repr(agent_names[agent]) for agent in without[:5]]
        more = f" and {without.size - 5} more" if without.size > 5 else ""
        warnings.warn(
            f"agent {', '.join(names)}{more}: a vector of zeros has no direction, so there are no neighbors; "
            "give it a value, leave the agent out, or use Euclidean distances",
            FlockwiseWarning,
            stacklevel=3,
        )
    return np.flatnonzero(~is_zero)


def _angular_triangle(unit: NDArray[np.float64], gamma: float, threshold: float) -> sparse.csr_array:
    """The weights of all pairs i < j that reach the threshold, a block of rows at a time."""
    n_agents = len(unit)
    size = max(1, WEIGHTS_PER_BLOCK // n_agents)
    counts, neighbors, weights = [], [], []
    for start in range(0, n_agents, size):
        block = _angular_weights(unit[start : start + size] @ unit[start:].T, gamma)
        block[:, : len(block)][np.tril_indices(len(block))] = 0  # each pair once, and no agent with itself
        kept = (block >= threshold) & (block > 0)
        counts.append(np.count_nonzero(kept, axis=1))
        neighbors.append((np.nonzero(kept)[1] + start).astype(np.int32))
        weights.append(block[kept])
    offsets = np.concatenate([[0], *counts]).cumsum()
    shape = (n_agents, n_agents)
    return sparse.csr_array((np.concatenate(weights), np.concatenate(neighbors), offsets), shape=shape)


def _connected_triangle(unit: NDArray[np.float64], gamma: float) -> sparse.csr_array:
    """The pairs that reach the largest threshold that keeps the graph connected."""
    if len(unit) == 1:
        return sparse.csr_array((1, 1))
    # The cosine is known up to rounding: a few pairs more than needed are kept at first, and the
    # exact threshold is found among their weights.
    cosine, slack = connecting_cosine(unit)
    nearly = float(_angular_weights(np.array([cosine - slack]), gamma)[0])
    if nearly == 0:
        raise GraphError(
            f"gamma {gamma}: the weights that would connect the graph are too small for a float; "
            "use a larger gamma"
        )
    upper = _angular_triangle(unit, gamma, nearly * (1 - 1e-12))
    upper.data[upper.data < connecting_weight(upper)] = 0
    upper.eliminate_zeros()
    return upper


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


def _angular_weights(cosines: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """exp((cos φ − 1)/γ), in place; rounding may leave a cosine just above 1."""
    np.minimum(cosines, 1, out=cosines)
    cosines -= 1
    cosines /= gamma
    return np.exp(cosines, out=cosines)


def _either_way(near: NDArray[np.int32]) -> NDArray[np.int64]:
    """Pairs i < j in which either has the other among its nearest, each pair once."""
    n_agents, k = near.shape
    agents = np.repeat(np.arange(n_agents), k)
    others = near.ravel().astype(np.int64)
    agents, others = agents[agents != others], others[agents != others]
    keys = np.unique(np.minimum(agents, others) * n_agents + np.maximum(agents, others))
    return np.column_stack(np.divmod(keys, n_agents))


def _cosines(unit: Any, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    def products(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        if sparse.issparse(unit):
            return unit[first].multiply(unit[second]).sum(axis=1)
        return np.einsum("ij,ij->i", unit[first], unit[second])

    size = max(1, WEIGHTS_PER_BLOCK // unit.shape[1])
    return np.concatenate([products(*edges[at : at + size].T) for at in range(0, len(edges), size)])


def _check_gamma(gamma: float) -> None:
    if not 0 < gamma < np.inf:
        raise GraphError(f"gamma must be positive and finite, got {gamma}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise GraphError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


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
    largest = _largest_coordinates(points)
    _refuse_zero(largest)
    # Divided by the largest coordinate first: squares of tiny or huge ones would leave float64's range.
    scaled = points / largest[:, None]
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def unit_rows(rows: sparse.csr_array) -> sparse.csr_array:
    """`unit_vectors` for sparse rows, none of which is zero."""
    largest = _largest_coordinates(rows)
    scaled = sparse.csr_array(sparse.diags_array(1 / largest) @ rows)
    lengths = np.sqrt(scaled.power(2).sum(axis=1))
    return sparse.csr_array(sparse.diags_array(1 / lengths) @ scaled)


def _largest_coordinates(points: Any) -> NDArray[np.float64]:
    largest = abs(points).max(axis=1)
    return largest.toarray().ravel() if sparse.issparse(points) else largest


def _refuse_zero(largest: NDArray[np.float64]) -> None:
    if not largest.all():
        raise GraphError(
            f"agent {int(np.argmin(largest != 0))}: its vector is zero and has no direction; "
            "give it a value, leave the agent out, or use Euclidean distances"
        )


def _not_finite(agent: int, column: int, value: float) -> GraphError:
    return GraphError(f"agent {agent}, column {column}: value {float(value)} is not finite; replace it")
