"""What every sample has paid: from what each release was computed from, and what it was charged."""

from typing import ClassVar

import pytest

from flockwise.objective import LocalObjective
from flockwise.privacy.accounting import ACCOUNTANTS

# Room for the rounding of the last digits when costs are added up in another order.
ROUNDING = 1 + 1e-9


class PaidTooMuch(AssertionError):
    """A sample whose releases cost more than its budget."""


class RecordedObjective(LocalObjective):
    """Writes down which samples a release was computed from: each has its own first feature."""

    used: ClassVar[list[list[float]]] = []

    def sample_gradients(self, model):
        self.used.append(self.features[:, 0].tolist())
        return super().sample_gradients(model)


def record(monkeypatch):
    """The samples of every release from now on, in order."""
    RecordedObjective.used = []
    for module in ("objective.local", "runtime.releases"):
        monkeypatch.setattr(f"flockwise.{module}.LocalObjective", RecordedObjective)
    return RecordedObjective.used


def costs(used, events, accountant, budget, clip):
    """Sample → the ε of all its releases together, none above the budget's."""
    assert len(used) == len(events)
    paid: dict[float, list] = {}
    for samples, event in zip(used, events, strict=True):
        # The charge is for what was done: one of so many samples moves the mean by 2·clip/m.
        assert event.sensitivity == pytest.approx(2 * clip / len(samples))
        for sample in samples:
            paid.setdefault(sample, []).append(event)
    composed = ACCOUNTANTS[accountant].epsilon
    spent = {sample: composed(charged, budget.delta) for sample, charged in paid.items()}
    if max(spent.values(), default=0.0) > budget.epsilon * ROUNDING:
        raise PaidTooMuch(f"ε = {max(spent.values())} of {budget.epsilon}")
    return spent
