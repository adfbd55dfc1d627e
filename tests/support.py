"""Small random problems that many tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from flockwise.data import Population
from flockwise.graph import GraphSource, SimilarityGraph
from flockwise.objective import LOSSES as REGISTERED
from flockwise.objective import Logistic, Objective, Problem

# Of losses that need parameters, or whose default ones would show little.
PARAMETERS: dict[str, dict[str, Any]] = {"softmax": {"classes": 3}, "huber": {"width": 0.7}}
# Every registered loss: what is tested for these holds for a new one, too.
LOSSES: tuple[Any, ...] = tuple(kind(**PARAMETERS.get(kind.name, {})) for kind in REGISTERED)
# Edges that tell nothing of anybody's samples.
PUBLIC = GraphSource("edges", private=False)


def named(part):
    """What a test's name calls a loss, a statistic or a method."""
    return type(part).__name__


def random_targets(random, loss, count, spread=1.0):
    """Targets that the loss accepts; numbers have this standard deviation."""
    if loss.metric == "rmse":
        return random.normal(scale=spread, size=count)
    if loss.outputs == 1:
        return random.choice([-1.0, 1.0], count)
    return random.integers(0, loss.outputs, count).astype(float)


def random_weights(random, n_agents, density):
    """A symmetric weight matrix; agents may be isolated."""
    weights = np.triu(random.uniform(0.1, 2.0, (n_agents, n_agents)), 1)
    weights *= random.random((n_agents, n_agents)) < density
    return weights + weights.T


def random_problem(
    seed,
    *,
    n_agents=12,
    n_features=3,
    loss: Any = Logistic(),
    density=0.4,
    max_samples=8,
    tradeoff=0.7,
    dtype: type = float,
    source: Any = PUBLIC,
    **objective: Any,
):
    """Agents with 0 to max_samples samples on a random weighted graph; `objective`: more settings of it."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, max_samples + 1, n_agents)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    features = random.normal(size=(offsets[-1], n_features)).astype(dtype)
    targets = random_targets(random, loss, offsets[-1]).astype(dtype)
    edges = np.argwhere(np.triu(weights := random_weights(random, n_agents, density)) > 0)
    graph = SimilarityGraph.from_edges(n_agents, edges, weights[edges[:, 0], edges[:, 1]], source=source)
    population = Population.packed(features, targets, offsets)
    return Problem(population, graph, Objective(loss, tradeoff=tradeoff, **objective))
