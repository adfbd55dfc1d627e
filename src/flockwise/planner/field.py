"""Random models that vary along a graph, as true models do if the graph is right."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from flockwise.graph import SimilarityGraph

# As smooth as can be still means about two directions along the graph: in just one, everyone would
# be a multiple of everyone else.
DIRECTIONS: Final = 2.0
# How much smoother than a random one a graph has to be, as a share of what is left to 1.
MARGIN: Final = 0.1
LONGEST: Final = 1e6


class SmoothField:
    """Random vectors on the agents of a graph, of independent coordinates, as smooth as the graph allows.

    Diffused noise: its modes are those of I − D^(−½)WD^(−½), damped by exp(−t·λ), and the constant one
    is left out, so agents differ. Agents without neighbors have vectors of their own.
    """

    def __init__(self, graph: SimilarityGraph) -> None:
        self._n_agents = graph.n_agents
        self._linked = np.flatnonzero(graph.neighbor_counts)
        weights = graph.to_scipy()[self._linked][:, self._linked].toarray()
        roots = np.sqrt(weights.sum(axis=1))
        self._steps = weights / np.outer(roots, roots)
        constant = roots / np.linalg.norm(roots) if len(roots) else roots
        # Moved to the far end of the spectrum, whichever other modes share its eigenvalue.
        values, vectors = np.linalg.eigh(np.eye(len(roots)) - self._steps + 3 * np.outer(constant, constant))
        self._values, self._modes = values[:-1], vectors[:, :-1] / roots[:, None]

    @property
    def has_structure(self) -> bool:
        """Whether the graph's smoothest mode is smoother than that of a random graph of such weights.

        The largest eigenvalue of a random matrix is about 2·√(q(1 − q)(1 − density)), q being the mean sum
        of squares of a row: for degree d it is q = 1/d, and 2√(d − 1)/d on a large graph.
        """
        if len(self._values) < 2:
            return False
        squares = float((self._steps**2).sum(axis=1).mean())
        density = np.count_nonzero(self._steps) / len(self._steps) ** 2
        random = 2 * math.sqrt(squares * (1 - squares) * (1 - density)) if squares < 0.5 else 1.0
        return 1 - self._values[0] > random + MARGIN * (1 - random)

    def draw(self, dimension: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """One vector per agent, each coordinate of variance 1."""
        vectors = generator.standard_normal((self._n_agents, dimension))
        if len(self._values):
            loud = self._modes * np.exp(-0.5 * self._time() * (self._values - self._values[0]))
            drawn = loud @ generator.standard_normal((loud.shape[1], dimension))
            vectors[self._linked] = drawn / np.linalg.norm(loud, axis=1, keepdims=True)
        return vectors

    def _time(self) -> float:
        """t at which the modes weigh as much as two of the smoothest."""
        excess = self._values - self._values[0]

        def surplus(time: float) -> float:
            return float(np.exp(-time * excess).sum()) - DIRECTIONS

        if surplus(0.0) <= 0:
            return 0.0
        if surplus(LONGEST) >= 0:
            return LONGEST
        time: Any = brentq(surplus, 0.0, LONGEST)
        return time
