"""How private something can be at most, given how well an attacker tells two data sets apart.

Under (ε, δ)-differential privacy every event has P(event | D') ≤ e^ε·P(event | D) + δ, so that
ε ≥ log((P(event | D') − δ)/P(event | D)). The event is "the attacker's score is high"; it is fixed by some
of the runs, and its two probabilities are then bounded by the others, with the exact limits of Clopper
and Pearson (1934). Nothing is assumed about how the scores are distributed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from flockwise.errors import PrivacyError

# The share of the runs that choose the event: the rest measures it.
CHOOSING_SHARE = 0.2
CANDIDATES = 400
# Equal likelihoods that differ in the last digits are one score.
SCORE_DIGITS = 9


@dataclass(frozen=True, eq=False)
class Scores:
    """One number per run on either data set; the higher, the more it looks like the second."""

    first: NDArray[np.float64]
    second: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            scores = getattr(self, name)
            if scores.ndim != 1 or len(scores) < 10 or np.isnan(scores).any():
                raise PrivacyError(f"scores of the {name} data set: at least 10 numbers, got {scores.shape}")

    @property
    def runs(self) -> int:
        """On each of the two data sets."""
        return min(len(self.first), len(self.second))


def epsilon_lower_bound(scores: Scores, delta: float, error_rate: float) -> float:
    """An ε that the attacked mechanism exceeds or equals, except with probability `error_rate`.

    Either data set may be the one that is recognised; each direction errs with half of the rate.
    """
    forward = _recognised(scores.second, scores.first, delta, error_rate / 2)
    backward = _recognised(-scores.first, -scores.second, delta, error_rate / 2)
    return max(forward, backward, 0.0)


def _recognised(
    hits: NDArray[np.float64], false_alarms: NDArray[np.float64], delta: float, error_rate: float
) -> float:
    """The bound from the best event "score ≥ threshold", which should be likelier among the hits."""
    choosing_hits, measuring_hits = _parts(hits)
    choosing_alarms, measuring_alarms = _parts(false_alarms)
    threshold = _best_threshold(
        choosing_hits, choosing_alarms, len(measuring_hits), len(measuring_alarms), delta, error_rate
    )
    hit_rate = lower_limit(int((measuring_hits >= threshold).sum()), len(measuring_hits), error_rate / 2)
    alarm_rate = upper_limit(
        int((measuring_alarms >= threshold).sum()), len(measuring_alarms), error_rate / 2
    )
    return math.log((hit_rate - delta) / alarm_rate) if hit_rate > delta else 0.0


def _parts(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rounded = np.round(scores, SCORE_DIGITS)
    n_choosing = int(CHOOSING_SHARE * len(rounded))
    return rounded[:n_choosing], rounded[n_choosing:]


def _best_threshold(
    hits: NDArray[np.float64],
    alarms: NDArray[np.float64],
    n_hits: int,
    n_alarms: int,
    delta: float,
    error_rate: float,
) -> float:
    """The threshold from which most is expected, if the other runs turn out like these."""
    pooled = np.concatenate([hits, alarms])
    candidates = np.unique(np.quantile(pooled, np.linspace(0, 1, CANDIDATES), method="nearest"))
    hit_rates = 1 - np.searchsorted(np.sort(hits), candidates) / len(hits)
    # One more than were seen: an event that none of a few runs showed is not impossible.
    alarm_rates = (len(alarms) - np.searchsorted(np.sort(alarms), candidates) + 1) / (len(alarms) + 1)
    limits = lower_limit(hit_rates * n_hits, n_hits, error_rate / 2)
    ratios = np.maximum(limits - delta, 0.0) / upper_limit(alarm_rates * n_alarms, n_alarms, error_rate / 2)
    return float(candidates[np.argmax(ratios)])


def lower_limit(successes: NDArray[np.float64] | int, trials: int, error_rate: float) -> NDArray[np.float64]:
    """Clopper and Pearson: the probability is at least this, except with probability `error_rate`."""
    successes = np.asarray(successes, np.float64)
    limits = beta.ppf(error_rate, np.maximum(successes, 1), trials - successes + 1)
    return np.where(successes > 0, limits, 0.0)


def upper_limit(successes: NDArray[np.float64] | int, trials: int, error_rate: float) -> NDArray[np.float64]:
    """Clopper and Pearson: the probability is at most this, except with probability `error_rate`."""
    return 1 - lower_limit(trials - np.asarray(successes, np.float64), trials, error_rate)
