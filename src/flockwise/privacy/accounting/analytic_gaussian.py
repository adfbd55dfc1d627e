"""The exact privacy of normal noise.

With μ = sensitivity/σ, normal noise is (ε, δ)-differentially private if and only if
δ ≥ Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ): Balle and Wang, "Improving the Gaussian mechanism for
differential privacy" (ICML 2018), Theorem 8. The same curve converts μ-Gaussian differential privacy:
Dong, Roth and Su, "Gaussian differential privacy" (JRSS B 84, 2022), Corollary 1.
"""

from __future__ import annotations

import math

from flockwise.privacy.accounting.search import root_on_safe_side

_PRECISION = 1e-13


def log_delta(epsilon: float, mu: float) -> float:
    """log δ of the curve above, stable far out in the tails."""
    from scipy.special import log_ndtr  # slow to import, as in search.py

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
