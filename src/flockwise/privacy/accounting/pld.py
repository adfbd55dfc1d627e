"""Numerical composition of privacy loss distributions, by Google's dp-accounting.

It takes Laplace and real-valued normal events in any mixture and is as tight as its grid of losses,
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
- P and Q are probabilities, so that ∫e^(±aS/2) dν = 0. A hockey-stick divergence is ∫f dν with
  f = max(0, e^(aS/2) − e^(ε−aS/2)). Let g = αe^(aS/2) + βe^(−aS/2) equal f at ±D. Where such a
  combination is ≤ 0 at both ends it is ≤ 0 between, hence f ≤ g there and ∫f dν = ∫(f − g) dν ≥ 0.

So every divergence of the undivided shift is at least that of the divided one. By induction this
holds for any number of coordinates, and a smaller shift is dominated as a part of a larger one.

Normal noise on a grid is refused: its distribution depends on how the shift lies on the grid, and it
is proven for zCDP only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant, gaussian_mu
from flockwise.privacy.accounting.zcdp import Zcdp
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Gaussian, Laplace, Mechanism

# Steps of the grid of losses within the typical loss of one event. Rounding to the grid adds about
# (1/200)²/6 of the variance of the loss, which moves ε in its sixth digit.
STEPS_PER_LOSS = 200
# What Fourier transforms in double precision may take off δ: ten times the most that was measured, for
# up to 20,000 events. A δ must be far above it.
FOURIER_ROUNDING = 1e-12
LEAST_DELTA = 1e-10
# Normal noise beyond so many standard deviations, with a probability of 1e-23, counts as a full loss.
NORMAL_TAIL = 10.0
# A sensitivity that is a whole number of grid steps may come out of a division as a little less.
_ROUNDING = 1e-9


class Pld(Accountant):
    """As tight as numerics allow; only for events whose noise is fixed up front."""

    name: ClassVar[str] = "pld"
    label: ClassVar[str] = "PLD"
    least_delta: ClassVar[float] = LEAST_DELTA
    precision: ClassVar[float] = 1e-7

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        for event in events:
            _check(event)
        if not events:
            return 0.0
        pure = math.fsum(event.epsilon if isinstance(event, Laplace) else math.inf for event in events)
        if delta == 0:
            return pure
        if delta < LEAST_DELTA:
            raise PrivacyError(
                f"pld resolves a delta of at least {LEAST_DELTA}, got delta={delta!r}; use gdp, zcdp or basic"
            )
        # Composition can only help; in the last digits the rounding upward may say otherwise.
        return min(pure, float(_composed(events).get_epsilon_for_delta(delta - FOURIER_ROUNDING)))

    def first_guess(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        pure = budget.epsilon / math.fsum(costs) if isinstance(unit, Laplace) else 0.0
        return max(pure, Zcdp().rate(unit, costs, budget)) if budget.delta else pure


def _check(event: Mechanism) -> None:
    if isinstance(event, Gaussian):
        gaussian_mu(event, Pld.name)
    elif not isinstance(event, Laplace):
        raise PrivacyError(f"pld accounts laplace and gaussian events, got a {event.name} event; use basic")


def _composed(events: Sequence[Mechanism]) -> Any:
    """The distribution of the total loss: equal events by powers, then in pairs, pairs of pairs, …

    A balanced tree keeps most convolutions short. Laws are sorted, so that the order of events has no
    influence on a single bit.
    """
    counts = Counter(_law(event) for event in events if isinstance(event, Laplace))
    mu = math.sqrt(math.fsum(event.multiplier**-2 for event in events if isinstance(event, Gaussian)))
    if mu > 0:
        # All normal events together are exactly one of their joint μ (flockwise.privacy.accounting.gdp).
        counts[Gaussian.name, 1 / mu, 0] = 1
    squares = math.fsum(times * multiplier**-2 for (_, multiplier, _), times in counts.items())
    interval = math.sqrt(squares / counts.total()) / STEPS_PER_LOSS
    level = [_single(law, interval).self_compose(times) for law, times in sorted(counts.items())]
    while len(level) > 1:
        pairs = [level[i].compose(level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def _law(event: Laplace) -> tuple[str, float, int]:
    """What the loss of an event depends on: the kind, the noise for sensitivity 1, and grid steps or 0."""
    if event.grid is None:
        return event.name, event.multiplier, 0
    # Sums on a grid change by whole steps, so that a fraction of one cannot occur.
    steps = max(1, math.floor(event.sensitivity / event.grid * (1 + _ROUNDING)))
    return event.name, event.scale / event.grid / steps, steps


def _single(law: tuple[str, float, int], interval: float) -> Any:
    """The dominating distribution of the loss of one event."""
    # Half a second to import: not for those who account otherwise.
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    name, multiplier, grid_steps = law
    center, reach = (
        (0.5 / multiplier**2, NORMAL_TAIL / multiplier) if name == "gaussian" else (0, 1 / multiplier)
    )
    first, last = math.floor((center - reach) / interval), math.ceil((center + reach) / interval)
    losses = interval * np.arange(first, last + 1, dtype=np.float64)
    if name == Gaussian.name:
        deltas = normal_delta(losses, multiplier)
    elif grid_steps == 0:
        deltas = laplace_delta(losses, multiplier)
    else:
        deltas = integer_laplace_delta(losses, multiplier, grid_steps)
    # The library has makers of its own, which walk over the losses one by one and take ten times as long.
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def normal_delta(epsilons: NDArray[np.float64], multiplier: float) -> NDArray[np.float64]:
    """δ(ε) of normal noise: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), μ = 1/multiplier."""
    from scipy.special import log_ndtr, ndtr  # slow to import, as in search.py

    mu = 1 / multiplier
    here = ndtr(mu / 2 - epsilons / mu)
    there = np.exp(epsilons + log_ndtr(-mu / 2 - epsilons / mu))
    return (here - there).clip(0, 1)


def laplace_delta(epsilons: NDArray[np.float64], multiplier: float) -> NDArray[np.float64]:
    """δ(ε) of Laplace noise: 1 − e^((ε − ε₀)/2) up to ε₀ = 1/multiplier, and 1 − e^ε from −ε₀ down."""
    return -np.expm1(np.minimum(epsilons, (epsilons - 1 / multiplier) / 2)).clip(None, 0)


def integer_laplace_delta(
    epsilons: NDArray[np.float64], multiplier: float, grid_steps: int
) -> NDArray[np.float64]:
    """δ(ε) of integer noise with probabilities ∝ r^|x|, r = e^(−a), for a shift of D = grid_steps.

    multiplier: 1/(aD). The best test is x ≤ k, with the probability 1 − r^(k+1)/(1+r) here and
    r^(D−k)/(1+r) there for 0 ≤ k < D, where k is the last point whose loss a(D − 2k) exceeds ε.
    """
    rate = 1 / (multiplier * grid_steps)
    last = np.clip(np.ceil((grid_steps - epsilons / rate) / 2) - 1, 0, grid_steps - 1)
    log_both = -np.log1p(math.exp(-rate))
    here = 1 - np.exp(log_both - rate * (last + 1))
    there = np.exp(epsilons + log_both - rate * (grid_steps - last))
    # Beyond the largest loss no test is left; below the least one the test is always passed.
    return np.where(epsilons >= rate * grid_steps, 0.0, np.maximum(here - there, -np.expm1(epsilons))).clip(
        0, 1
    )
