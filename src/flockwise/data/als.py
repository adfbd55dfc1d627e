"""Alternating least squares with weighted-λ regularisation (Zhou et al. 2008): ratings → movie features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import DataError


@dataclass(frozen=True, eq=False)
class _Side:
    """Ratings grouped by user or by movie: group k's are entries offsets[k]:offsets[k + 1]."""

    offsets: NDArray[np.int64]
    others: NDArray[np.int64]
    ratings: NDArray[np.float64]

    @classmethod
    def group(
        cls, keys: NDArray[Any], others: NDArray[Any], ratings: NDArray[np.float64], size: int
    ) -> _Side:
        order = np.argsort(keys, kind="stable")
        offsets = np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=size))))
        return cls(offsets, others[order], ratings[order])

    def solve(self, other_factors: NDArray[Any], penalty: float) -> NDArray[Any]:
        """Each group's ridge regression on the fixed factors of the other side, penalty × its ratings."""
        size, rank = len(self.offsets) - 1, other_factors.shape[1]
        grams = np.empty((size, rank, rank))
        moments = np.empty((size, rank))
        for group, (start, end) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            rows = other_factors[self.others[start:end]]
            grams[group] = rows.T @ rows
            moments[group] = self.ratings[start:end] @ rows
        # A group without ratings gets a regular system too, whose solution is 0.
        weights = penalty * np.maximum(np.diff(self.offsets), 1)
        grams[:, np.arange(rank), np.arange(rank)] += weights[:, None]
        return np.linalg.solve(grams, moments[:, :, None])[:, :, 0]


def als_features(
    users: NDArray[Any],
    movies: NDArray[Any],
    ratings: NDArray[np.float64],
    *,
    n_users: int,
    n_movies: int,
    dimension: int = 20,
    penalty: float = 0.1,
    iterations: int = 20,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Movie factors M that minimise Σ (r_um − u·m)² + λ(Σ n_u‖u‖² + Σ n_m‖m‖²), shape (n_movies, dimension).

    Ratings should be centred. Rated movies start, as in the article, at their mean rating in the
    first coordinate and small random numbers in the others; movies nobody rated get zeros.
    """
    if dimension < 1 or iterations < 1 or not penalty > 0:
        raise DataError(
            "ALS needs dimension ≥ 1, iterations ≥ 1 and a positive penalty, "
            f"got {dimension}, {iterations} and {penalty}"
        )
    by_user = _Side.group(users, movies, ratings, n_users)
    by_movie = _Side.group(movies, users, ratings, n_movies)
    counts = np.maximum(np.diff(by_movie.offsets), 1)
    factors = np.random.default_rng(seed).standard_normal((n_movies, dimension)) * 0.1
    factors[:, 0] = np.bincount(movies, weights=ratings, minlength=n_movies) / counts
    for _ in range(iterations):
        factors = by_movie.solve(by_user.solve(factors, penalty), penalty)
    return factors
