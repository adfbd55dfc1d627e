"""How private something can be at most, given how well an attacker tells two data sets apart.

Under (ε, δ)-differential privacy every event has P(event | D') ≤ e^ε·P(event | D) + δ, so
ε ≥ log((P(event | D') − δ)/P(event | D)). The event is "the attacker's score is high"; it is fixed by some
of the runs, and its two probabilities are then bounded by the others, with the exact limits of Clopper
and Pearson (1934). Nothing is assumed about how the scores are distributed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from flockwise.errors import PrivacyError
from flockwise.privacy.budget import Budget

# The share of the runs that choose the event: the rest measures it.
CHOOSING_SHARE = 0.2
CANDIDATES = 400
# Equal likelihoods that differ in the last digits are one score.
SCORE_DIGITS = 9
# Of all rows of an audit together.
CONFIDENCE = 0.999


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

    Either data set may be the one that is recognized; each direction errs with half of the rate.
    """
    forward = _recognized(scores.second, scores.first, delta, error_rate / 2)
    backward = _recognized(-scores.first, -scores.second, delta, error_rate / 2)
    return max(forward, backward, 0.0)


def _recognized(
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


@dataclass(frozen=True, eq=False)
class Attack(ABC):
    """Something that claims a budget, run many times on two neighboring data sets; a score for each run.

    runs: how many on each data set it usually takes.
    """

    name: str
    budget: Budget
    runs: int
    updates: int = field(default=1, kw_only=True)

    @abstractmethod
    def ratios(self, which: int, runs: int, seed: int) -> NDArray[np.float64]:
        """How much each run on data set `which`, 0 or 1, looks like one on the second.

        By Neyman and Pearson the log-likelihood ratio is the best score. Simulated noise is a function of
        the seed.
        """

    def scores(self, runs: int, seed: int) -> Scores:
        return Scores(*(self.ratios(which, runs, seed) for which in range(2)))


@dataclass(frozen=True)
class AuditRow:
    """The ε that is claimed, and the one that was measured.

    lower_bound: the attacked mechanism has at least this ε at this δ. runs: on each of the two data sets.
    confidence: that no lower bound of the whole audit is above the true ε.
    """

    mechanism: str
    updates: int
    claimed_epsilon: float
    delta: float
    lower_bound: float
    runs: int
    confidence: float

    @property
    def holds(self) -> bool:
        return self.lower_bound <= self.claimed_epsilon

    def document(self) -> dict[str, Any]:
        return asdict(self)


def audit_one(attack: Attack, *, n_rows: int, number: int = 0, seed: int = 0, share: float = 1.0) -> AuditRow:
    """Attack, and bound ε; the error rate is divided by the number of rows (Bonferroni).

    number: which of the rows it is, so no two rows have the same noise. share: of the usual number of runs.
    """
    own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    scores = attack.scores(max(int(share * attack.runs), 50), own_seed)
    budget = attack.budget
    bound = epsilon_lower_bound(scores, budget.delta, (1 - CONFIDENCE) / n_rows)
    return AuditRow(attack.name, attack.updates, budget.epsilon, budget.delta, bound, scores.runs, CONFIDENCE)


def failed(rows: Iterable[AuditRow]) -> list[AuditRow]:
    """Those that claim less than was measured."""
    return [row for row in rows if not row.holds]
