"""The attack on a gate: replace one sample by its opposite, far beyond the bound, and watch all releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.audit.bounds import Attack
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import Mechanism
from flockwise.privacy.noise import Noise, SecureNoise, SimulatedNoise
from flockwise.privacy.plan import Plan

CLIP = 1.0
SAMPLES = 4
# How far beyond the bound the replaced sample lies.
FAR = 1000.0

Floats: TypeAlias = NDArray[np.float64]
# (seed, run) → the noise of one run.
NoiseSource: TypeAlias = Callable[[int, int], Noise]


def along_axis(dimension: int) -> Floats:
    """A unit vector: the whole shift in one coordinate is where Laplace noise hides it worst."""
    return np.eye(dimension)[0]


def along_diagonal(dimension: int) -> Floats:
    """A unit vector whose L1 norm is √p: a bound in the wrong norm shows here."""
    return np.full(dimension, 1 / np.sqrt(dimension))


def opposite_samples(direction: Floats) -> tuple[Floats, Floats]:
    """Neighboring data sets of SAMPLES samples: one far out, and the same with its sign changed."""
    others = np.zeros((SAMPLES - 1, len(direction)))
    return np.vstack([FAR * direction, others]), np.vstack([-FAR * direction, others])


def simulated(seed: int, run: int) -> Noise:
    """What simulations use; every run is an agent with a stream of its own."""
    return SimulatedNoise(seed, run)


def secure(seed: int, run: int) -> Noise:
    """What real agents use; there is no seed."""
    return SecureNoise()


class NoiseFree:
    """The same release without noise: an attacker who knows a data set can compute it."""

    def check(self, event: Mechanism) -> None:
        """Nothing is drawn, so nothing is refused."""

    def draw(self, event: Mechanism, number: int) -> NDArray[Any]:
        return np.zeros(event.dimension, np.float64 if event.grid is None else np.int64)


def released(plan: Plan, samples: Floats, noise: Noise) -> Floats:
    """All that one agent ever sends of its mean of clipped samples: (updates, coordinates)."""
    gate = Gate(plan, MemoryLedger("audited"), noise)
    return np.array([gate.release(Rows.of(samples, CLIP)).vector for _ in plan.multipliers])


@dataclass(frozen=True, eq=False)
class GateAttack(Attack):
    """A fresh gate for every run, which releases the same mean `updates` times.

    observe: what an attacker makes of all that is sent: noisy means. The score is the log-likelihood ratio
    of the noise that either data set would need.
    """

    mechanism: str
    accountant: str | None
    pair: tuple[Any, Any]
    noise: NoiseSource = simulated
    on_grid: bool = False
    observe: Callable[[Plan, Any, Noise], Floats] = released

    @property
    def plan(self) -> Plan:
        return Plan.fitting(
            self.budget, self.mechanism, self.updates, accountant=self.accountant, on_grid=self.on_grid
        )

    def ratios(self, which: int, runs: int, seed: int) -> Floats:
        plan = self.plan
        sources = (self.noise(seed, which * runs + run) for run in range(runs))
        noisy = np.array([self.observe(plan, self.pair[which], source) for source in sources])
        means = [self.observe(plan, samples, NoiseFree())[0] for samples in self.pair]
        first, second = (log_likelihoods(audited_events(plan), noisy - mean) for mean in means)
        return second - first


def audited_events(plan: Plan) -> list[Mechanism]:
    """The noise that the gate adds to the mean of SAMPLES clipped rows, release by release."""
    rows = Rows(np.empty(0), CLIP, SAMPLES, 1)
    return [rows.event(plan, number) for number in range(1, len(plan) + 1)]


def log_likelihoods(events: Sequence[Mechanism], noise: Floats) -> Floats:
    """Of each run, whose releases are (runs, updates, coordinates): the sum over its updates.

    On a grid as fine as those of flockwise.privacy.grid the discrete law has the density of the real one.
    """
    steps = [event.log_likelihood(noise[:, update]) for update, event in enumerate(events)]
    return np.sum(steps, axis=0)
