"""The benchmark problem: random data of 10 to 100 samples per agent on a random graph, float32."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from flockwise.data import Population
from flockwise.graph import SimilarityGraph, random_graph
from flockwise.graph.neighbors import nearest
from flockwise.objective import Logistic, Objective, Problem

CHUNK_ROWS = 1 << 16
# A graph of nearest neighbors is made for so many agents, and repeated.
KNN_AGENTS = 20_000
KNN_COORDINATES = 20


def benchmark_problem(agents: int, dimension: int, degree: int, seed: int = 0) -> Problem:
    """Built in place and piece by piece, so that little more than the data itself is ever in memory."""
    random = np.random.default_rng(seed)
    offsets = np.zeros(agents + 1, np.int64)
    np.cumsum(random.integers(10, 101, agents), out=offsets[1:])
    features = np.empty((offsets[-1], dimension), np.float32)

    def fill(start: int) -> None:
        rows = features[start : start + CHUNK_ROWS]
        np.random.default_rng([seed, start]).random(dtype=np.float32, out=rows)
        rows *= 2
        rows -= 1

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, len(features), CHUNK_ROWS)))
    targets = random.integers(0, 2, offsets[-1], dtype=np.int8).astype(np.float32)
    targets *= 2
    targets -= 1
    population = Population.packed(features, targets, offsets)
    graph = random_graph(agents, degree, seed)
    # The public bound spares one eigenvalue problem per agent; the updates cost the same.
    return Problem(population, graph, Objective(Logistic(), feature_bound=math.sqrt(dimension)))


def knn_graph(agents: int, neighbors: int, seed: int = 0) -> SimilarityGraph:
    """Nearest neighbors of normal points in many coordinates, some of whom are near to very many others."""
    points = np.random.default_rng(seed).normal(size=(min(agents, KNN_AGENTS), KNN_COORDINATES))
    ends = nearest(points, neighbors).astype(np.int64)
    one = np.column_stack([np.repeat(np.arange(len(points)), neighbors), ends.ravel()])
    one = np.unique(np.sort(one, axis=1), axis=0)
    copies = np.arange(-(-agents // len(points)))[:, None, None] * len(points)
    edges = (one + copies).reshape(-1, 2)
    return SimilarityGraph.from_edges(agents, edges[edges.max(axis=1) < agents])
