"""Bytes → Population: all agents' samples, packed agent after agent."""

from flockwise.data.movielens import MovieLens, load_movielens
from flockwise.data.population import Population
from flockwise.data.ratings import RatingsTask, ratings_task
from flockwise.data.samples import Samples
from flockwise.data.synthetic import LinearTask, linear_classification
from flockwise.data.tables import population_from_frame, read_population

__all__ = [
    "LinearTask",
    "MovieLens",
    "Population",
    "RatingsTask",
    "Samples",
    "linear_classification",
    "load_movielens",
    "population_from_frame",
    "ratings_task",
    "read_population",
]
