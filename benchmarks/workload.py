"""The benchmark problem: random data of 10 to 100 samples per agent on a random graph, float32."""

from __future__ import annotations

import math

import numpy as np

from flockwise.data import Population
from flockwise.graph import random_graph
from flockwise.objective import Logistic, Objective, Problem

CHUNK_ROWS = 1 << 16


def benchmark_problem(agents: int, dimension: int, degree: int, seed: int = 0) -> Problem:
    """Built in place and piece by piece, so that little more than the data itself is ever in memory."""
    random = np.random.default_rng(seed)
    offsets = np.zeros(agents + 1, np.int64)
    np.cumsum(random.integers(10, 101, agents), out=offsets[1:])
    features = np.empty((offsets[-1], dimension), np.float32)
    for start in range(0, len(features), CHUNK_ROWS):
        rows = features[start : start + CHUNK_ROWS]
        random.random(dtype=np.float32, out=rows)
        rows *= 2
        rows -= 1
    targets = random.integers(0, 2, offsets[-1], dtype=np.int8).astype(np.float32) * 2 - 1
    population = Population.packed(features, targets, offsets)
    graph = random_graph(agents, degree, seed)
    # The public bound spares one eigenvalue problem per agent; the updates cost the same.
    return Problem(population, graph, Objective(Logistic(), feature_bound=math.sqrt(dimension)))
