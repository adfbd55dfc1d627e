"""Alternating least squares against its own definition."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from flockwise.data.ratings import als_features
from flockwise.errors import DataError


def some_ratings(seed=0, n_users=30, n_movies=20, n_ratings=300):
    generator = np.random.default_rng(seed)
    pairs = generator.choice(n_users * n_movies, n_ratings, replace=False)
    return pairs // n_movies, pairs % n_movies, generator.standard_normal(n_ratings)


def ridge_factors(keys, others, ratings, factors, size, penalty):
    """Each key's ridge regression with penalty × number of ratings, by scikit-learn."""
    solved = np.zeros((size, factors.shape[1]))
    for key in np.unique(keys):
        own = keys == key
        model = Ridge(alpha=penalty * own.sum(), fit_intercept=False)
        solved[key] = model.fit(factors[others[own]], ratings[own]).coef_
    return solved


def test_one_iteration_is_two_rounds_of_ridge_regressions():
    users, movies, ratings = some_ratings()
    sizes = {"n_users": 30, "n_movies": 20, "dimension": 3, "penalty": 0.3, "seed": 5}
    once = als_features(users, movies, ratings, iterations=1, **sizes)
    twice = als_features(users, movies, ratings, iterations=2, **sizes)
    user_factors = ridge_factors(users, movies, ratings, once, 30, 0.3)
    expected = ridge_factors(movies, users, ratings, user_factors, 20, 0.3)
    np.testing.assert_allclose(twice, expected, rtol=1e-8, atol=1e-12)


def test_the_order_of_ratings_does_not_matter():
    users, movies, ratings = some_ratings()
    order = np.random.default_rng(1).permutation(len(ratings))
    sizes = {"n_users": 30, "n_movies": 20, "dimension": 3, "iterations": 3}
    straight = als_features(users, movies, ratings, **sizes)
    shuffled = als_features(users[order], movies[order], ratings[order], **sizes)
    np.testing.assert_allclose(straight, shuffled, rtol=1e-9, atol=1e-12)


def test_low_rank_ratings_are_recovered():
    generator = np.random.default_rng(3)
    user_truth, movie_truth = generator.standard_normal((60, 2)), generator.standard_normal((40, 2))
    users, movies = np.divmod(generator.choice(60 * 40, 1200, replace=False), 40)
    ratings = np.sum(user_truth[users] * movie_truth[movies], axis=1)
    factors = als_features(
        users, movies, ratings, n_users=60, n_movies=40, dimension=2, penalty=1e-6, iterations=60
    )
    # The factors span the movies' true space: no residual when regressing one on the other.
    fitted = factors @ np.linalg.lstsq(factors, movie_truth, rcond=None)[0]
    np.testing.assert_allclose(fitted, movie_truth, atol=1e-3)


def test_a_movie_that_nobody_rated_gets_zeros():
    users, movies, ratings = some_ratings()
    factors = als_features(users, movies, ratings, n_users=31, n_movies=22, dimension=3)
    assert np.all(factors[20:] == 0)
    assert np.all(np.any(factors[:20] != 0, axis=1))


@pytest.mark.parametrize("bad", [{"dimension": 0}, {"iterations": 0}, {"penalty": 0.0}])
def test_settings_that_als_cannot_use_are_refused(bad):
    users, movies, ratings = some_ratings()
    with pytest.raises(DataError, match="ALS needs dimension ≥ 1, iterations ≥ 1 and a positive penalty"):
        als_features(users, movies, ratings, n_users=30, n_movies=20, **bad)
