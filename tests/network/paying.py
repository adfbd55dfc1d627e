"""What every point has paid: from what each release was computed from, and what it was charged."""

from typing import ClassVar

import pytest

from flockwise.objective import LocalObjective
from flockwise.privacy import accountant_by_name

# Room for the rounding of the last digits when costs are added up in another order.
ROUNDING = 1 + 1e-9


class PaidTooMuch(AssertionError):
    """A point whose releases cost more than its budget."""


class RecordedObjective(LocalObjective):
    """Writes down which points a release was computed from: each has its own first feature."""

    used: ClassVar[list[list[float]]] = []

    def point_gradients(self, model):
        self.used.append(self.features[:, 0].tolist())
        return super().point_gradients(model)


def record(monkeypatch):
    """The points of every release from now on, in order."""
    RecordedObjective.used = []
    for module in ("learner", "batches"):
        monkeypatch.setattr(f"flockwise.net.{module}.LocalObjective", RecordedObjective)
    return RecordedObjective.used


def costs(used, events, accountant, budget, clip):
    """Point → the ε of all its releases together, none above the budget's."""
    assert len(used) == len(events)
    paid: dict[float, list] = {}
    for points, event in zip(used, events, strict=True):
        # The charge is for what was done: one of so many points moves the mean by 2·clip/m.
        assert event.sensitivity == pytest.approx(2 * clip / len(points))
        for point in points:
            paid.setdefault(point, []).append(event)
    composed = accountant_by_name(accountant).epsilon
    spent = {point: composed(charged, budget.delta) for point, charged in paid.items()}
    if max(spent.values(), default=0.0) > budget.epsilon * ROUNDING:
        raise PaidTooMuch(f"ε = {max(spent.values())} of {budget.epsilon}")
    return spent
