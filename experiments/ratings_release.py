"""Two noisy releases per agent, and what everyone can make of them: a model for each agent, at no cost.

Agent i releases the mean over its ratings of ψ(r − θᵀx)·z, first at a public start θ, then at the model that
everyone can compute for it from the first releases. x are the features of a movie and 1; z are the same with
the features scaled down, so that most of the budget goes to the intercept, which matters most; ψ clips the
residual. Each term has norm at most C = width·R whatever the rating and the movie, so that the sensitivity is
2C/m_i, and two normal releases are accounted together.

All else is post-processing. To first order a release is a noisy look at gain·(θ_i − θ), with a gain that
follows from the public movies; the models are posterior means (ratings_prior.py). Two looks, because what one
agent rated differs from the public movies, and this error is proportional to the distance from the point
where it looks. Own models are made in silence: the same posterior, with ratings instead of their release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from experiments.ratings_prior import RESIDUAL_VARIANCE, Posterior, Prior, most_likely
from flockwise.privacy.budget import Budget
from flockwise.privacy.grid import clip_rows
from flockwise.privacy.plan import Plan
from flockwise.randomness.noise import NormalSampler, standard_noise

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """How to look; ratings_rule.py chooses.

    width: residuals beyond it are clipped. spread: standard deviation over movies of the strongest direction
    of z, where the intercept is 1; tilt: that of the others goes with this power of theirs in x. length: z
    longer than this quantile over movies are shortened to it. first: share of the budget, in squared
    multipliers, of the first look. trust, freedom: factors on the variance of what is an agent's own, for its
    released and for its own model; below 1 where features were made from the ratings that are looked at,
    which then seem to say more than they do.
    """

    width: float = 0.5
    spread: float = 0.5
    tilt: float = 2.0
    length: float = 0.25
    first: float = 0.1
    trust: float = 1.0
    freedom: float = 1.0


@dataclass(frozen=True, eq=False)
class PublicMovies:
    """Movie features (an intercept last) in the coordinates of their public principal directions.

    is_als: whether the first feature began as the movie's mean rating, as in weighted-λ ALS
        (Zhou et al. 2008).
    """

    features: Array
    is_als: bool

    @cached_property
    def centre(self) -> Array:
        return self.features[:, :-1].mean(axis=0)

    @cached_property
    def _principal(self) -> tuple[Array, Array]:
        strengths, directions = np.linalg.eigh(np.cov(self.features[:, :-1].T))
        return np.maximum(strengths[::-1], strengths[-1] * 1e-3), directions[:, ::-1]

    @property
    def strengths(self) -> Array:
        """Variance of each principal direction over movies, the largest first."""
        return self._principal[0]

    def principal(self, features: Array) -> Array:
        """The same features around the mean movie, along principal directions, and the intercept."""
        turned = (features[:, :-1] - self.centre) @ self._principal[1]
        return np.column_stack((turned, features[:, -1]))

    def original(self, models: Array) -> Array:
        """Models for the features as they were given."""
        turned = models[:, :-1] @ self._principal[1].T
        return np.column_stack((turned, models[:, -1] - turned @ self.centre))

    @cached_property
    def catalogue(self) -> Array:
        return self.principal(self.features)

    @cached_property
    def start(self) -> Array:
        """A guess that anyone can make.

        The first factor of ALS begins as a movie's mean rating, and ALS gives users and movies factors of
        the same size, so that users follow this factor by about the root mean square of the movies' own.
        """
        start = np.zeros(self.features.shape[1])
        if self.is_als:
            factors = self.features[:, :-1]
            size = np.sqrt(np.linalg.eigvalsh(factors.T @ factors / len(factors))[-1])
            start[:-1] = size * self._principal[1][0]
            start[-1] = size * self.centre[0]
        return start


@dataclass(frozen=True, eq=False)
class Lens:
    """What is released of a rating: z, no longer than R, and how much of a model it shows."""

    movies: PublicMovies
    settings: Settings

    @cached_property
    def scales(self) -> Array:
        """z/x by coordinate."""
        deviations = np.sqrt(self.movies.strengths)
        wanted = self.settings.spread * (deviations / deviations[0]) ** self.settings.tilt
        return np.append(wanted / deviations, 1.0)

    @cached_property
    def length_bound(self) -> float:
        """R."""
        lengths = np.linalg.norm(self.movies.catalogue * self.scales, axis=1)
        return float(np.quantile(lengths, self.settings.length))

    @property
    def clip(self) -> float:
        return self.settings.width * self.length_bound

    @cached_property
    def gains(self) -> Array:
        """What a release shows of a model: the mean over movies of z·x, times the mean slope of ψ."""
        slope = math.erf(self.settings.width / math.sqrt(2 * RESIDUAL_VARIANCE))
        return slope * (self._bounded_catalogue * self.movies.catalogue).mean(axis=0)

    def look(self, ratings: Ratings, models: Array) -> Array:
        """Each agent's mean of ψ(residual)·z, each term of norm ≤ clip: the only step that sees ratings."""
        width = self.settings.width
        residuals = np.clip(ratings.residuals(self.movies.catalogue, models), -width, width)
        shape = (len(ratings.counts), len(self.movies.catalogue))
        rated = sparse.csr_array((residuals, ratings.movies, ratings.offsets), shape=shape)
        return rated @ self._bounded_catalogue / ratings.counts[:, None]

    @cached_property
    def _bounded_catalogue(self) -> Array:
        """z of every movie."""
        return clip_rows(self.movies.catalogue * self.scales, self.length_bound, "l2")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Which movies everyone rated, and the centred ratings, agent after agent."""

    movies: NDArray[np.int64]
    stars: Array
    offsets: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def residuals(self, catalogue: Array, models: Array) -> Array:
        owners = np.repeat(np.arange(len(self.counts)), self.counts)
        return self.stars - (models @ catalogue.T)[owners, self.movies]


@dataclass(frozen=True, eq=False)
class TwoLooks:
    """Models of all agents in principal coordinates, and what they cost.

    posterior: what the releases tell of distances from the start. own: variances of what is an agent's own.
    """

    start: Array
    posterior: Posterior
    own: Array
    freedom: float
    plan: Plan

    @property
    def released(self) -> Array:
        """Computed from releases alone."""
        return self.start + self.posterior.models

    @property
    def expected(self) -> Array:
        """What is common or shared with neighbors."""
        return self.start + self.posterior.together

    @cached_property
    def uncertainty(self) -> Array:
        """Variances of an agent's own model around what is expected."""
        return self.freedom * (self.posterior.together_variances + self.own)


def release_twice(
    ratings: Ratings, lens: Lens, patterns: Sequence[Array], prior: Prior, budget: Budget, noise_seed: int
) -> TwoLooks:
    """Everyone's model from two releases; smoothed over those patterns that make the releases likely."""
    share = lens.settings.first
    costs = (math.sqrt(share), math.sqrt(1 - share))
    plan = Plan.fitting(budget, "gaussian", costs)
    sensitivities = 2 * lens.clip / ratings.counts[:, None]
    trusting = replace(prior, own=lens.settings.trust * prior.own)
    sampling = RESIDUAL_VARIANCE / np.outer(ratings.counts, np.append(lens.movies.strengths, 1.0))
    start = lens.movies.start

    def look(number: int, models: Array) -> Look:
        noise_std = plan.multipliers[number] * sensitivities
        released = lens.look(ratings, models) + noise_std * _normals(noise_seed, number, models.shape)
        return Look(models + released / lens.gains - start, (noise_std / lens.gains) ** 2)

    def tastes(seen: Look) -> Posterior:
        return most_likely(seen.away, seen.variances + sampling, patterns, trusting)

    first = look(0, np.tile(start, (len(ratings.counts), 1)))
    guess = tastes(first)
    models = start + guess.models
    # Away from the right intercept a look at the features sees mostly which movies somebody rates.
    models[:, :-1] = (start + guess.common)[:-1]
    final = tastes(_combined(first, look(1, models)))
    return TwoLooks(start, final, prior.own, lens.settings.freedom, plan)


class Look(NamedTuple):
    """Noisy distances of all models from the start, (agents, coordinates), and the variances of the noise."""

    away: Array
    variances: Array


def _combined(first: Look, second: Look) -> Look:
    """The second look, with the intercept from both, by inverse variance."""
    away, variances = second.away.copy(), second.variances.copy()
    precisions = 1 / first.variances[:, -1], 1 / second.variances[:, -1]
    variances[:, -1] = 1 / (precisions[0] + precisions[1])
    weighted = precisions[0] * first.away[:, -1] + precisions[1] * second.away[:, -1]
    away[:, -1] = variances[:, -1] * weighted
    return Look(away, variances)


def _normals(noise_seed: int, look: int, shape: tuple[int, ...]) -> Array:
    agents, size = shape
    draws = [standard_noise(NormalSampler(), noise_seed, agent, look, size) for agent in range(agents)]
    return np.array(draws)


def own_models(ratings: Ratings, catalogue: Array, expected: Array, uncertainty: Array) -> Array:
    """argmin Σ(r − θᵀx)²/σ² + Σ_j (θ_j − expected_j)²/uncertainty_j for every agent; never sent."""
    dimension = expected.shape[1]
    grams = np.empty((len(expected), dimension, dimension))
    moments = np.empty_like(expected)
    residuals = ratings.residuals(catalogue, expected)
    for agent, (start, end) in enumerate(zip(ratings.offsets[:-1], ratings.offsets[1:], strict=True)):
        rows = catalogue[ratings.movies[start:end]]
        grams[agent] = rows.T @ rows
        moments[agent] = residuals[start:end] @ rows
    grams[:, np.arange(dimension), np.arange(dimension)] += RESIDUAL_VARIANCE / uncertainty
    return expected + np.linalg.solve(grams, moments[:, :, None])[:, :, 0]


def models_without_releases(ratings: Ratings, movies: PublicMovies, prior: Prior, freedom: float) -> Array:
    """Own models of agents who hear nothing: around the public start, with all variances of the prior."""
    variances = freedom * (prior.common + prior.shared + prior.own)
    everyone = np.ones((len(ratings.counts), 1))
    return own_models(ratings, movies.catalogue, everyone * movies.start, everyone * variances)
