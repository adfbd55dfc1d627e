"""Positions of agents in a picture: agents that resemble each other are close."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist

from flockwise.graph import SimilarityGraph

# The dense eigenproblem of this many agents takes about a second, and more agents could not be told apart.
MOST_DRAWN = 2000

Positions: TypeAlias = NDArray[np.floating]


def ring_layout(targets: NDArray[np.float64]) -> Positions | None:
    """Targets that lie in a plane: each agent on a circle at the angle of its own; None if they do not."""
    _, lengths, axes = np.linalg.svd(targets, full_matrices=False)
    if len(lengths) < 2 or (lengths[2:] > 1e-8 * lengths[0]).any():
        return None
    # The plane's own axes may be any rotation or reflection; a fixed sign keeps the picture the same.
    plane = axes[:2] * np.sign(axes[:2, np.argmax(np.abs(axes[:2]), axis=1)].diagonal())[:, None]
    along, across = (targets @ plane.T).T
    angles = np.arctan2(across, along)
    # Three rings, in turn along the circle: neighbors on it would cover each other on one.
    rank = np.argsort(np.argsort(angles))
    radii = 1 + 0.09 * (rank % 3 - 1)
    return np.column_stack((radii * np.cos(angles), radii * np.sin(angles)))


def graph_layout(graph: SimilarityGraph) -> Positions:
    """Spectral positions, polished by springs; components lie beside each other, the largest first."""
    positions = np.empty((graph.n_agents, 2))
    components = graph.components
    sizes = np.bincount(components)
    corner_x = corner_y = shelf = 0.0
    width = 1.15 * np.sqrt(graph.n_agents)
    for component in np.argsort(-sizes, kind="stable"):
        agents = np.flatnonzero(components == component)
        side = np.sqrt(len(agents))
        if corner_x and corner_x + side > width:
            corner_x, corner_y, shelf = 0.0, corner_y - 1.15 * shelf, 0.0
        middle = np.array([corner_x + side / 2, corner_y - side / 2])
        positions[agents] = side * _component_layout(graph, agents) + middle
        corner_x += 1.15 * side
        shelf = max(shelf, side)
    return positions


def _component_layout(graph: SimilarityGraph, agents: NDArray[np.int64]) -> Positions:
    """Positions within [−½, ½]²."""
    if len(agents) == 1:
        return np.zeros((1, 2))
    if len(agents) == 2:
        return np.array([[-0.25, 0.0], [0.25, 0.0]])
    weights = graph.to_scipy()[agents][:, agents]
    laplacian: Any = csgraph.laplacian(weights, normed=True)
    _, vectors = np.linalg.eigh(laplacian.toarray())
    start = vectors[:, 1:3] * np.sign(vectors[np.abs(vectors[:, 1:3]).argmax(axis=0), [1, 2]])
    return _spread(_springs(_spread(start), weights.toarray() > 0))


def _springs(positions: Positions, linked: NDArray[np.bool_]) -> Positions:
    """Fruchterman and Reingold's forces from a given start: edges pull, all agents push."""
    ideal = 1 / np.sqrt(len(positions))
    # A round costs n², so large graphs get fewer; their start is as good.
    rounds = int(np.clip(60_000 // len(positions), 20, 60))
    for step in np.linspace(0.1, 0.002, rounds):
        squares = np.maximum(cdist(positions, positions, "sqeuclidean"), 1e-6)
        force = ideal**2 / squares - linked * np.sqrt(squares) / ideal
        # Σ_j force_ij·(x_i − x_j)
        move = force.sum(axis=1, keepdims=True) * positions - force @ positions
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        positions = positions + move / length * np.minimum(length, step)
    return positions


def _spread(positions: Positions) -> Positions:
    """Centred and scaled to [−½, ½]², both axes alike."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    return (positions - (low + high) / 2) / max(float((high - low).max()), 1e-12)
