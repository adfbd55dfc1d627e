"""Bytes → Population: all agents' samples, packed agent after agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockwise.data.population import Population
from flockwise.data.samples import Samples
from flockwise.later import names_from

if TYPE_CHECKING:
    from flockwise.data.movielens import MovieLens, load_movielens
    from flockwise.data.ratings import RatingsTask, ratings_task
    from flockwise.data.stored import StoredPopulation, open_population
    from flockwise.data.synthetic import LinearTask, linear_classification
    from flockwise.data.tables import population_from_frame, read_population

__all__ = [
    "LinearTask",
    "MovieLens",
    "Population",
    "RatingsTask",
    "Samples",
    "StoredPopulation",
    "linear_classification",
    "load_movielens",
    "open_population",
    "population_from_frame",
    "ratings_task",
    "read_population",
]

# Readers are large, and no business of a real agent: they are imported when they are used.
__getattr__ = names_from(__name__)
