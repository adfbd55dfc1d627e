"""Small random problems that many tests share."""

from __future__ import annotations

import numpy as np

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.objective import Huber, Logistic, Problem, Quadratic, Softmax

LOSSES = (Logistic(), Quadratic(), Huber(0.7), Softmax(3))


def random_targets(random, loss, count):
    """Targets that the loss accepts."""
    if isinstance(loss, Logistic):
        return random.choice([-1.0, 1.0], count)
    if isinstance(loss, Softmax):
        return random.integers(0, loss.classes, count).astype(float)
    return random.normal(size=count)


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
    loss=LOSSES[0],
    density=0.4,
    max_samples=8,
    tradeoff=0.7,
    dtype: type = float,
):
    """Agents with 0 to max_samples samples on a random weighted graph."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, max_samples + 1, n_agents)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    features = random.normal(size=(offsets[-1], n_features)).astype(dtype)
    targets = random_targets(random, loss, offsets[-1]).astype(dtype)
    edges = np.argwhere(np.triu(weights := random_weights(random, n_agents, density)) > 0)
    graph = SimilarityGraph.from_edges(n_agents, edges, weights[edges[:, 0], edges[:, 1]])
    return Problem(Population.packed(features, targets, offsets), graph, loss, tradeoff=tradeoff)
