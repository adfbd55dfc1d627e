"""The learned prior, in public steps: what sums over all agents teach about the models of a population.

Samples are scaled to ‖x‖ ≤ 1 and |y| ≤ 1. The first sum is M = Σ vvᵀ over the samples of all agents, where
v = (x, t·y)/√(‖x‖² + t²) with t² = ½, plus noise. Every v has length at most 1, so replacing a sample moves M
by at most √2 in Frobenius norm. The weights 1/(‖x‖² + t²) look at x alone, so weighted least squares on M has
no bias. Their sum is known from M itself: Σ 1/(‖x‖² + t²) = (N − tr A)/t².

    A, b, c    the blocks of M for xxᵀ, xy and y²: what one regression for everyone needs
    θ₀, V₀     the posterior of that common model, from the public variance of the noise in b − Aθ and priors
               of several sizes, for slopes and for intercepts. So heavy noise turns into a wide prior, and
               not into a wrong model; and where the common model is small, little noise is left in it
    s²         the variance that θ₀ leaves, averaged by precision with a default

For the logistic loss θ₀ is one Newton step from 0 (Hessian A/4, gradient b/2) and s² is 1.

Agents differ from θ₀ by a spread Σ. Further sums can measure it, in units of s²:

    number    how far agents differ in their intercepts; without an intercept, in all coefficients together
    numbers   how far in their intercepts, and in a third sum how far in their slopes
    matrix    the directions in which they differ, where there are many coefficients
    default   nothing is asked: the spread that populations have on average

A sum is asked for only where its public noise is smaller than what is unknown beforehand. What its answer
makes likely is in flockwise.protocol.shares. The fewer answers there are, the wider is Σ: too narrow a prior
makes agents who differ more than usual worse than alone, too wide a one costs little. If θ₀ may explain no
more than the mean of unrelated models would, a single number is asked about all coefficients together, and
agents who differ much are thought to be likelier. The result is the normal prior N(θ₀, V₀ + Σ), and the
variance that is left within agents.

All numbers in capitals here and there were chosen on generated data and on ten grouped data sets
(docs/learned-prior.md names them).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.sums import OpenedSum
from flockwise.protocol.conversation import Conversation, SumRequest
from flockwise.protocol.shares import LARGEST_SHARE, LEAST_SHARE, Found, Shares, likely_shares
from flockwise.protocol.unknown_size import Matrix, Vector, likely_model

Spread: TypeAlias = Literal["default", "number", "numbers", "matrix"]

# t²: the weight of targets beside features.
TARGET_SHARE: Final = 0.5
# The largest variance of a common model's predictions that is tried; targets lie within ±1.
COMMON_VARIANCE: Final = 0.25
# The variance that a common model leaves, before anything is known, and by which factor it may be off, as a
# logarithm.
RESIDUAL, RESIDUAL_FACTOR = 0.1, 0.5
LEAST_RESIDUAL, LARGEST_RESIDUAL = 0.005, 1.0
# Noise up to which it is worth asking how far intercepts differ, and how far slopes do.
LARGEST_NOISE: Final = 0.14
LARGEST_SLOPE_NOISE: Final = 0.09
# Without an intercept: how much lies between agents in everything.
WHOLE_SHARE, WHOLE_SD = 0.15, 0.3
# A matrix is asked for from so many coefficients on, if the noise in its eigenvalues is at most so large.
MATRIX_COEFFICIENTS: Final = 10
MATRIX_NOISE: Final = 0.125
# What further sums cost, as shares of the budget.
FURTHER_SHARES: Final[Mapping[Spread, tuple[float, ...]]] = {
    "default": (),
    "number": (0.2,),
    "numbers": (0.2, 0.2),
    "matrix": (0.7,),
}
# Estimates of second moments are kept away from 0 by this share of their mean.
LEAST_MOMENT: Final = 0.02
# Var(logistic) ≈ 2.9: how much a wide spread of scores flattens the mean response.
LOGISTIC_VARIANCE: Final = 2.9
LARGEST_RESPONSE: Final = 0.65
NOT_OPENED: Final = "too many agents were absent to open a sum"
NOT_MEASURED: Final = "no agent with two samples was there to tell how far agents differ"


@dataclass(frozen=True, eq=False)
class PriorFacts:
    """What is public beforehand.

    samples: of each agent, weighted as the agent is. has_intercept: whether the last feature is one.
    two_classes: targets are −1 and +1, and the loss is the logistic one. moments_std: of the noise in a
    diagonal entry of the first sum. spread: what is asked in further sums. pairs: each agent's weight
    there, by the number of directions in which it looks. spread_std: of the noise in an entry of it. steps:
    what a grid step of the first sum and of further ones is worth.
    """

    samples: Vector
    n_features: int
    has_intercept: bool
    two_classes: bool
    moments_std: float
    spread: Spread
    pairs: Mapping[int, Vector]
    spread_std: float
    steps: tuple[float, float]

    def among(self, present: tuple[int, ...]) -> PriorFacts:
        """The same where only these agents delivered, by position: less is added up, and less noise."""
        if len(present) == len(self.samples):
            return self
        noise = math.sqrt(len(present) / len(self.samples))
        chosen = list(present)
        return replace(
            self,
            samples=self.samples[chosen],
            pairs={directions: pairs[chosen] for directions, pairs in self.pairs.items()},
            moments_std=noise * self.moments_std,
            spread_std=noise * self.spread_std,
        )

    @property
    def n_samples(self) -> float:
        return float(self.samples.sum())

    def found(self, total: NDArray[np.int64], directions: int) -> Found:
        """The answer of a further sum that looked in so many directions."""
        pairs = self.pairs[directions]
        weight = float(pairs.sum())
        values = total.astype(np.float64) * (self.steps[1] / weight)
        return Found(values, self.spread_std / weight, weight**2 / float((pairs**2).sum()))

    @property
    def n_alike(self) -> float:
        """How many agents of equal size have as many samples."""
        squares = float((self.samples**2).sum())
        return self.n_samples**2 / squares if squares > 0 else 0.0

    @property
    def response(self) -> float:
        """The curvature of the loss in the score, for residuals of variance 1: ¼ for two classes."""
        return 0.25 if self.two_classes else 1.0


class Common(NamedTuple):
    """What the first sum taught: the common model and its uncertainty, E[xxᵀ] times the response, and s²."""

    mean: Vector
    covariance: Matrix
    moments: Matrix
    residual: float


class Around(NamedTuple):
    """Where a further sum looks: u = basisᵀx·(y − prediction)/s, for samples scaled as in the first sum."""

    mean: Vector
    basis: Matrix
    residual: float


class Differences(NamedTuple):
    """Σ, and what is left of s² within agents."""

    spread: Matrix
    within: float


class LearnedValues(NamedTuple):
    """θ ~ N(mean, covariance) and the variance within agents, for samples scaled to ‖x‖ ≤ 1 and |y| ≤ 1."""

    mean: Vector
    covariance: Matrix
    residual: float


def learn_prior(facts: PriorFacts) -> Conversation[LearnedValues | str]:
    """One agent's side: it asks for sums, and ends with the prior that all agents end with.

    Or with the reason why agents keep their local models.
    """
    first: OpenedSum | None = yield SumRequest("moments")
    if first is None:
        return NOT_OPENED
    seen = facts.among(first.present)
    common = common_model(first.total.astype(np.float64) * facts.steps[0], seen)
    unrelated = facts.has_intercept and seem_unrelated(common, seen)
    found: list[Found] = []
    for around in looks_around(common, facts, unrelated):
        further: OpenedSum | None = yield SumRequest("spread", around)
        if further is None:
            return NOT_OPENED
        seen, directions = facts.among(further.present), around.basis.shape[1]
        if not seen.pairs[directions].any():
            return NOT_MEASURED
        found.append(seen.found(further.total, directions))
    differences = differences_of(found, common, facts, unrelated)
    return LearnedValues(common.mean, common.covariance + differences.spread, differences.within)


def seem_unrelated(common: Common, facts: PriorFacts) -> bool:
    """Whether the common model may explain no more than it would if agents had nothing in common.

    The mean of n unrelated models explains about 1/n of what they explain one by one, and seldom twice that;
    noise adds to it, and seldom more than two standard deviations above its mean. Agents may then differ far
    more than is usual.
    """
    explained = float(common.mean @ common.moments @ common.mean)
    noisy = common.moments @ common.covariance
    noise = float(np.trace(noisy)) + 2 * math.sqrt(2 * float(np.trace(noisy @ noisy)))
    whole = 1.0 if facts.two_classes else explained + common.residual
    return facts.n_alike > 0 and explained < 2 / facts.n_alike * whole + noise


def symmetric(upper: Vector, size: int) -> Matrix:
    """A symmetric matrix from its upper triangle, row by row."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = upper
    return matrix + np.triu(matrix, 1).T


def common_model(moments: Vector, facts: PriorFacts) -> Common:
    """θ₀, V₀, E[xxᵀ] and s² from the first sum."""
    p, noise = facts.n_features, facts.moments_std**2
    matrix = symmetric(moments, p + 1)
    target_scale = math.sqrt(TARGET_SHARE)
    products, squares = matrix[:p, p] / target_scale, matrix[p, p] / TARGET_SHARE
    # Σ 1/(‖x‖² + t²), which lies between N/(1 + t²) and N/t².
    weight = (facts.n_samples - np.trace(matrix[:p, :p])) / TARGET_SHARE
    weight = min(max(weight, facts.n_samples / (1 + TARGET_SHARE)), facts.n_samples / TARGET_SHARE)
    whole = _shrunken(matrix[:p, :p], noise, LEAST_MOMENT * weight)

    def noise_met(model: Vector) -> float:
        """The noise of A counts as much as the model is long."""
        length = facts.response**2 * float(model @ model) * (1 + 1 / p)
        return noise / 2 * (slope**2 / TARGET_SHARE + length)

    slope = 0.5 if facts.two_classes else 1.0
    largest = COMMON_VARIANCE / (np.trace(whole) / weight * facts.response)
    groups = np.zeros(p, dtype=np.intp)
    if facts.has_intercept and p > 1:
        groups[-1] = 1
    mean, covariance = likely_model(whole * facts.response, slope * products, groups, largest, noise_met)
    residual = 1.0
    if not facts.two_classes:
        left = squares - 2 * mean @ products + mean @ matrix[:p, :p] @ mean
        length = float(mean @ mean)
        left_std = facts.moments_std * math.sqrt(1 / TARGET_SHARE**2 + 2 * length / TARGET_SHARE + length**2)
        residual = likely_residual(float(left) / weight, left_std / weight)
    moments_of_x = whole * facts.response / weight
    return Common(mean, covariance, moments_of_x, residual)


def likely_residual(estimate: float, std: float) -> float:
    """The posterior mean of s²; a noisy estimate can even be negative."""
    sizes = np.geomspace(LEAST_RESIDUAL, LARGEST_RESIDUAL, 400)
    logs = -0.5 * (np.log(sizes / RESIDUAL) / RESIDUAL_FACTOR) ** 2 - 0.5 * ((estimate - sizes) / std) ** 2
    after = np.exp(logs - logs.max())
    return float(sizes @ after / after.sum())


def _shrunken(matrix: Matrix, noise: float, least: float) -> Matrix:
    """Noisy second moments, moved toward a multiple of the identity as far as they are noise."""
    size = len(matrix)
    level = max(np.trace(matrix), least) / size
    apart = matrix - level * np.eye(size)
    square = float((apart**2).sum())
    signal = max(square - noise * size * (size + 1) / 2, 0.0)
    values, axes = np.linalg.eigh(level * np.eye(size) + (signal / square if square > 0 else 0.0) * apart)
    return (axes * np.maximum(values, LEAST_MOMENT * level)) @ axes.T


def _averaged(estimate: float, std: float, default: float, default_std: float) -> float:
    """The mean of an estimate and a default, by their precisions."""
    precision, before = 1 / std**2, 1 / default_std**2
    return float((precision * estimate + before * default) / (precision + before))


def differences_of(found: Sequence[Found], common: Common, facts: PriorFacts, unrelated: bool) -> Differences:
    """From further sums; where there is none, those that populations have on average."""
    if facts.spread == "matrix":
        return _from_matrix(found[0], common, facts)
    if not facts.has_intercept:
        share = (
            _averaged(float(found[0].values[0]), found[0].std, WHOLE_SHARE, WHOLE_SD)
            if found
            else WHOLE_SHARE
        )
        return _in_all_directions(common, facts, max(share, LEAST_SHARE))
    in_slopes = float(np.trace(_about_the_mean(common.moments)[1]) / np.trace(common.moments))
    together = unrelated and facts.spread == "number"
    shares = likely_shares(found, facts.n_features - 1, in_slopes, unrelated=unrelated, together=together)
    return _of_shares(common, facts, shares)


def _of_shares(common: Common, facts: PriorFacts, shares: Shares) -> Differences:
    """Of models that differ in their intercepts, in their slopes, and alike in all coefficients."""
    moments, p = common.moments, facts.n_features
    means, apart = _about_the_mean(moments)
    spreads = np.full(p, shares.slopes / max(np.trace(apart), LEAST_MOMENT * np.trace(moments)))
    spreads[-1] = shares.intercepts / moments[-1, -1]
    turn = np.eye(p)
    turn[-1, :-1] = -means
    spread = (turn * spreads) @ turn.T + shares.alike / np.trace(moments) * np.eye(p)
    scale = _stretch(facts, sum(shares)) * common.residual
    return Differences(scale * spread, _within(common, facts, sum(shares)))


def _about_the_mean(moments: Matrix) -> tuple[Vector, Matrix]:
    """The means of all features but the intercept, and the second moments around them."""
    means = moments[:-1, -1] / moments[-1, -1]
    return means, moments[:-1, :-1] - moments[-1, -1] * np.outer(means, means)


def _in_all_directions(common: Common, facts: PriorFacts, share: float) -> Differences:
    scale = _stretch(facts, share) * share * common.residual
    spread = scale / np.trace(common.moments) * np.eye(facts.n_features)
    return Differences(spread, _within(common, facts, share))


def _within(common: Common, facts: PriorFacts, share: float) -> float:
    """What is left of s² if so much of it lies between agents; two classes have errors of their own law."""
    return 1.0 if facts.two_classes else common.residual * (1 - min(share, LARGEST_SHARE))


def _stretch(facts: PriorFacts, spread: float) -> float:
    """How much larger the spread of scores is than that of the mean responses to them.

    A logistic response of scores with variance v has the slope ¼/√(1 + v/2.9) on average, so a spread
    T = (v/4)/(1 + v/2.9) of responses stands for v = 4T/(1 − 4T/2.9).
    """
    if not facts.two_classes:
        return 1.0
    return 1 / (1 - 4 * min(max(spread, 0.0), LARGEST_RESPONSE) / LOGISTIC_VARIANCE)


def looks_around(common: Common, facts: PriorFacts, unrelated: bool) -> list[Around]:
    """Where further sums look at what the common model leaves, one after the other."""
    if facts.spread == "default":
        return []
    moments = common.moments
    intercept = np.zeros((facts.n_features, 1))
    intercept[-1] = moments[-1, -1] ** -0.5
    if facts.spread == "numbers":
        means, apart = _about_the_mean(moments)
        bases = [intercept, np.vstack([np.eye(len(means)), -means]) @ _inverse_root(apart)]
    elif facts.spread == "number" and facts.has_intercept and not unrelated:
        bases = [intercept]
    else:
        bases = [_inverse_root(moments)]
    return [Around(common.mean, basis, common.residual) for basis in bases]


def _inverse_root(moments: Matrix) -> Matrix:
    values, axes = np.linalg.eigh(moments)
    return (axes * values**-0.5) @ axes.T


def _from_matrix(measured: Found, common: Common, facts: PriorFacts) -> Differences:
    """Directions that stand out of the noise, as strong as they are without it; the rest alike in all
    directions.

    Symmetric noise of standard deviation σ (σ/√2 off the diagonal) moves an eigenvalue θ to θ + r²/θ, r² =
    σ²p/2, and turns its axis so that a share 1 − r²/θ² of it is left; without any signal eigenvalues reach
    2r.
    """
    p = facts.n_features
    found, edge = symmetric(measured.values, p), measured.std * math.sqrt(p / 2)
    values, axes = np.linalg.eigh(found)
    kept = values > edge * (2 + 2 * p ** (-2 / 3))
    strong = (values[kept] + np.sqrt(values[kept] ** 2 - 4 * edge**2)) / 2
    rest_std = measured.std * math.sqrt(p)
    rest = _averaged(float(np.trace(found) - strong.sum()), rest_std, WHOLE_SHARE, WHOLE_SD)
    rest = max(rest, LEAST_SHARE)
    share = float(strong.sum()) + rest
    spreads = (axes[:, kept] * (strong - edge**2 / strong)) @ axes[:, kept].T + rest / p * np.eye(p)
    root = _inverse_root(common.moments)
    spread = _stretch(facts, share) * common.residual * root @ spreads @ root
    return Differences(spread, _within(common, facts, share))


def spread_to_ask(n_features: int, has_intercept: bool, stds: Mapping[str, float]) -> Spread:
    """What further sums should ask, from the public noise of each answer, in units of s².

    stds: of one entry, "number", "numbers" (that of slopes) and "matrix".
    """
    if n_features >= MATRIX_COEFFICIENTS and stds["matrix"] * math.sqrt(n_features / 2) <= MATRIX_NOISE:
        return "matrix"
    if has_intercept and n_features > 1 and stds["numbers"] <= LARGEST_SLOPE_NOISE:
        return "numbers"
    unknown = LARGEST_NOISE if has_intercept else WHOLE_SD
    return "number" if stds["number"] <= unknown else "default"
