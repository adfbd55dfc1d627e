"""Two noisy releases per agent, and what everyone can make of them: a model for each agent, at no cost.

Agent i releases the mean over its ratings of ψ(r − θᵀx)·z, first at a public start θ, then at the model that
everyone can compute for it from the first releases. x are the features of a movie and 1; z are the same with
the features scaled down, so that most of the budget goes to the intercept, which matters most; ψ clips the
residual. Each term has norm at most C = width·R whatever the rating and the movie, so that the sensitivity is
2C/m_i, and two normal releases are accounted together.

All else is post-processing. To first order a release is a noisy look at gain·(θ_i − θ), with a gain that
follows from the public movies; under a normal prior, smooth over the graph, the models are posterior means.
Two looks, because what one agent rated differs from the public movies, and this error is proportional to the
distance from the point where it looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from murmura.data import Population
from murmura.graph import SimilarityGraph
from murmura.privacy.budget import Budget
from murmura.privacy.grid import clip_rows
from murmura.privacy.noise_plan import NoisePlan, plan_noise
from murmura.randomness.noise import normals

Array = NDArray[np.float64]

# Shares of the budget, in squared noise multipliers: the first look has only to find the right neighborhood.
SHARES = (0.2, 0.8)
# Residuals beyond it are clipped; ratings have a residual of standard deviation about 1.
WIDTH = 1.0
# Standard deviation over movies of the strongest direction of z, where the intercept is 1; the weaker ones
# are scaled down further, by their own standard deviation, as the agents' models follow them less.
FEATURE_SPREAD = 0.4
# z longer than this quantile over the public movies are shortened to it.
LENGTH_QUANTILE = 0.6
RESIDUAL_VARIANCE = 1.0


@dataclass(frozen=True)
class Prior:
    """What is supposed of the agents' models before anything is released, per coordinate.

    smooth: variance of the coefficient of each of the `patterns` smoothest eigenvectors of the graph, for the
    intercept and for a feature of average strength; `rough`: that of other eigenvectors, as a share of it.
    own: variance of what an agent shares with nobody. common: standard deviations of the mean over agents
    around the start: of the intercept, of the start's direction and of every other one.
    """

    smooth: tuple[float, float] = (10.0, 2.0)
    rough: float = 0.03
    own: tuple[float, float] = (0.06, 0.01)
    common: tuple[float, float, float] = (0.3, 0.05, 0.02)
    patterns: int = 7


EIGENVECTORS = 100
ROUGH_DECAY = 3.0


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

    @cached_property
    def scales(self) -> Array:
        """z/x by coordinate, which gives the strongest direction a standard deviation of FEATURE_SPREAD."""
        return np.append(FEATURE_SPREAD * np.sqrt(self.strengths) / self.strengths[0], 1.0)

    @cached_property
    def length_bound(self) -> float:
        """R."""
        lengths = np.linalg.norm(self.principal(self.features) * self.scales, axis=1)
        return float(np.quantile(lengths, LENGTH_QUANTILE))

    def bounded(self, principal: Array) -> Array:
        """z: scaled, and no longer than R."""
        return clip_rows(principal * self.scales, self.length_bound, "l2")

    @cached_property
    def gains(self) -> Array:
        """The mean of z·x over movies: what a release shows of a model, by coordinate."""
        movies = self.principal(self.features)
        return (self.bounded(movies) * movies).mean(axis=0)


@dataclass(frozen=True, eq=False)
class TwoLooks:
    """The released models of all agents, and what they cost."""

    models: Array
    plan: NoisePlan


def release_twice(
    train: Population,
    movies: PublicMovies,
    graph: SimilarityGraph,
    budget: Budget,
    noise_seed: int,
    prior: Prior | None = None,
) -> TwoLooks:
    """Everyone's model from two releases, in the coordinates of `train`."""
    prior = prior or Prior()
    plan = plan_noise(
        budget,
        train.sample_counts,
        WIDTH * movies.length_bound,
        tuple(np.sqrt(SHARES)),
        dimension=train.n_features,
    )
    smoother = Smoother(movies, graph, train.sample_counts, prior)
    features = movies.principal(train.features.astype(np.float64))
    bounded = movies.bounded(features)
    models = np.tile(movies.start, (train.n_agents, 1))
    looks = []
    for look, noise_std in enumerate(plan.noise_stds().T):
        released = _mean_residuals(train, features, bounded, models, plan.clip)
        released += noise_std[:, None] * _normals(noise_seed, look, models.shape)
        looks.append(Look(models + released / movies.gains, (noise_std[:, None] / movies.gains) ** 2))
        models = smoother.models(looks)
    return TwoLooks(movies.original(models), plan)


def _mean_residuals(train: Population, features: Array, bounded: Array, models: Array, clip: float) -> Array:
    """Each agent's mean of ψ(residual)·z, each term of norm ≤ `clip`: the only step that sees ratings."""
    owners = np.repeat(np.arange(train.n_agents), train.sample_counts)
    residuals = train.targets - np.einsum("kj,kj->k", features, models[owners])
    terms = clip_rows(np.clip(residuals, -WIDTH, WIDTH)[:, None] * bounded, clip, "l2")
    return np.add.reduceat(terms, train.offsets[:-1], axis=0) / train.sample_counts[:, None]


def _normals(noise_seed: int, look: int, shape: tuple[int, ...]) -> Array:
    draws = np.empty(shape)
    for agent in range(shape[0]):
        normals(noise_seed, agent, look, draws[agent])
    return draws


@dataclass(frozen=True, eq=False)
class Look:
    """Released models, one row per agent, and the variances of their noise; both public."""

    models: Array
    variances: Array


@dataclass(frozen=True, eq=False)
class Smoother:
    """Posterior means of all models from the looks so far; nothing here has seen a rating."""

    movies: PublicMovies
    graph: SimilarityGraph
    sample_counts: NDArray[np.int64]
    prior: Prior

    def models(self, looks: list[Look]) -> Array:
        """From the intercepts of all looks, and from the features of the last one.

        Away from the right intercept a look at the features sees mostly what movies somebody rates: the first
        one tells their mean only.
        """
        start, last = self.movies.start, looks[-1]
        models = np.tile(start, (len(last.models), 1))
        models[:, -1] += self._smoothed(-1, *_pooled(looks, -1), together=False)
        for column in range(len(start) - 1):
            observed, variances = last.models[:, column], last.variances[:, column]
            models[:, column] += self._smoothed(column, observed, variances, together=len(looks) == 1)
        return models

    def _smoothed(self, column: int, observed: Array, variances: Array, *, together: bool) -> Array:
        """Posterior means of a coordinate's distance from the start; with `together`, of its common part."""
        strengths = np.append(self.movies.strengths, 1.0)
        variances = variances + RESIDUAL_VARIANCE / (self.sample_counts * strengths[column])
        smooth, own, common = self._prior_variances(column)
        basis = np.column_stack((common**0.5 * np.ones(len(observed)), smooth**0.5 * self._patterns))
        away = observed - self.movies.start[column]
        precisions = 1 / (own + variances)
        weighted = precisions[:, None] * basis
        coefficients = np.linalg.solve(basis.T @ weighted + np.eye(basis.shape[1]), weighted.T @ away)
        if together:
            return np.full(len(observed), common**0.5 * coefficients[0])
        shared = basis @ coefficients
        return shared + own * precisions * (away - shared)

    def _prior_variances(self, column: int) -> tuple[float, float, float]:
        """Of a smooth pattern's coefficient, of what is an agent's own, and of the common distance."""
        prior, strengths = self.prior, self.movies.strengths
        if column == -1:
            return prior.smooth[0], prior.own[0], prior.common[0] ** 2
        relative = np.sqrt(strengths[column] / strengths.mean())
        common = prior.common[1 if column == 0 else 2]
        return prior.smooth[1] * relative, prior.own[1] * relative, common**2

    @cached_property
    def _patterns(self) -> Array:
        """The smoothest eigenvectors of D^(−½)WD^(−½), the first `patterns` of them at full length."""
        roots = np.sqrt(np.maximum(self.graph.degrees, 1e-12))
        similarity = self.graph.to_scipy().toarray() / np.outer(roots, roots)
        values, vectors = np.linalg.eigh(similarity)
        values, vectors = values[::-1][:EIGENVECTORS], vectors[:, ::-1][:, :EIGENVECTORS]
        first = self.prior.patterns
        rough = self.prior.rough * np.exp(ROUGH_DECAY * (values - values[first]))
        return vectors * np.sqrt(np.where(np.arange(len(values)) < first, 1.0, rough))


def _pooled(looks: list[Look], column: int) -> tuple[Array, Array]:
    """Independent looks at the same, by inverse variance."""
    precisions = np.array([1 / look.variances[:, column] for look in looks])
    observed = np.array([look.models[:, column] for look in looks])
    total = precisions.sum(axis=0)
    return (precisions * observed).sum(axis=0) / total, 1 / total
