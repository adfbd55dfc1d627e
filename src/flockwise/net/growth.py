"""Data that grow while an agent runs, and what its points pay for it.

A point's cost is the composition of the releases that used it. Two ways to spend:

- One budget, the default. Every release uses all points that there are. The oldest ones have been in all
  releases, so that one budget is charged for every release, and no later point has paid more. More points
  mean less noise for the same price, for one of them moves the mean less; they never mean more releases.
- Batches (flockwise.net.batches). Each has a budget of its own, and a release uses the points of one batch
  alone, so that a point pays for the releases of its batch and for no other.

How many points arrive, and when, is public either way: the noise tells it, and the silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from flockwise.errors import DataError, PrivacyError
from flockwise.net.learner import LearningAgent, Protection, Settings
from flockwise.net.store import Batch, Store
from flockwise.privacy.accounting import calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.filters import Filter, PureFilter, ZcdpFilter
from flockwise.privacy.gate import Gate
from flockwise.privacy.grid import grid_for_mean
from flockwise.privacy.ledger import Book
from flockwise.privacy.mechanisms import Gaussian, Laplace, Mechanism
from flockwise.privacy.noise import Noise
from flockwise.privacy.plan import Plan

# What a guarantee for growing data takes as public besides all else.
PUBLIC: Final = ("how many points arrive, and when",)
# Scaling noise to a number of points rounds its last digit; this is far above that, and far below notice.
MARGIN: Final = 1e-9

MechanismName: TypeAlias = Literal["gaussian", "laplace"]
GrowthName: TypeAlias = Literal["one_budget", "batches"]


@dataclass(frozen=True)
class Meter:
    """What a release costs: the same share of the budget each time, whatever the number of points.

    clip: bound on the gradient of one point, in the norm of the noise.
    on_grid: for integer noise, which real agents draw.
    """

    budget: Budget
    updates: int
    clip: float
    mechanism: MechanismName = "gaussian"
    on_grid: bool = True

    def filter(self) -> Filter:
        """What is granted: a budget to spend as one goes, since nobody knows how many points will come."""
        return (ZcdpFilter if self.mechanism == "gaussian" else PureFilter)(self.budget)

    def plan(self, samples: int) -> Plan:
        """The same where the number of points is fixed: all that they will ever pay for."""
        return Plan(self.budget, self.accountant, (self.event(samples),) * self.updates)

    @property
    def accountant(self) -> str:
        """What composes the releases; the filter of the same noise adds up the same costs."""
        return "zcdp" if self.mechanism == "gaussian" else "basic"

    def event(self, samples: int) -> Mechanism:
        """A release of the mean over so many points."""
        sensitivity = 2 * self.clip / samples
        grid = grid_for_mean(sensitivity, samples) if self.on_grid else None
        scale = self._unit.multiplier * sensitivity
        return dataclasses.replace(self._unit, sensitivity=sensitivity, scale=scale, grid=grid)

    @cached_property
    def _unit(self) -> Mechanism:
        kind = Gaussian if self.mechanism == "gaussian" else Laplace
        first, *_ = calibrate(self.budget, kind(1.0, 1.0), self.accountant, updates=self.updates)
        return first.with_multiplier(first.multiplier * (1 + MARGIN))


class MeteredGate(Gate):
    """A gate that takes its next event from a meter, for as many points as there are now."""

    def __init__(self, meter: Meter, samples: int, ledger: Book, noise: Noise, *, start: ArrayLike) -> None:
        self._meter = meter
        self._samples = samples
        super().__init__(meter.filter(), ledger, noise, start=start)

    def set_samples(self, samples: int) -> None:
        """From now on the mean is over so many points; the gate checks it when it gets them."""
        self._samples = samples

    def _next_event(self, wanted: Mechanism | None) -> Mechanism:
        return super()._next_event(self._meter.event(self._samples) if wanted is None else wanted)


class Growth(Protocol):
    """What a user's program hands new points to."""

    @property
    def points(self) -> Batch:
        """All that the agent learns from."""
        ...

    @property
    def released_from(self) -> Batch:
        """The points that the next release uses."""
        ...

    @property
    def rounds(self) -> int:
        """How many times over the agent makes the releases of a budget."""
        ...

    def add(self, features: ArrayLike, targets: ArrayLike, now: int) -> None:
        """Learn from these points too; they are on disk when this returns, or refused whole."""
        ...


class OneBudget:
    """All points together under one budget; without protection the same, for nothing.

    points: all that there are so far, of which the agent has been made.
    is_private: whether the network is. An agent that has no points there has no gate either, and cannot get
    one while it runs: its neighbors know its numbers from messages that cost nothing.
    """

    rounds = 1

    def __init__(
        self,
        settings: Settings,
        points: Batch,
        store: Store,
        agent: LearningAgent,
        protection: Protection | None = None,
        *,
        is_private: bool,
    ) -> None:
        if protection is not None and not isinstance(protection.gate, MeteredGate):
            raise PrivacyError(
                f"agent {agent.name!r}: its plan is made for the points that it has; where points may be "
                "added give it a MeteredGate"
            )
        self._settings = settings
        self._points = points
        self._store = store
        self._agent = agent
        self._protection = protection
        self._is_private = is_private

    @property
    def points(self) -> Batch:
        return self._points

    @property
    def released_from(self) -> Batch:
        return self._points

    def add(self, features: ArrayLike, targets: ArrayLike, now: int) -> None:
        batch = checked_batch(self._settings, self._points, features, targets)
        if self._is_private and self._protection is None:
            raise PrivacyError(
                f"agent {self._agent.name!r} began without points and has no budget for new ones; enroll an "
                "agent with these points"
            )
        together = joined([self._points, batch])
        self._store.add_batch(batch)
        self._points = together
        if self._protection is not None:
            assert isinstance(self._protection.gate, MeteredGate)
            self._protection.gate.set_samples(len(together.targets))
        problem = self._settings.problem(together.features, together.targets)
        self._agent.relearn(problem, self._protection, now)


def joined(batches: Sequence[Batch]) -> Batch:
    return Batch(
        np.concatenate([batch.features for batch in batches]),
        np.concatenate([batch.targets for batch in batches]),
    )


def checked_batch(settings: Settings, before: Batch, features: ArrayLike, targets: ArrayLike) -> Batch:
    """New points that fit the old ones, the loss and the public bounds."""
    rows, values = np.array(features, np.float64), np.array(targets, np.float64)
    if rows.ndim != 2 or values.ndim != 1 or len(rows) != len(values) or not len(values):
        raise DataError(
            "points must have features of shape (samples, features) and targets of shape (samples,), one or "
            f"more, got {rows.shape} and {values.shape}"
        )
    if rows.shape[1] != before.features.shape[1]:
        raise DataError(f"a point has {before.features.shape[1]} features, got {rows.shape[1]}")
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise DataError("a point has a value that is infinite or not a number; clean the data first")
    settings.problem(rows, values)  # refuses a point that is too long, or no target of the loss
    return Batch(rows, values)
