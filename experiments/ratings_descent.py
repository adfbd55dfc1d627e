"""Coordinate descent on ratings as the paper has it, without privacy and with the published mechanism.

Ratings are centred by the user's mean, features are factors of the ratings. The trade-off that is not the
printed one, and trade-off, clipping bound and number of updates of private runs, are those that are best on a
twin (ratings_rule.py), rated and centred in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.published import DELTA
from experiments.ratings_release import Ratings
from experiments.ratings_rule import PublicView, Twin, climb, factors_of
from flockwise.data import Population
from flockwise.engine.simulate import simulate
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget

Array = NDArray[np.float64]

PRINTED_TRADEOFF = 0.04
# The public bound on the length of the features, for the step sizes of private runs.
LENGTH_BOUND = 4.0
# With the printed trade-off agents trust neighbors so much that it takes this long to settle.
SETTLING_UPDATES = {PRINTED_TRADEOFF: 1000}
TRADEOFFS = (0.4, 1.2, 4.0, 12.0, 40.0)
CHOICES: dict[str, tuple[float, ...]] = {
    "updates": (10, 30, 100, 500),
    "clip": (3.0, 10.0, 30.0),
    "tradeoff": (PRINTED_TRADEOFF, 0.4, 4.0),
}


@dataclass(frozen=True)
class PublishedSettings:
    """T_i, the bound on the L1 norm of a gradient, and μ."""

    updates: int = 500
    clip: float = 10.0
    tradeoff: float = PRINTED_TRADEOFF


def descend(population: Population, graph: SimilarityGraph, tradeoff: float, seed: int) -> Array:
    """Models of coordinate descent that has settled, from the local ones."""
    problem = Problem(population, graph, Objective(Quadratic(), tradeoff=tradeoff))
    updates = SETTLING_UPDATES.get(tradeoff, 100)
    method = CoordinateDescent("local")
    return simulate(problem, method, seed=seed, updates=updates, record_every=None).models


def descend_as_published(
    population: Population, graph: SimilarityGraph, epsilon: float, settings: PublishedSettings, seed: int
) -> Array:
    """Laplace noise for gradients clipped in L1, composed by Theorem 1."""
    updates = int(settings.updates)
    privacy = PrivateUpdates(Budget(epsilon, DELTA), updates, settings.clip, "laplace", "theorem1")
    problem = Problem(
        population, graph, Objective(Quadratic(), tradeoff=settings.tradeoff, feature_bound=LENGTH_BOUND)
    )
    method = CoordinateDescent(privacy=privacy)
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
        self.population = Population.packed(self._factors[ratings.movies], centred.stars, ratings.offsets)

    def error(self, models: Array) -> float:
        """Mean square over agents and movies by popularity of what is missed."""
        missed = self._means[:, None] + models @ self._factors.T - self._twin.exact
        return float((missed**2 @ self._twin.popularity).mean())

    def tradeoff(self) -> float:
        found = (descend(self.population, self.graph, value, self._twin.seed) for value in TRADEOFFS)
        errors = [self.error(models) for models in found]
        return TRADEOFFS[int(np.argmin(errors))]

    def published_settings(self, epsilon: float, start: PublishedSettings) -> PublishedSettings:
        return climb(start, CHOICES, lambda settings: self._published_error(epsilon, settings))

    def _published_error(self, epsilon: float, settings: PublishedSettings) -> float:
        seed = self._twin.seed
        return self.error(descend_as_published(self.population, self.graph, epsilon, settings, seed))


def choose_on_twin(view: PublicView, graph: SimilarityGraph, epsilons: Sequence[float]) -> dict[str, Any]:
    twin = CentredTwin(view, graph)
    found = [PublishedSettings()]
    for epsilon in epsilons:
        found.append(twin.published_settings(epsilon, found[-1]))
    return {"tradeoff": twin.tradeoff(), "published": [asdict(settings) for settings in found[1:]]}
