"""The rule that chooses how to release, from public quantities alone: what is best on generated twins.

A twin has the public movies, the public graph and as many ratings per agent as the real agents have. Its
models are drawn from the stated prior; popularity of movies is log-normal; a rating is what the model says
plus normal noise, as a whole star from 1 to 5. Where the public features are factors of ratings, so are the
twin's, of the twin's ratings, made by the same procedure: what that does to models, and to what ratings tell
of them, then shows in the twin. No real rating is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from experiments.ratings_prior import RESIDUAL_VARIANCE, mean_prior, prior_of, stated_prior
from experiments.ratings_release import (
    Lens,
    PublicMovies,
    Ratings,
    Settings,
    TwoLooks,
    models_without_releases,
    own_models,
    release_twice,
)
from flockwise.data.ratings import PUBLIC_CENTER, MovieFeatures, als_features
from flockwise.privacy.budget import Budget

Array = NDArray[np.float64]
T = TypeVar("T", bound=Any)

TWIN_SEED = 1_000_000
# The choice should not hang on one draw.
TWINS = 2
# Released models decide on these, from the first to the last; own models on freedom.
CHOICES: dict[str, tuple[float, ...]] = {
    "trust": (0.25, 0.5, 1.0),
    "width": (0.25, 0.5, 1.0),
    "spread": (0.12, 0.25, 0.5, 1.0),
    "tilt": (0.0, 1.0, 2.0, 3.0),
    "length": (0.0, 0.25, 0.5),
    "first": (0.05, 0.1, 0.25),
}
FREEDOMS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, eq=False)
class PublicView:
    """All that the rule sees.

    patterns: what tastes may be smooth over; twins' tastes are over the first. shared: what neighbors are
    supposed to share of an agent's taste.
    """

    movies: PublicMovies
    source: MovieFeatures
    patterns: Sequence[Array]
    counts: NDArray[np.int64]
    shared: float


class Twin:
    """Agents whose exact tastes are known.

    exact: what each agent thinks of each movie. movies, ratings: as public features and private ratings.
    models: the best ones with these features, for movies rated as often as `popularity` says.
    """

    def __init__(self, view: PublicView, number: int = 0) -> None:
        self._view = view
        self.seed = TWIN_SEED + number
        self._generator = np.random.default_rng(self.seed)
        self._prior = stated_prior(view.movies.strengths, view.shared)
        weights = np.exp(self._generator.normal(size=len(view.movies.catalogue)))
        self.popularity = weights / weights.sum()
        common = self._generator.normal(size=len(view.movies.start))
        self._everyone = view.movies.start + np.sqrt(self._prior.common) * common
        self.exact = self._tastes(view.patterns[0]) @ view.movies.catalogue.T
        self.ratings = self._rate(self.exact)
        self.movies = self._movies()
        features = self.movies.catalogue
        self._information = (self.popularity[:, None] * features).T @ features
        self.models = np.linalg.solve(self._information, features.T @ (self.popularity * self.exact).T).T

    def error(self, models: Array) -> float:
        """Mean square of what these models miss of the best ones, over agents and movies by popularity."""
        missed = models - self.models
        return float(np.einsum("ij,jk,ik->", missed, self._information, missed) / len(missed))

    def _tastes(self, patterns: Array) -> Array:
        draw, size = self._generator.normal, len(self._everyone)
        shared = np.sqrt(self._prior.shared) * (patterns @ draw(size=(patterns.shape[1], size)))
        return self._everyone + shared + np.sqrt(self._prior.own) * draw(size=(len(patterns), size))

    def _rate(self, exact: Array) -> Ratings:
        """Movies by popularity, nobody rating one twice."""
        counts = self._view.counts
        races = self._generator.exponential(size=exact.shape) / self.popularity
        rated = [np.argpartition(race, count)[:count] for race, count in zip(races, counts, strict=True)]
        movies = np.concatenate(rated)
        noise = np.sqrt(RESIDUAL_VARIANCE) * self._generator.normal(size=len(movies))
        told = exact[np.repeat(np.arange(len(counts)), counts), movies] + noise
        stars = np.clip(np.rint(PUBLIC_CENTER + told), 1, 5) - PUBLIC_CENTER
        return Ratings(movies, stars, np.concatenate(([0], np.cumsum(counts))))

    def _movies(self) -> PublicMovies:
        """The public ones, or factors of the twin's ratings, or of those of as many other people."""
        if self._view.source == "genres":
            return self._view.movies
        teachers = self.ratings
        if self._view.source == "als_disjoint":
            others = self._tastes(self._generator.permutation(self._view.patterns[0]))
            teachers = self._rate(others @ self._view.movies.catalogue.T)
        factors = factors_of(teachers, self._view)
        return PublicMovies(np.column_stack((factors, np.ones(len(factors)))), is_als=True)


def factors_of(ratings: Ratings, view: PublicView) -> Array:
    users = np.repeat(np.arange(len(ratings.counts)), ratings.counts)
    n_movies, dimension = len(view.movies.catalogue), len(view.movies.strengths)
    return als_features(
        users,
        ratings.movies,
        ratings.stars,
        n_users=len(ratings.counts),
        n_movies=n_movies,
        dimension=dimension,
    )


def climb(start: T, choices: Mapping[str, Sequence[float]], error: Callable[[T], float]) -> T:
    """One setting after the other, from `start` on to the neighboring choice as long as that is better."""
    best, least = start, error(start)
    for name, values in choices.items():
        for step in (-1, 1):
            place = values.index(getattr(best, name)) + step
            while 0 <= place < len(values):
                candidate = replace(best, **{name: values[place]})
                found = error(candidate)
                if found >= least:
                    break
                best, least, place = candidate, found, place + step
    return best


class Rule:
    """The prior that twins show, and the settings that serve them best at a budget."""

    def __init__(self, view: PublicView, twins: int = TWINS) -> None:
        # That tastes are over the first is known of twins.
        self._patterns = view.patterns[:1]
        self.twins = [Twin(view, number) for number in range(twins)]
        shown = [prior_of(twin.models - twin.movies.start, view.patterns[0]) for twin in self.twins]
        self.prior = mean_prior(shown)

    def settings(self, budget: Budget, start: Settings) -> Settings:
        best = climb(start, CHOICES, lambda settings: self._released_error(settings, budget))
        return replace(best, freedom=self._freedom(best, budget))

    def freedom_without_releases(self) -> float:
        """What serves twins best who hear nothing of each other."""
        errors = [
            sum(
                twin.error(models_without_releases(twin.ratings, twin.movies, self.prior, freedom))
                for twin in self.twins
            )
            for freedom in FREEDOMS
        ]
        return FREEDOMS[int(np.argmin(errors))]

    def _released_error(self, settings: Settings, budget: Budget) -> float:
        return sum(twin.error(self._release(twin, settings, budget).released) for twin in self.twins)

    def _release(self, twin: Twin, settings: Settings, budget: Budget) -> TwoLooks:
        lens = Lens(twin.movies, settings)
        return release_twice(twin.ratings, lens, self._patterns, self.prior, budget, twin.seed)

    def _freedom(self, settings: Settings, budget: Budget) -> float:
        errors = np.zeros(len(FREEDOMS))
        for twin in self.twins:
            looks = self._release(twin, replace(settings, freedom=1.0), budget)
            for place, freedom in enumerate(FREEDOMS):
                own = own_models(
                    twin.ratings, twin.movies.catalogue, looks.expected, freedom * looks.uncertainty
                )
                errors[place] += twin.error(own)
        return FREEDOMS[int(errors.argmin())]
