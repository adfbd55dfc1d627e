"""What every attack offers, and the row of the audit that comes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from flockwise.privacy.audit.bounds import Scores, epsilon_lower_bound
from flockwise.privacy.budget import Budget

# Of all rows of an audit together.
CONFIDENCE = 0.999


class Attack(Protocol):
    """Something that claims a budget, run many times on two neighboring data sets; a score for each run."""

    @property
    def name(self) -> str: ...

    @property
    def updates(self) -> int: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def runs(self) -> int:
        """How many runs on each data set it usually takes."""
        ...

    def scores(self, runs: int, seed: int) -> Scores:
        """How much each run looks like the second data set; simulated noise is a function of the seed."""
        ...


@dataclass(frozen=True)
class Row:
    """What is claimed, and what was measured.

    lower_bound: the attacked mechanism has at least this ε at this δ.
    runs: on each of the two data sets.
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


def audit_one(attack: Attack, *, n_rows: int, number: int = 0, seed: int = 0, share: float = 1.0) -> Row:
    """Attack, and bound ε; the error rate is divided by the number of rows (Bonferroni).

    number: which of the rows it is, so that no two rows have the same noise.
    share: of the usual number of runs.
    """
    own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    scores = attack.scores(max(int(share * attack.runs), 50), own_seed)
    budget = attack.budget
    bound = epsilon_lower_bound(scores, budget.delta, (1 - CONFIDENCE) / n_rows)
    return Row(attack.name, attack.updates, budget.epsilon, budget.delta, bound, scores.runs, CONFIDENCE)


def failed(rows: Iterable[Row]) -> list[Row]:
    """Those that claim less than was measured."""
    return [row for row in rows if not row.holds]
