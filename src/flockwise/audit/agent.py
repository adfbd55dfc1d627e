"""The attack on a real agent's path: `Agent`, its gate, exact integer sums and secure noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.agent import Agent, GradientReleases
from flockwise.audit.samples import AgentSamples
from flockwise.objective import LocalObjective, LocalUpdate, Quadratic
from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.audit.gate import CLIP, NoiseSource, NoNoise, audited_events, secure
from flockwise.privacy.audit.likelihood import log_likelihoods
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import Noise
from flockwise.privacy.plan import Plan

STEP_SIZE, PULL = 0.5, 1.0


class EveryTime:
    """A clock that ticks whenever it is asked."""

    def next_tick(self, updates: int, now: int) -> int | None:
        return now + 1


@dataclass(frozen=True, eq=False)
class AgentAttack:
    """An agent without neighbors and without penalty: model t is model t − 1 less a noisy gradient.

    The data sets are such that the mean of the clipped gradients is the same at every model.
    """

    name: str
    mechanism: str
    budget: Budget
    accountant: str
    updates: int
    runs: int
    pair: tuple[AgentSamples, AgentSamples]
    noise: NoiseSource = secure

    def scores(self, runs: int, seed: int) -> Scores:
        plan = Plan.fitting(
            self.budget, self.mechanism, self.updates, accountant=self.accountant, on_grid=True
        )
        means = [noisy_gradients(plan, samples, NoNoise())[0] for samples in self.pair]
        scores = []
        for which, samples in enumerate(self.pair):
            noisy = np.array(
                [noisy_gradients(plan, samples, self.noise(seed, which * runs + run)) for run in range(runs)]
            )
            first, second = (log_likelihoods(audited_events(plan), noisy - mean) for mean in means)
            scores.append(second - first)
        return Scores(*scores)


def noisy_gradients(plan: Plan, samples: AgentSamples, noise: Noise) -> NDArray[np.float64]:
    """What an attacker makes of all the messages of an agent: (updates, coordinates)."""
    start = np.zeros(samples.features.shape[1])
    term = LocalObjective(Quadratic(), samples.features, samples.targets, 0.0)
    gate = Gate(plan, MemoryLedger("audited"), noise, start=start)
    local = LocalUpdate(term, STEP_SIZE, PULL)
    agent = Agent("audited", local, start, {}, EveryTime(), GradientReleases(gate, term, CLIP))
    models = [start, *(agent.on_tick(now)[0].model for now in range(len(plan)))]
    return -np.diff(models, axis=0) / (STEP_SIZE * PULL)
