"""A part of a large network that stands for the whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flockwise.graph import SimilarityGraph
from flockwise.method import PublicFacts

LARGEST = 400
SEED = 1_000_000


def graph_of(facts: PublicFacts) -> SimilarityGraph:
    """The graph, or one without edges where there is none."""
    if facts.graph is not None:
        return facts.graph
    return SimilarityGraph.from_edges(facts.n_agents, np.empty((0, 2), np.int64), source="random")


def agents_to_simulate(facts: PublicFacts) -> NDArray[np.int64]:
    """Everyone, or 400 agents around a random one, so most neighbors of each are among them.

    Of those outside the one with the largest weights to those inside joins next. A network of 400
    smooths less noise away than a larger one, so a plan made with it promises too little.
    """
    graph = graph_of(facts)
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
