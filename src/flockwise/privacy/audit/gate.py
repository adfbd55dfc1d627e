"""The attack on a gate: replace one point by its opposite, far beyond the bound, and watch all releases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.audit.likelihood import log_likelihoods
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import Mechanism
from flockwise.privacy.noise import Noise, SecureNoise, SimulatedNoise
from flockwise.privacy.plan import Plan

CLIP = 1.0
SAMPLES = 4
# How far beyond the bound the point lies that is replaced.
FAR = 1000.0

Points: TypeAlias = NDArray[np.float64]
# (seed, run) → the noise of one run.
NoiseSource: TypeAlias = Callable[[int, int], Noise]


def along_axis(dimension: int) -> Points:
    """A unit vector: the whole shift in one coordinate is where Laplace noise hides it worst."""
    return np.eye(dimension)[0]


def along_diagonal(dimension: int) -> Points:
    """A unit vector whose L1 norm is √p: a bound in the wrong norm shows here."""
    return np.full(dimension, 1 / np.sqrt(dimension))


def opposite_points(direction: Points) -> tuple[Points, Points]:
    """Neighboring data sets of SAMPLES points: one point far out, and the same with its sign changed."""
    others = np.zeros((SAMPLES - 1, len(direction)))
    return np.vstack([FAR * direction, others]), np.vstack([-FAR * direction, others])


def simulated(seed: int, run: int) -> Noise:
    """What simulations use; every run is an agent with a stream of its own."""
    return SimulatedNoise(seed, run)


def secure(seed: int, run: int) -> Noise:
    """What real agents use; there is no seed."""
    return SecureNoise()


class NoNoise:
    """What an attacker who knows a data set computes: the same release without noise."""

    def check(self, event: Mechanism) -> None:
        """It draws nothing, so that it draws everything."""

    def draw(self, event: Mechanism, number: int) -> NDArray[Any]:
        return np.zeros(event.dimension, np.float64 if event.grid is None else np.int64)


@dataclass(frozen=True, eq=False)
class GateAttack:
    """A fresh gate for every run, which releases a mean of clipped points `updates` times.

    The score is the log-likelihood ratio of the noise that either data set would need.
    """

    name: str
    mechanism: str
    budget: Budget
    accountant: str
    updates: int
    runs: int
    direction: Points
    noise: NoiseSource = simulated
    on_grid: bool = False

    def scores(self, runs: int, seed: int) -> Scores:
        plan = self.plan()
        pair = opposite_points(self.direction)
        centers = [released(plan, points, NoNoise()) for points in pair]
        outputs = [
            np.array([released(plan, points, self.noise(seed, which * runs + run)) for run in range(runs)])
            for which, points in enumerate(pair)
        ]
        return Scores(*(self._ratios(plan, output, centers) for output in outputs))

    def plan(self) -> Plan:
        return Plan.fitting(
            self.budget, self.mechanism, self.updates, accountant=self.accountant, on_grid=self.on_grid
        )

    def _ratios(
        self, plan: Plan, output: NDArray[np.float64], centers: list[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        first, second = (log_likelihoods(audited_events(plan), output - center) for center in centers)
        return second - first


def released(plan: Plan, points: Points, noise: Noise) -> NDArray[np.float64]:
    """All that one agent ever sends: (updates, coordinates)."""
    gate = Gate(plan, MemoryLedger("audited"), noise)
    return np.array([gate.release(Rows.of(points, CLIP)).vector for _ in plan.multipliers])


def audited_events(plan: Plan, dimension: int = 1) -> list[Mechanism]:
    """What the gate adds to the mean of SAMPLES clipped rows, release by release."""
    rows = Rows(np.empty(0), CLIP, SAMPLES, dimension)
    return [rows.event(plan, number) for number in range(1, len(plan) + 1)]
