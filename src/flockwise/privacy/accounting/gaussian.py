"""The exact privacy of real-valued normal noise, and the paper's remark on it.

With μ = sensitivity/σ, normal noise is (ε, δ)-differentially private if and only if
δ ≥ Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ): Balle and Wang, "Improving the Gaussian mechanism for
differential privacy" (ICML 2018), Theorem 8. The same curve converts μ-Gaussian differential privacy:
Dong, Roth and Su, "Gaussian differential privacy" (JRSS B 84, 2022), Corollary 1. It is not proven for
integer normal noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from flockwise.errors import PrivacyError
from flockwise.privacy.accounting.base import Accountant, root_on_safe_side
from flockwise.privacy.accounting.pure import theorem_1
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Mechanism

SLACK_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_PRECISION = 1e-13


class Gdp(Accountant):
    """Events of μ_1, …, μ_T compose to √(Σμ²) (Dong, Roth and Su 2022, Corollary 2), without any loss."""

    name: ClassVar[str] = "gdp"
    label: ClassVar[str] = "GDP"

    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        return epsilon_of(math.sqrt(math.fsum(event.mu**2 for event in events)), delta)

    def rate(self, unit: Mechanism, costs: Sequence[float], budget: Budget) -> float:
        if budget.delta == 0:
            raise PrivacyError("gdp: normal noise never has delta = 0; allow a delta above 0, or use laplace")
        return mu_of(budget.epsilon, budget.delta) / math.sqrt(math.fsum(cost**2 for cost in costs))


@dataclass(frozen=True)
class Split:
    """One way to divide δ, and what the events cost with it."""

    step_delta: float
    slack_delta: float
    step_epsilons: tuple[float, ...]
    epsilon: float


class Remark(Accountant):
    """Normal noise as the paper would account it: every step is (ε(t), δ(t))-private, composed by Theorem 1.

    The total δ is 1 − (1 − δ̄)·Π(1 − δ(t)) (Kairouz, Oh and Viswanath 2017, Theorem 3.5), so it has to be
    split between the slack δ̄ of the composition and the steps. Here, with a share κ,

        1 − δ̄ = (1 − δ)^κ,    1 − δ(t) = (1 − δ)^((1−κ)/T)  for every t,

    which spends exactly δ, and κ is that of `SLACK_SHARES` with the least ε. With κ = 0 the costs of the
    steps are added up, which is best for few updates. The split depends on noise levels alone, which are
    public. ε(t) is the exact one of the step's noise; the remark as printed has a looser constant and
    forgets to divide by m_i.
    """

    name: ClassVar[str] = "remark"
    label: ClassVar[str] = "Gaussian remark"

    def compose(self, events: Sequence[Mechanism], delta: float) -> float:
        return self.split(events, delta).epsilon

    def split(self, events: Sequence[Mechanism], delta: float) -> Split:
        """The best of the splits."""
        steps = [event.mu for event in events]
        return min((_split(steps, delta, share) for share in SLACK_SHARES), key=lambda made: made.epsilon)


def _split(steps: Sequence[float], delta: float, slack_share: float) -> Split:
    log_kept = math.log1p(-delta)
    slack_delta = -math.expm1(slack_share * log_kept)
    step_delta = -math.expm1((1 - slack_share) / len(steps) * log_kept)
    costs = {mu: epsilon_of(mu, step_delta) for mu in set(steps)}
    step_epsilons = tuple(costs[mu] for mu in steps)
    return Split(step_delta, slack_delta, step_epsilons, theorem_1(step_epsilons, slack_delta))


def log_delta(epsilon: float, mu: float) -> float:
    """log δ of the curve above, stable far out in the tails."""
    from scipy.special import log_ndtr  # slow to import, as in base.py

    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if lower >= upper:  # what is left is below rounding
        return -math.inf
    return upper + math.log(-math.expm1(lower - upper))


def epsilon_of(mu: float, delta: float) -> float:
    """The least ε for which noise of this μ is (ε, δ)-differentially private."""
    if delta == 0:
        return math.inf
    if log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    # δ ≤ Φ(μ/2 − ε/μ) ≤ exp(−(ε/μ − μ/2)²/2) bounds ε from above.
    enough = mu**2 / 2 + mu * math.sqrt(-2 * math.log(delta))
    return root_on_safe_side(lambda epsilon: _excess(epsilon, mu, delta), enough, 0.0, _PRECISION)


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ, and so the least noise, that is (ε, δ)-differentially private."""
    if delta == 0:
        return 0.0
    # The μ at which the bound of epsilon_of equals ε.
    tail = math.sqrt(-2 * math.log(delta))
    safe = 2 * epsilon / (tail + math.sqrt(tail**2 + 2 * epsilon))
    unsafe = 2 * safe
    while _excess(epsilon, unsafe, delta) <= 0:
        unsafe *= 2
    return root_on_safe_side(lambda mu: _excess(epsilon, mu, delta), safe, unsafe, _PRECISION)


def _excess(epsilon: float, mu: float, delta: float) -> float:
    # Bounded, since Brent's method cannot work with infinity.
    return max(log_delta(epsilon, mu), -1e6) - math.log(delta)
