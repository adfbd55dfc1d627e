"""Coordinate descent on ratings without privacy, as the paper has it.

Ratings are centred by the user's mean, features are factors of the ratings. The trade-off that is not the
printed one is the one that is best on a twin (ratings_rule.py), rated and centred in the same way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.published import PRINTED_TRADEOFF
from experiments.ratings_release import Ratings
from experiments.ratings_rule import PublicView, Twin, factors_of
from flockwise.data import Population
from flockwise.engine.simulate import simulate
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent
from flockwise.objective import Objective, Problem, Quadratic

Array = NDArray[np.float64]

# The public bound on the length of the features, for the step sizes of private runs.
LENGTH_BOUND = 4.0
# With the printed trade-off agents trust neighbors so much that it takes this long to settle.
SETTLING_UPDATES = {PRINTED_TRADEOFF: 1000}
TRADEOFFS = (0.4, 1.2, 4.0, 12.0, 40.0)


def descend(population: Population, graph: SimilarityGraph, tradeoff: float, seed: int) -> Array:
    """Models of coordinate descent that has settled, from the local ones."""
    problem = Problem(population, graph, Objective(Quadratic(), tradeoff=tradeoff))
    updates = SETTLING_UPDATES.get(tradeoff, 100)
    method = CoordinateDescent("local")
    return simulate(problem, method, seed=seed, updates=updates, record_every=None).models


class CentredTwin:
    """The twin, centred by each agent's mean rating."""

    def __init__(self, view: PublicView, graph: SimilarityGraph) -> None:
        twin = Twin(view)
        self.graph, self._twin, ratings = graph, twin, twin.ratings
        self._means = np.add.reduceat(ratings.stars, ratings.offsets[:-1]) / ratings.counts
        centred = Ratings(
            ratings.movies, ratings.stars - np.repeat(self._means, ratings.counts), ratings.offsets
        )
        self._factors = factors_of(centred, view)
        self.population = Population.packed(
            self._factors[ratings.movies], centred.stars, ratings.offsets, agent_names=graph.agent_names
        )

    def error(self, models: Array) -> float:
        """Mean square over agents and movies by popularity of what is missed."""
        missed = self._means[:, None] + models @ self._factors.T - self._twin.exact
        return float((missed**2 @ self._twin.popularity).mean())

    def tradeoff(self) -> float:
        found = (descend(self.population, self.graph, value, self._twin.seed) for value in TRADEOFFS)
        errors = [self.error(models) for models in found]
        return TRADEOFFS[int(np.argmin(errors))]
