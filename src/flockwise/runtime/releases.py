"""Releases of a real agent: from one gate, or from a queue of gates with a batch of samples each.

A sample's cost is the composition of the releases that used it. Two ways to pay for samples that come later:

- One budget, the default. Every release uses all samples that there are. The oldest ones have been in all
  releases, so the budget is charged for every release, and no later sample has paid more. More samples mean
  less noise for the same price, because one of them moves the mean less; they never mean more releases.
- Batches. Each has a budget of its own, and a release uses the samples of one batch alone: those of the first
  until their budget is spent, then those of the next. It goes on from what was released before, which is
  public, so learning is one descent over all batches.

How many samples arrive, and when, is public either way.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from flockwise.agent.agent import GradientReleases, Step, released_by
from flockwise.data.samples import Samples
from flockwise.errors import BudgetSpent
from flockwise.net.gates import GateQueue
from flockwise.objective import LocalObjective, LocalUpdate, Objective
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import LedgerBase
from flockwise.privacy.messages import Release, decode
from flockwise.protocol.conversation import Public
from flockwise.release.statistic import Statistic


@final
class BatchReleases:
    """Releases gradients of one batch after the other; falls silent when all are spent."""

    def __init__(self, gates: GateQueue, batches: list[Samples], objective: Objective, clip: float) -> None:
        """batches: all that there are; the list grows as they come."""
        self._gates = gates
        self._batches = batches
        self._objective = objective
        self._clip = clip
        self._releases = self._of_present()

    @property
    def released(self) -> NDArray[np.float64]:
        return self._gates.released

    def set_samples(self, local: Any) -> None:
        if self._gates.gate.is_spent:
            self._gates.go_on()
        self._releases = self._of_present()

    def prepare(self) -> None:
        if self._gates.gate.is_spent:
            self.set_samples(None)
        self._releases.prepare()

    def release(self, step: Step) -> None:
        self._releases.release(step)

    def last_release(self) -> Release | None:
        return self._releases.last_release()

    def _of_present(self) -> GradientReleases:
        """The samples of one batch, with the penalty of all of them, whose number is public."""
        batch = self._batches[self._gates.place]
        own = LocalUpdate.of(self._objective, batch).objective
        count = np.array([sum(len(each.targets) for each in self._batches)])
        penalty = float(self._objective.penalties(count)[0])
        local = LocalObjective(own.loss, own.features, own.targets, penalty)
        return GradientReleases(self._gates.gate, local, self._clip)


@final
class StatisticRelease:
    """One release of a statistic of the samples: nothing of it depends on a model."""

    def __init__(self, gate: Gate, statistic: Statistic, objective: Objective, samples: Samples) -> None:
        self._gate = gate
        self._statistic = statistic
        self._objective = objective
        self._samples = samples

    @property
    def released(self) -> NDArray[np.float64]:
        return released_by(self._gate)

    def set_samples(self, local: Any) -> None:
        """They count in the release if it is yet to come; afterwards for the own model alone."""
        self._samples = Samples(local.features, local.targets)

    def prepare(self) -> None:
        if not self._gate.is_spent:
            self._gate.prepare(self._value)

    def release(self, step: Step) -> None:
        if self._gate.is_spent:
            raise BudgetSpent("its one release is made")
        self._gate.release(self._value)

    def last_release(self) -> Release | None:
        return self._gate.last_release()

    @property
    def _value(self) -> Any:
        return self._statistic.of(self._samples, self._objective)


def public_side(statistic: Statistic, ledger: LedgerBase | None, dimension: int) -> Public:
    """An agent's release and how noisy it is, as its ledger has it; zeros without a release.

    Of m samples one moves the release by 2/m: from the sensitivity that was charged follows the m of then,
    and the variance that other samples of the same kind would give it.
    """
    power = statistic.signal_power(dimension)
    entries = [] if ledger is None else [entry for entry in ledger.entries if entry.payload is not None]
    if not entries:
        return Public(np.zeros(dimension), np.inf, np.inf, power)
    event, payload = entries[-1].event, entries[-1].payload
    assert payload is not None
    noise, samples = event.noise_std**2, 2 / event.sensitivity
    sampling = samples * event.sensitivity**2 / (4 * dimension)
    return Public(decode(payload)[1], noise + sampling, noise, power)
