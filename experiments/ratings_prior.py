"""How agents' tastes are supposed to vary, and what releases then tell of them. Nothing here sees a rating.

An agent's model is a public start, plus what all agents have in common, plus a part that it shares with
its neighbors, plus a part of its own; all are normal, coordinate by coordinate. The shared part is smooth
over the graph; in which of a few ways, the releases themselves tell, by their likelihood. Their noise is of
public variance, so that this is computed from public numbers and released vectors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from flockwise.graph import SimilarityGraph

Array = NDArray[np.float64]

# From other people's ratings on the same scale: in the Netflix Prize (rules of 2006) a movie's mean missed a
# rating by 1.054, and the grand prize, won in 2009, was for .857. It is assumed that the latter is noise, and
# that what lies between is the people: half of it their mean ratings, half of it their tastes.
RESIDUAL_VARIANCE = 0.857**2
TASTE_VARIANCE = (1.054**2 - 0.857**2) / 2
PATTERNS = 40
# Added to the graph Laplacian, whose inverse is the covariance of what neighbors share.
RIDGE = 0.1
# Or neighbors share this many of the smoothest patterns in full, and this part of the variance of others.
STEPS = (5, 7, 10, 15, 20)
ROUGH = 0.03


@dataclass(frozen=True, eq=False)
class Prior:
    """Variances of the three parts, by coordinate: the features, then the intercept."""

    common: Array
    shared: Array
    own: Array


def mean_prior(priors: Sequence[Prior]) -> Prior:
    parts = ([getattr(prior, part.name) for prior in priors] for part in fields(Prior))
    return Prior(*(np.mean(values, axis=0) for values in parts))


def stated_prior(strengths: Array, shared: float) -> Prior:
    """For features of these variances over movies; `shared` is what neighbors share of an agent's taste.

    Models vary alike along all features, as ridge regression supposes. What all agents have in common is as
    large as what they differ by.
    """
    tastes = np.full(len(strengths), TASTE_VARIANCE / strengths.sum())
    variances = np.append(tastes, TASTE_VARIANCE)
    return Prior(variances, shared * variances, (1 - shared) * variances)


def smooth_patterns(graph: SimilarityGraph) -> tuple[Array, ...]:
    """The smoothest eigenvectors of D^(−½)WD^(−½), weighted in several ways; rows of mean square 1.

    First as the penalty of Eq. (2) has it, by (1 − λ + ridge)^(−½); then by each of STEPS.
    """
    roots = np.sqrt(np.maximum(graph.degrees, 1e-12))
    similarity = graph.to_scipy().toarray() / np.outer(roots, roots)
    values, vectors = eigh(similarity, subset_by_index=(len(roots) - PATTERNS, len(roots) - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    steps = [np.where(np.arange(PATTERNS) < step, 1.0, ROUGH) for step in STEPS]
    weights = [1 / (1 - values + RIDGE), *steps]
    return tuple(vectors * np.sqrt(len(vectors) / weight.sum() * weight) for weight in weights)


def prior_of(away: Array, patterns: Array) -> Prior:
    """The variances that these models, (agents, coordinates), show around the start.

    Strongest feature and intercept have their own, all other features have theirs together. What is common
    is a single draw per coordinate, which tells little: all features together.
    """
    common = away.mean(axis=0)
    rest = away - common
    sizes = np.linalg.norm(patterns, axis=0)
    along = (patterns / sizes).T @ rest
    degrees_left = len(away) - len(sizes)
    own = ((rest**2).sum(axis=0) - (along**2).sum(axis=0)) / degrees_left
    shared = np.maximum((along**2).sum(axis=0) - len(sizes) * own, 0.01 * own) / (sizes**2).sum()
    return Prior(_pooled(common**2, 0), _pooled(shared, 1), _pooled(own, 1))


def _pooled(values: Array, start: int) -> Array:
    """The mean in place of all features from `start` on."""
    pooled = values.copy()
    pooled[start:-1] = values[start:-1].mean()
    return pooled


@dataclass(frozen=True, eq=False)
class Posterior:
    """All models given noisy looks at their distance from the start, (agents, coordinates), and a prior."""

    away: Array
    variances: Array
    patterns: Array
    prior: Prior

    @cached_property
    def _basis(self) -> Array:
        return np.column_stack((np.ones(len(self.patterns)), self.patterns))

    @cached_property
    def _precisions(self) -> Array:
        return 1 / (self.prior.own + self.variances)

    @cached_property
    def _covariances(self) -> Array:
        """Of the coefficients of what is common and of the patterns: (coordinates, 1 + patterns, same)."""
        size = self._basis.shape[1]
        information = np.matmul(self._precisions.T[:, None, :] * self._basis.T, self._basis)
        stated = np.column_stack((self.prior.common, *[self.prior.shared] * (size - 1)))
        information[:, np.arange(size), np.arange(size)] += 1 / stated
        return np.linalg.inv(information)

    @cached_property
    def _coefficients(self) -> Array:
        moments = (self._precisions * self.away).T @ self._basis
        return np.einsum("kbc,kc->kb", self._covariances, moments)

    @property
    def log_likelihood(self) -> Array:
        """Of the looks, by coordinate, up to a constant."""
        moments = (self._precisions * self.away).T @ self._basis
        squares = (self._precisions * self.away**2).sum(axis=0) - (moments * self._coefficients).sum(axis=1)
        stated = np.log(self.prior.common) + self.patterns.shape[1] * np.log(self.prior.shared)
        volumes = stated - np.linalg.slogdet(self._covariances)[1] - np.log(self._precisions).sum(axis=0)
        return -(squares + volumes) / 2

    @property
    def common(self) -> Array:
        """By coordinate."""
        return self._coefficients[:, 0]

    @cached_property
    def together(self) -> Array:
        """What is common and what neighbors share, (agents, coordinates)."""
        return self._basis @ self._coefficients.T

    @cached_property
    def together_variances(self) -> Array:
        spread = np.matmul(self._basis, self._covariances)
        return np.einsum("kib,ib->ik", spread, self._basis)

    @property
    def models(self) -> Array:
        """Expected distances from the start."""
        return self.together + self.prior.own * self._precisions * (self.away - self.together)


def most_likely(away: Array, variances: Array, candidates: Sequence[Array], prior: Prior) -> Posterior:
    """With the patterns that make the looks at intercepts, which are the clearest ones, most likely."""
    intercepts = Prior(prior.common[-1:], prior.shared[-1:], prior.own[-1:])

    def likelihood(patterns: Array) -> float:
        return float(Posterior(away[:, -1:], variances[:, -1:], patterns, intercepts).log_likelihood[0])

    return Posterior(away, variances, max(candidates, key=likelihood), prior)
