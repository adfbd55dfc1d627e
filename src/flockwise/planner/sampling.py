"""A part of a large network that stands for the whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flockwise.graph import SimilarityGraph

LARGEST = 400
SEED = 1_000_000


def agents_to_simulate(graph: SimilarityGraph) -> NDArray[np.int64]:
    """Everyone, or 400 agents around a random one, so that most neighbors of each are among them.

    Of those outside the one with the largest weights to those inside joins next. A network of 400
    smooths less noise away than a larger one, so that a plan made with it promises too little.
    """
    if graph.n_agents <= LARGEST:
        return np.arange(graph.n_agents)
    links = np.zeros(graph.n_agents)
    agent = int(np.random.default_rng(SEED).integers(graph.n_agents))
    inside: list[int] = []
    while len(inside) < LARGEST:
        inside.append(agent)
        neighbors, weights = graph.neighbors_of(agent)
        links[neighbors] += weights
        links[inside] = -1.0
        agent = int(np.argmax(links))
    return np.sort(np.array(inside))
