"""Release once and propagate, between neighbors: what one agent does with its release and the relays it gets.

An agent knows its own release, the public variance of it, and its ties; it never learns the graph. Stages:

    reach      how many hops two agents can be apart;
    best       the largest precision of a release, and the smallest number of an agent;
    mixing     push-sum of public noise: how many rounds everyone needs to agree;
    mean       push-sum of the releases and of the public noise, by precision;
    precision  push-sum of the precisions, with all weight at the agent of the smallest number: their sum;
    sweep      supplement C, again and again: (neighbors' mean + μc·anchor)/(1 + μc), and
    settled    whether anything still changes anywhere;
    tally      push-sum of what tells how good the result is (flockwise.protocol.quality).

What is sent is made of releases, relays and public values alone. The agent is given no population, and
this module cannot import one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from flockwise.protocol.conversation import Conversation, Direction, Public, Say, Vector
from flockwise.protocol.gossip import PROBE_COLUMNS, Gossip, sum_heard
from flockwise.protocol.quality import SCALARS, Smoothed, correlations, tallies
from flockwise.protocol.reach import find_reach
from flockwise.protocol.rows import NOISE_COLUMNS, Rows, public_noise, weighted
from flockwise.protocol.shrinkage import LEAST_CONFIDENCE, kept_share

# Propagation has settled when nobody's row changes by more than this share of the largest entry.
SETTLED: Final = 1e-8
# Sweeps before the first look at that; then a quarter more each time.
FIRST_SWEEPS: Final = 32
SWEEP_GROWTH: Final = 1.25
MOST_SWEEPS: Final = 5000


class _Best(NamedTuple):
    """The same for all agents: the largest precision of a release, and the smallest number, negated."""

    precision: float
    leader: float


def largest_relay(dimension: int) -> int:
    """How many coordinates a relay has at most: when agents compare their means, from both sides."""
    return 2 * max(dimension + NOISE_COLUMNS, SCALARS + 2 * NOISE_COLUMNS)


def find_direction(
    number: int, public: Public, weights: Mapping[int, float], tradeoff: float
) -> Conversation[Direction | None]:
    """The whole protocol, as one agent sees it; None if nobody released anything.

    tradeoff: μ of the propagation; the same for all agents.
    """
    assert public.signal_power is not None
    gossip = Gossip(weights, (yield from find_reach(number)))
    variances = np.array([public.variance])
    precision = 1 / public.variance
    best = _Best(*(yield from gossip.largest("best", np.array([precision, -number]))).tolist())
    if best.precision == 0:
        return None
    released = Rows(public.vector[None], public_noise(np.array([number]), variances))
    columns = weighted(released, variances)[0]
    rounds = yield from gossip.rounds_to_agree("mixing", columns[-PROBE_COLUMNS - 1 :])
    means = Rows.of_columns((yield from gossip.mean("mean", columns, rounds))[None])
    sums = np.array([precision, float(-number == best.leader)])
    (total,) = yield from gossip.mean("precision", sums, rounds)
    before = _without_noise_in_mean(released, means, kept_share(means.vectors[0], float(total)), precision)
    pull = tradeoff * max(precision / best.precision, LEAST_CONFIDENCE)
    after = Rows.of_columns((yield from _propagated(before.columns()[0], pull, weights, gossip))[None])
    vectors, noise = (Smoothed(*pair) for pair in zip(before, after, strict=True))
    tallied = tallies(vectors, noise, variances)
    sums = np.concatenate([precision * tallied[0], [precision]])
    averaged = yield from gossip.mean("tally", sums, rounds)
    quality = correlations(tallied, averaged, len(public.vector), public.signal_power)
    return Direction(after.vectors[0], float(quality[0]))


def _without_noise_in_mean(released: Rows, means: Rows, kept: float, precision: float) -> Rows:
    """As `ShrunkenMean` does it; one that released nothing stands at what is kept of the mean."""
    vectors = released.vectors if precision > 0 else means.vectors
    return Rows(vectors - (1 - kept) * means.vectors, released.noise - (1 - kept) * means.noise)


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
