"""The paper's remark on normal noise: every step is (ε(t), δ(t))-private, and steps compose as in Theorem 1.

The total δ is 1 − (1 − δ̄)·Π(1 − δ(t)) (Kairouz, Oh and Viswanath 2017, Theorem 3.5), so that it has
to be split between the slack δ̄ of the composition and the steps. Here, with a share κ,

    1 − δ̄ = (1 − δ)^κ,    1 − δ(t) = (1 − δ)^((1−κ)/T)  for every t,

which spends exactly δ, and κ is that of `SLACK_SHARES` with the least ε. With κ = 0 the costs of the
steps are added up, which is best for few updates. The split depends on noise levels alone, which are
public. ε(t) is the exact one of the step's noise; the remark as printed has a looser constant and
forgets to divide by m_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from flockwise.privacy.accounting.analytic_gaussian import epsilon_of
from flockwise.privacy.accounting.base import Accountant, gaussian_mu
from flockwise.privacy.accounting.theorem1 import compose
from flockwise.privacy.mechanisms import Mechanism

SLACK_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Split:
    """One way to divide δ, and what the events cost with it."""

    step_delta: float
    slack_delta: float
    step_epsilons: tuple[float, ...]
    epsilon: float


class Remark(Accountant):
    """Normal noise as the paper would account it."""

    name: ClassVar[str] = "remark"
    label: ClassVar[str] = "Gaussian remark"

    def epsilon(self, events: Sequence[Mechanism], delta: float) -> float:
        return self.split(events, delta).epsilon if events else 0.0

    def split(self, events: Sequence[Mechanism], delta: float) -> Split:
        """The best of the splits."""
        steps = [gaussian_mu(event, self.name) for event in events]
        return min((_split(steps, delta, share) for share in SLACK_SHARES), key=lambda made: made.epsilon)


def _split(steps: Sequence[float], delta: float, slack_share: float) -> Split:
    log_kept = math.log1p(-delta)
    slack_delta = -math.expm1(slack_share * log_kept)
    step_delta = -math.expm1((1 - slack_share) / len(steps) * log_kept)
    costs = {mu: epsilon_of(mu, step_delta) for mu in set(steps)}
    step_epsilons = tuple(costs[mu] for mu in steps)
    return Split(step_delta, slack_delta, step_epsilons, compose(step_epsilons, slack_delta))
