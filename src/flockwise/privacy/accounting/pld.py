"""Numerical composition of privacy loss distributions, by Google's dp-accounting.

It takes events of known privacy curves in any mixture and is as tight as its grid of losses,
which is fine enough for four digits. Every rounding is upward: the distribution of one event is the
"connect the dots" one (Doroshenko et al., PoPETs 2022), which dominates the true one.

**Vectors.** An L1 change of Δ may be split over coordinates in any way. The worst split is none: the
pair of one-dimensional laws that are Δ apart dominates every other, on a grid and hence, in the limit,
off it. Proof, for integer noise with probabilities ∝ r^|x|, r = e^(−a), and shifts d₁ + d₂ = D:

- Let λ_d be the distribution of the loss S of a shift d under the measure √(PQ). It has the mass
  r^(d/2)/(1+r) at ±d and (1−r) times that at each of d−2, …, −(d−2) (in units of a). Two coordinates
  have the convolution λ_{d₁}∗λ_{d₂}, since losses add up and √(PQ) is a product.
- ν = λ_D − λ_{d₁}∗λ_{d₂} is positive at ±D and negative between: in units of r^(D/2)/(1+r)², the first
  has 1 − r² at every inner point, and the second at least 2(1−r), 2−r or 2 where an end of one law
  meets the inside or an end of the other, which every inner point has.
- P and Q are probabilities, so ∫e^(±aS/2) dν = 0. A hockey-stick divergence is ∫f dν with
  f = max(0, e^(aS/2) − e^(ε−aS/2)). Let g = αe^(aS/2) + βe^(−aS/2) equal f at ±D. Where such a
  combination is ≤ 0 at both ends it is ≤ 0 between, hence f ≤ g there and ∫f dν = ∫(f − g) dν ≥ 0.

So every divergence of the undivided shift is at least that of the divided one. By induction this
holds for any number of coordinates, and a smaller shift is dominated as a part of a larger one.

Integer noise is not accounted here: its distribution depends on how the shift lies on the grid.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant
from flockwise.privacy.accounting.zcdp import Zcdp
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Gaussian, Mechanism

# Steps of the grid of losses within the typical loss of one event. Rounding to the grid adds about
# (1/200)²/6 of the variance of the loss, which moves ε in its sixth digit.
STEPS_PER_LOSS = 200
# What Fourier transforms in double precision may take off δ: ten times the most that was measured, for
# up to 20,000 events. A δ must be far above it.
FOURIER_ROUNDING = 1e-12
LEAST_DELTA = 1e-10
# Normal noise beyond so many standard deviations, with a probability of 1e-23, counts as a full loss.
NORMAL_TAIL = 10.0


class Pld(Accountant):
    """As tight as numerics allow; only for events whose noise is fixed up front."""

    name: ClassVar[str] = "pld"
    label: ClassVar[str] = "PLD"
    least_delta: ClassVar[float] = LEAST_DELTA
    takes_zero: ClassVar[bool] = True
    precision: ClassVar[float] = 1e-7

    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        pure = math.fsum(event.epsilon for event in events)
        if delta == 0:
            return pure
        if delta < LEAST_DELTA:
            raise PrivacyError(
                f"pld resolves a delta of at least {LEAST_DELTA}, got delta={delta!r}; use gdp, zcdp or basic"
            )
        # Composition can only help; in the last digits the rounding upward may say otherwise.
        return min(pure, float(_composed(events).get_epsilon_for_delta(delta - FOURIER_ROUNDING)))

    def first_guess(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        pure = budget.epsilon / math.fsum(costs) if unit.is_pure else 0.0
        return max(pure, Zcdp().rate(unit, costs, budget)) if budget.delta else pure


def _composed(events: Sequence[Mechanism]) -> Any:
    """The distribution of the total loss: equal events by powers, then in pairs, pairs of pairs, …

    A balanced tree keeps most convolutions short. Laws are sorted, so the order of events has no
    influence on a single bit.
    """
    counts = Counter(
        dataclasses.replace(event, sensitivity=1.0, scale=event.multiplier)
        for event in events
        if math.isinf(event.mu)
    )
    mu = math.sqrt(math.fsum(event.multiplier**-2 for event in events if math.isfinite(event.mu)))
    if mu > 0:
        # All normal events together are exactly one of their joint μ (flockwise.privacy.accounting.gaussian).
        counts[Gaussian(1.0, 1 / mu)] = 1
    squares = math.fsum(times * event.multiplier**-2 for event, times in counts.items())
    interval = math.sqrt(squares / counts.total()) / STEPS_PER_LOSS
    laws = sorted(counts.items(), key=lambda law: (law[0].name, law[0].multiplier, law[0].dimension))
    level = [_single(event, interval).self_compose(times) for event, times in laws]
    while len(level) > 1:
        pairs = [level[i].compose(level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def _single(event: Mechanism, interval: float) -> Any:
    """The dominating distribution of the loss of one event."""
    # Half a second to import: not for those who account otherwise.
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    multiplier = event.multiplier
    center, reach = (
        (0, 1 / multiplier) if math.isinf(event.mu) else (0.5 / multiplier**2, NORMAL_TAIL / multiplier)
    )
    first, last = math.floor((center - reach) / interval), math.ceil((center + reach) / interval)
    deltas = event.privacy_curve(interval * np.arange(first, last + 1, dtype=np.float64))
    # The library has makers of its own, which walk over the losses one by one and take ten times as long.
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)
