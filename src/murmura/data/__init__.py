"""Bytes → Population: all agents' samples, packed agent after agent."""

from murmura.data.frames import population_from_frame, read_population
from murmura.data.movielens import MovieLens, load_movielens
from murmura.data.population import Population
from murmura.data.ratings import RatingsTask, ratings_task
from murmura.data.synthetic import LinearTask, linear_classification

__all__ = [
    "LinearTask",
    "MovieLens",
    "Population",
    "RatingsTask",
    "linear_classification",
    "load_movielens",
    "population_from_frame",
    "ratings_task",
    "read_population",
]
