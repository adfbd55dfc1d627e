"""Release once and propagate, between neighbors: what one agent does with its release and the relays it gets.

An agent knows its own release, the public variance of it, and its edges; it never learns the graph. Stages:

    reach      how many hops two agents can be apart;
    best       the largest precision of a release, and the smallest number of an agent;
    mixing     push-sum of public noise: how many rounds everyone needs to agree;
    mean       push-sum of the releases and of the public noise, by precision;
    precision  push-sum of the precisions, with all weight at the agent of the smallest number: their sum;
    sweep      supplement C, again and again: (neighbors' mean + μc·anchor)/(1 + μc), and
    settled    whether anything still changes anywhere;
    tally      push-sum of what tells how good the result is.

Messages are made of releases, relays and public values alone. The agent is given no population, and
this module cannot import one.

**How good smoothed releases are** is told from the releases themselves and public noise: no data, no cost.
Smoothing helps if neighbors resemble each other and harms if they do not. What an agent expects of
its smoothed vector a_i is its correlation with the truth t_i, of known power ‖t_i‖² = S:
ρ_i = ⟨E a_i, t_i⟩ / √(S·(‖E a_i‖² + p·N_i)), N_i being the variance of the noise left in a coordinate.
Both unknowns are means over agents, known up to noise of known size, so each is averaged with a
guess made before, by inverse variance. If the releases do not bear each other out, ρ_i falls to
what the agent's own share in a_i is worth, and it learns alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Positive, check_fields
from flockwise.errors import NetworkError
from flockwise.protocol.conversation import PROTOCOLS, Conversation, Direction, Public, Say, Vector
from flockwise.protocol.gossip import PROBE_COLUMNS, Gossip, sum_heard
from flockwise.protocol.reach import find_reach
from flockwise.protocol.rows import NOISE_COLUMNS, AgentRows, products, public_noise, weighted

# Propagation has settled when nobody's row changes by more than this share of the largest entry.
SETTLED: Final = 1e-8
# Sweeps before the first look at that; then a quarter more each time.
FIRST_SWEEPS: Final = 32
SWEEP_GROWTH: Final = 1.25
MOST_SWEEPS: Final = 5000
# Lower limit of a release's relative precision.
LEAST_CONFIDENCE: Final = 1e-6
# How much of t_i the others' part in a_i holds: the guess, and how sure it is. Measured: .6 to .75
# on the paper's graph, .13 when three of ten edges are random, 0 on a random graph.
RESEMBLANCE_GUESS: Final = 0.5
RESEMBLANCE_SPREAD: Final = 0.3
SMALLEST: Final = 1e-12
# How many numbers an agent tallies before the columns.
SCALARS: Final = 3


@PROTOCOLS.register
@dataclass(frozen=True)
class PropagationProtocol:
    """Propagation of the releases, with this μ; the same for all agents."""

    tradeoff: Positive
    name: ClassVar[str] = "propagation"

    def __post_init__(self) -> None:
        check_fields(self, NetworkError)

    def largest_relay(self, dimension: int) -> int:
        """When agents compare their means, from both sides."""
        return 2 * max(dimension + NOISE_COLUMNS, SCALARS + 2 * NOISE_COLUMNS)

    def converse(
        self, number: int, public: Public, weights: Mapping[int, float]
    ) -> Conversation[Direction | None]:
        """None if nobody released anything."""
        assert public.signal_power is not None
        gossip = Gossip(weights, (yield from find_reach(number)))
        variances = np.array([public.variance])
        precision = 1 / public.variance
        best, leader = (yield from gossip.largest("best", np.array([precision, -number]))).tolist()
        if best == 0:
            return None
        released = AgentRows(public.vector[None], public_noise(np.array([number]), variances))
        columns = weighted(released, variances)[0]
        rounds = yield from gossip.rounds_to_agree("mixing", columns[-PROBE_COLUMNS - 1 :])
        means = AgentRows.of_columns((yield from gossip.mean("mean", columns, rounds))[None])
        sums = np.array([precision, float(-number == leader)])
        (total,) = yield from gossip.mean("precision", sums, rounds)
        before = _without_noise_in_mean(
            released, means, kept_share(means.vectors[0], float(total)), precision
        )
        pull = self.tradeoff * max(precision / best, LEAST_CONFIDENCE)
        after = AgentRows.of_columns(
            (yield from _propagated(before.columns()[0], pull, weights, gossip))[None]
        )
        tallied = _tallies(before, after, variances)
        sums = np.concatenate([precision * tallied[0], [precision]])
        averaged = yield from gossip.mean("tally", sums, rounds)
        quality = _correlations(tallied, averaged, len(public.vector), public.signal_power)
        return Direction(after.vectors[0], float(quality[0]))


def _without_noise_in_mean(released: AgentRows, means: AgentRows, kept: float, precision: float) -> AgentRows:
    """As `ShrunkenMean` does it; one that released nothing stands at what is kept of the mean."""
    vectors = released.vectors if precision > 0 else means.vectors
    return AgentRows(vectors - (1 - kept) * means.vectors, released.noise - (1 - kept) * means.noise)


def _propagated(
    anchor: Vector, pull: float, weights: Mapping[int, float], gossip: Gossip
) -> Conversation[Vector]:
    """Sweeps of all agents together, until they have settled; all of them see that in the same round."""
    now, sweeps, goal = anchor, 0, FIRST_SWEEPS
    while True:
        before, now = now, (yield from _sweep(now, anchor, pull, weights))
        sweeps += 1
        if sweeps == goal:
            changes = np.array([np.abs(now - before).max(), np.abs(now).max()])
            change, size = yield from gossip.largest(f"settled/{sweeps}", changes)
            if change <= SETTLED * size or sweeps >= MOST_SWEEPS:
                return now
            goal = math.ceil(SWEEP_GROWTH * goal)


def _sweep(now: Vector, anchor: Vector, pull: float, weights: Mapping[int, float]) -> Conversation[Vector]:
    """One update of supplement C; of neighbors not heard the weights go to the others."""
    total, present = sum_heard(weights, (yield Say("sweep", now)), len(now))
    return now if present == 0 else (total / present + pull * anchor) / (1 + pull)


class ShrunkenMean(NamedTuple):
    """The precision-weighted mean of all releases, and the share of it that stands out of its noise."""

    mean: NDArray[np.float64]
    shares: NDArray[np.float64]
    kept: float

    def replace_in(self, vectors: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
        """v_i − (1 − kept)·mean, for an agent that released nothing kept·mean."""
        has_released = np.isfinite(variances)[:, None]
        return np.where(has_released, vectors, self.mean) - (1 - self.kept) * self.mean

    def replace_in_noise(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same done to noise, whose mean is its own."""
        return noise - (1 - self.kept) * (self.shares @ noise)


def shrunken_mean(vectors: NDArray[np.float64], variances: NDArray[np.float64]) -> ShrunkenMean:
    """Σ(v_i/s_i²)/Σ(1/s_i²), kept by the positive part of James and Stein's factor 1 − p/(‖mean‖²·Σ1/s_i²).

    Agents who resemble nobody far away share little, and then the mean is mostly noise that no
    smoothing removes; where all agents have much in common it is kept.
    """
    precisions = 1 / variances
    shares = precisions / precisions.sum()
    mean = shares @ vectors
    return ShrunkenMean(mean, shares, kept_share(mean, float(precisions.sum())))


def kept_share(mean: NDArray[np.float64], precision: float) -> float:
    """The positive part of James and Stein's factor; `precision` is that of the mean, Σ1/s_i²."""
    square = float(mean @ mean)
    return max(0.0, 1 - len(mean) / precision / square) if square > 0 else 0.0


def precision_confidences(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """c_i = min_j s_j² / s_i²: an agent counts as much as its release is precise, at most 1."""
    return np.maximum(variances.min() / variances, LEAST_CONFIDENCE)


def expected_correlations(
    before: AgentRows,
    after: AgentRows,
    variances: NDArray[np.float64],
    shares: NDArray[np.float64],
    signal: float,
) -> NDArray[np.float64]:
    """ρ_i for every agent.

    AgentRows hold the releases, and columns of public noise with the releases' `variances` s_i².
    shares: each agent's weight in means over agents, its share of all precision. signal: S.
    """
    tallied = _tallies(before, after, variances)
    return _correlations(tallied, shares @ tallied, before.vectors.shape[1], signal)


def variance_around(before: AgentRows, after: AgentRows, shares: NDArray[np.float64]) -> float:
    """How far truths are from what smoothing made of the releases, per coordinate, and a standard error.

    By moments: the mean over agents of ‖v_i − a_i‖², less what the noise in both explains. Where noise hides
    it the standard error is large, so that nobody trusts what cannot be seen.
    """
    away, noise = before.vectors - after.vectors, before.noise - after.noise
    dimension, columns = away.shape[1], shares @ noise**2
    square = float(shares @ products(away, away)) / dimension - float(columns.mean())
    return max(square, 0.0) + float(columns.std()) / math.sqrt(dimension)


def _tallies(before: AgentRows, after: AgentRows, variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per agent, what is averaged over agents: product, own share and square, then columns of noise.

    a_i contains own_i·v_i; the covariance of noise before and after is own_i·s_i². The columns, of one
    coordinate each, tell how far product and square may be off.
    """
    dimension, columns = before.vectors.shape[1], before.noise.shape[1]
    covariances, left = (products(rows.noise, after.noise) / columns for rows in (before, after))
    own = np.clip(covariances / variances, 0.0, 1.0)
    product, square = (products(rows.vectors, after.vectors) for rows in (before, after))
    scalars = [product - dimension * covariances, own, square - dimension * left]
    return np.column_stack([*scalars, before.noise * after.noise, after.noise**2])


def _correlations(
    tallied: NDArray[np.float64], means: NDArray[np.float64], dimension: int, signal: float
) -> NDArray[np.float64]:
    """ρ_i from what agents tallied, one row each, and the means of it over all agents by precision."""
    own, of_products, of_squares = tallied[:, 1], *np.split(means[SCALARS:], 2)
    left = np.split(tallied[:, SCALARS:], 2, axis=1)[1].mean(axis=1)
    product, mean_own, square = means[:SCALARS].tolist()
    others = max(1 - mean_own, SMALLEST)
    error = _error(of_products, dimension) / signal
    resemblance = _blended((product / signal - mean_own) / others, error / others, RESEMBLANCE_GUESS)
    squares = _blended(square / signal, _error(of_squares, dimension) / signal, RESEMBLANCE_GUESS**2)
    # In units of S; a length is at least its projection.
    projections = own + resemblance * (1 - own)
    lengths = np.maximum(squares, projections**2) + dimension * left / signal
    return projections / np.sqrt(np.maximum(lengths, SMALLEST))


def _error(columns: NDArray[np.float64], dimension: int) -> float:
    """Standard error of a mean over agents of sums over p coordinates, from columns of one each."""
    return float(columns.std()) * math.sqrt(dimension)


def _blended(measured: float, error: float, guess: float) -> float:
    """Measurement and guess by inverse variance, from 0 to 1."""
    weight = RESEMBLANCE_SPREAD**2 / (RESEMBLANCE_SPREAD**2 + error**2)
    return float(np.clip(weight * measured + (1 - weight) * guess, 0.0, 1.0))
