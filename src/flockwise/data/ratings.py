"""MovieLens as a task: every user is an agent who learns to rate movies from their features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data.movielens import MovieLens, Movies, Ratings, Users
from flockwise.data.population import INTERCEPT, Population
from flockwise.errors import DataError
from flockwise.privacy.origin import Origin

if TYPE_CHECKING:
    from scipy import sparse

MovieFeatures: TypeAlias = Literal["als", "als_disjoint", "genres"]
Centring: TypeAlias = Literal["user_mean", "public"]

# The middle of what people use of the scale 1 to 5; a constant, so it reveals nothing about anyone.
PUBLIC_CENTER = 3.5
# What choices of features and centers make of other people's ratings, or of all those of an agent at once.
ORIGINS = {
    "als": Origin("the movie features, factors of the agents' own ratings", "private"),
    "als_disjoint": Origin(
        "the movie features, factors of the ratings of other users, who are not agents", "private"
    ),
    "user_mean": Origin("the targets, centered by each agent's own mean rating", "private"),
}


@dataclass(frozen=True, eq=False)
class RatingsTask:
    """Agents with centered ratings as targets and movie features as features.

    movie_features: (n_movies, features), the rows that `train` and `test` repeat.
    centers: what was subtracted from each agent's ratings; add it to a prediction to get a rating.
    user_profiles: age, gender and occupation of each agent, scaled for Euclidean neighbors; public.
    rating_matrix: centered training ratings (agents, movies), for a graph from who rates alike.
    features_private: whether the movie features were computed from the agents' own ratings.
    """

    train: Population
    test: Population
    movie_features: Floats
    centers: Floats
    user_profiles: Floats
    profile_names: tuple[str, ...]
    rating_matrix: sparse.csr_array
    features_private: bool
    description: str


def ratings_task(
    movielens: MovieLens,
    *,
    features: MovieFeatures = "als",
    dimension: int = 20,
    centring: Centring = "user_mean",
    test_share: float = 0.2,
    seed: int = 0,
    als_penalty: float = 0.1,
    als_iterations: int = 20,
) -> RatingsTask:
    """Section 5.2: predict θ_i·φ_j, agent i's centered rating of movie j.

    features: φ. "als", the paper's choice: factors of the agents' training ratings, so not public.
        "als_disjoint": factors of the ratings of a random half of the users, who are then not agents.
        "genres": the 19 genre indicators and the scaled year, public (and always 20 features).
    centring: "user_mean" subtracts each agent's mean training rating, as the paper does; one rating
        then moves all the others. "public" subtracts 3.5 and adds an intercept feature.

    Test ratings have no part in features or centers.
    """
    _check(movielens, features, dimension, centring)
    train, test = movielens.split(test_share, seed)
    agents, teachers = _roles(movielens, features, train, seed)
    if features == "genres":
        movie_features, names = _genre_features(movielens.movies)
    else:
        movie_features = als_features(
            teachers.users,
            teachers.movies,
            _centered(teachers, _centers(teachers, centring)),
            n_users=teachers.n_users,
            n_movies=teachers.n_movies,
            dimension=dimension,
            penalty=als_penalty,
            iterations=als_iterations,
            seed=seed,
        )
        names = tuple(f"factor{column}" for column in range(dimension))
    if centring == "public":
        movie_features = np.column_stack((movie_features, np.ones(len(movie_features))))
        names = (*names, INTERCEPT)
    centers = _centers(train, centring)
    origins = tuple(ORIGINS[choice] for choice in (features, centring) if choice in ORIGINS)
    profiles, profile_names = _profiles(movielens.users)
    return RatingsTask(
        train=_population(train, centers, movie_features, names, origins).select(agents),
        test=_population(test, centers, movie_features, names, origins).select(agents),
        movie_features=movie_features,
        centers=centers[agents],
        user_profiles=profiles[agents],
        profile_names=profile_names,
        rating_matrix=_rating_matrix(train, centers)[agents],
        features_private=features == "als",
        description=_describe(features, centring, len(agents), movie_features.shape[1], test_share, seed),
    )


def _check(movielens: MovieLens, features: str, dimension: int, centring: str) -> None:
    if features not in get_args(MovieFeatures):
        raise DataError(f"features must be one of {get_args(MovieFeatures)}, got {features!r}")
    if centring not in get_args(Centring):
        raise DataError(f"centring must be one of {get_args(Centring)}, got {centring!r}")
    public_features = len(movielens.movies.genre_names) + 1
    if features == "genres" and dimension != public_features:
        raise DataError(
            f"features='genres' has {public_features} features (genres and year), "
            f"so dimension cannot be {dimension}"
        )


def _roles(
    movielens: MovieLens, features: MovieFeatures, train: Ratings, seed: int
) -> tuple[NDArray[np.int64], Ratings]:
    """Which users are agents, and the ratings that movie features may be learned from."""
    n_users = movielens.ratings.n_users
    if features != "als_disjoint":
        return np.arange(n_users), train
    # A stream of its own, not that of the split with the same seed.
    shuffled = np.random.default_rng([seed, 1]).permutation(n_users)
    agents = np.sort(shuffled[n_users // 2 :])
    # Teachers have no test set: all their ratings count.
    return agents, movielens.ratings.select(~np.isin(movielens.ratings.users, agents))


def _centers(train: Ratings, centring: Centring) -> Floats:
    if centring == "public":
        return np.full(train.n_users, PUBLIC_CENTER)
    totals = np.bincount(train.users, weights=train.values, minlength=train.n_users)
    return totals / np.maximum(np.bincount(train.users, minlength=train.n_users), 1)


def _centered(ratings: Ratings, centers: Floats) -> Floats:
    return ratings.values - centers[ratings.users]


def _population(
    ratings: Ratings,
    centers: Floats,
    movie_features: Floats,
    names: tuple[str, ...],
    origins: tuple[Origin, ...],
) -> Population:
    return Population.packed(
        movie_features[ratings.movies],
        _centered(ratings, centers),
        ratings.offsets,
        agent_names=range(1, ratings.n_users + 1),
        feature_names=names,
        origins=origins,
    )


def _rating_matrix(train: Ratings, centers: Floats) -> sparse.csr_array:
    from scipy import sparse  # slow to import, and an agent that reads its samples needs none of it

    shape = (train.n_users, train.n_movies)
    return sparse.csr_array((_centered(train, centers), train.movies, train.offsets), shape=shape)


def _genre_features(movies: Movies) -> tuple[Floats, tuple[str, ...]]:
    features = np.column_stack((movies.genres.astype(np.float64), _standardized(movies.years)))
    return features, (*movies.genre_names, "year")


def _profiles(users: Users) -> tuple[Floats, tuple[str, ...]]:
    """Standardized age, gender and one column per occupation.

    Another gender, another occupation and one standard deviation of age weigh the same: each is a
    Euclidean distance of 1.
    """
    jobs = sorted(set(users.occupations))
    occupations = np.array([[job == own for job in jobs] for own in users.occupations]) / np.sqrt(2)
    female = np.array([gender == "F" for gender in users.genders], dtype=np.float64)
    names = ("age", "female", *jobs)
    return np.column_stack((_standardized(users.ages.astype(np.float64)), female, occupations)), names


def _standardized(values: Floats) -> Floats:
    """Mean 0 and standard deviation 1; an unknown value (NaN) counts as average."""
    return np.nan_to_num((values - np.nanmean(values)) / np.nanstd(values), nan=0.0)


def _describe(
    features: MovieFeatures, centring: Centring, n_agents: int, n_features: int, test_share: float, seed: int
) -> str:
    sources = {
        "als": "weighted-λ ALS on the agents' own training ratings (private)",
        "als_disjoint": "weighted-λ ALS on the ratings of other users",
        "genres": "genres and year (public)",
    }
    centers = {"user_mean": "each agent's training mean", "public": f"the constant {PUBLIC_CENTER}"}
    return (
        f"MovieLens-100K, {n_agents} agents; {n_features} movie features: {sources[features]}; "
        f"ratings centered by {centers[centring]}; {test_share:.0%} for testing, seed {seed}"
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """Ratings grouped by user or by movie: group k's are entries offsets[k]:offsets[k + 1]."""

    offsets: NDArray[np.int64]
    others: NDArray[np.int64]
    ratings: Floats

    @classmethod
    def group(cls, keys: NDArray[Any], others: NDArray[Any], ratings: Floats, size: int) -> _Side:
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
    ratings: Floats,
    *,
    n_users: int,
    n_movies: int,
    dimension: int = 20,
    penalty: float = 0.1,
    iterations: int = 20,
    seed: int = 0,
) -> Floats:
    """Movie factors M that minimize Σ (r_um − u·m)² + λ(Σ n_u‖u‖² + Σ n_m‖m‖²), shape (n_movies, dimension).

    Ratings should be centered. Rated movies start, as in the article, at their mean rating in the
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
