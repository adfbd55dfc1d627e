"""The attacks on whole methods: a real agent, coordinate descent, release once and local privacy.

Agents without neighbors and with the same data are independent runs: their noise comes from streams of their
own. So one simulation is thousands of runs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from flockwise.agent import Agent, GradientReleases
from flockwise.audit.bounds import Attack
from flockwise.audit.gate import CLIP, SAMPLES, Floats
from flockwise.data import Population
from flockwise.data.samples import Samples
from flockwise.engine import ENGINES, RunSettings, simulate
from flockwise.errors import PrivacyError
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, LocalDP, PrivateUpdates, ReleaseOnce, WarmStart
from flockwise.method.local_dp import TARGET_SHARE
from flockwise.method.rules import Descent, DescentNoise
from flockwise.objective import (
    CappedLogistic,
    Huber,
    LocalObjective,
    LocalUpdate,
    Objective,
    Problem,
    Quadratic,
)
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.noise import Noise
from flockwise.privacy.plan import Plan
from flockwise.randomness.clocks import NEVER
from flockwise.release import Statistic

# So large that the sample's gradient stays beyond the bound wherever the noise drives the model.
FAR_TARGET = 1e6
FEATURE_BOUND = 1.0
# Of the agent, and of the descent.
STEP_SIZE, PULL = 0.5, 1.0
TRADEOFF, L2 = 10.0, 0.01
# λ of released models.
RELEASED_L2 = 10.0

Pair: TypeAlias = tuple[Samples, Samples]


def opposite_targets(direction: Floats) -> Pair:
    """All samples at one place; one has a target far above the others, or as far below."""
    features = np.tile(direction, (SAMPLES, 1))
    above = np.zeros(SAMPLES)
    above[0] = FAR_TARGET
    return Samples(features, above), Samples(features, -above)


def lone_opposites(direction: Floats) -> Pair:
    """The same with the other samples at zero, where they have no gradient."""
    features, above = np.zeros((SAMPLES, len(direction))), np.zeros(SAMPLES)
    features[0], above[0] = direction, FAR_TARGET
    return Samples(features, above), Samples(features, -above)


def present_or_zero(direction: Floats) -> Pair:
    """One sample that is all there is, or zero like the others: looking at lengths tells them apart."""
    nothing = Samples(np.zeros((SAMPLES, len(direction))), np.zeros(SAMPLES))
    return lone_opposites(direction)[0], nothing


def opposite_labels(direction: Floats) -> Pair:
    """One sample with one label, or with the other; the rest at zero."""
    features, labels = np.zeros((SAMPLES, len(direction))), np.ones(SAMPLES)
    features[0] = direction
    other = labels.copy()
    other[0] = -1.0
    return Samples(features, labels), Samples(features, other)


def repeated(samples: Samples, runs: int) -> tuple[Population, SimilarityGraph]:
    """As many agents as runs, all with these samples, and no edges."""
    population = Population.packed(
        np.tile(samples.features, (runs, 1)),
        np.tile(samples.targets, runs),
        np.arange(runs + 1) * len(samples.targets),
    )
    return population, SimilarityGraph.from_edges(runs, np.empty((0, 2), np.int64))


class EveryTime:
    """A clock that ticks whenever it is asked."""

    def next_tick(self, updates: int, now: int) -> int | None:
        return now + 1


def noisy_gradients(plan: Plan, samples: Samples, noise: Noise) -> Floats:
    """The estimates of an attacker from all messages of a real agent: (updates, coordinates).

    The agent has no neighbors and no penalty: model t is model t − 1 less a noisy gradient. With
    `lone_opposites` the mean of the clipped gradients is the same at every model.
    """
    start = np.zeros(samples.features.shape[1])
    term = LocalObjective(Quadratic(), samples.features, samples.targets, 0.0)
    gate = Gate(plan, MemoryLedger("audited"), noise, start=start)
    local = LocalUpdate(term, STEP_SIZE, PULL)
    agent = Agent("audited", local, start, {}, EveryTime(), GradientReleases(gate, term, CLIP))
    models = [start, *(agent.on_tick(now)[0].model for now in range(len(plan)))]
    return -np.diff(models, axis=0) / (STEP_SIZE * PULL)


@dataclass(frozen=True, eq=False)
class DescentAttack(Attack):
    """Private coordinate descent, Eq. (6), in the compiled engine.

    The attacker sees every model that an agent releases and knows all but its noise. For either data set it
    lets the engine itself do the next update without noise; the rest of the released model is the noise.

    warm_start: the model that is their first release, not propagated: agents are alone.
    """

    mechanism: str
    accountant: str
    pair: Pair
    warm_start: WarmStart | None = None

    def ratios(self, which: int, runs: int, seed: int) -> Floats:
        problems = [self._problem(samples, runs) for samples in self.pair]
        releases = self._releases(problems[which], seed + which)
        first, second = (
            self._of_starts(problem, releases[0]) + _log_likelihoods(self._rule(problem, 0), releases)
            for problem in problems
        )
        return second - first

    def _of_starts(self, problem: Problem, starts: Floats) -> Floats:
        """Log-likelihoods of the starts; 0 where they are public."""
        noise = _noise_of(self._rule(problem, seed=0))
        if self.warm_start is None or noise.start_sensitivities is None:
            return np.zeros(len(starts))
        # All agents have the same plan and the same sensitivity.
        scale = float(noise.schedule.multipliers[0, 0] * noise.start_sensitivities[0])
        event = MECHANISMS[self.mechanism](1.0, scale, None, noise.dimension)
        return event.log_likelihood(starts - self.warm_start.statistic(problem).models(problem))

    def _problem(self, samples: Samples, runs: int) -> Problem:
        objective = Objective(Quadratic(), tradeoff=TRADEOFF, l2=L2, feature_bound=FEATURE_BOUND)
        return Problem(*repeated(samples, runs), objective)

    @property
    def _method(self) -> CoordinateDescent:
        return CoordinateDescent(
            "zeros" if self.warm_start is None else self.warm_start,
            PrivateUpdates(self.budget, self.updates, CLIP, self.mechanism, self.accountant),
        )

    def _rule(self, problem: Problem, seed: int) -> Descent:
        rule = self._method.prepare(problem, seed).rule
        assert isinstance(rule, Descent)
        return rule

    def _releases(self, problem: Problem, seed: int) -> list[Floats]:
        """What every agent sends, its start first: a run that stops early is the beginning of a whole one."""
        runs = (
            simulate(problem, self._method, seed=seed, updates=number, record_every=None)
            for number in range(1, self.updates + 1)
        )
        return [self._rule(problem, seed).start, *(run.state["models"] for run in runs)]


def _log_likelihoods(descent: Descent, releases: list[Floats]) -> Floats:
    """Of the noise that these data would need for these releases."""
    noise = _noise_of(descent)
    gains = (descent.step_sizes * descent.pulls * noise.sensitivities)[:, None]
    kind, multipliers = MECHANISMS[noise.schedule.mechanism], noise.multipliers[0]
    total = np.zeros(len(releases[0]))
    for multiplier, before, after in zip(multipliers, releases[:-1], releases[1:], strict=True):
        event = kind(1.0, float(multiplier), None, noise.dimension)
        total += event.log_likelihood((_next_without_noise(descent, before) - after) / gains)
    return total


def _next_without_noise(descent: Descent, models: Floats) -> Floats:
    """One update of every agent, by the engine that is attacked."""
    silent = dataclasses.replace(_noise_of(descent), sensitivities=np.zeros(len(models)))
    once = dataclasses.replace(descent, start=models, noise=silent)
    run = ENGINES["cpu"].start(once, RunSettings(seed=0, limit=1))
    run.advance(NEVER - 1, 2**62)
    return run.state()["models"]


def _noise_of(descent: Descent) -> DescentNoise:
    assert descent.noise is not None, "only a private descent is attacked"
    return descent.noise


@dataclass(frozen=True, eq=False)
class ReleaseOnceAttack(Attack):
    """One noisy vector per agent, and many agents with the same data.

    The score is the position of a release along the line between the two releases without noise. For normal
    noise on the released vector that is the likelihood ratio, but for a constant factor.
    """

    statistic: Statistic
    direction: Floats

    def ratios(self, which: int, runs: int, seed: int) -> Floats:
        objective, pair = self._case()
        # With the same seed the noise is the same and drops out.
        first, second = (self._releases(objective, samples, 1, seed)[0] for samples in pair)
        shift = (second - first) / np.linalg.norm(second - first)
        return self._releases(objective, pair[which], runs, seed + 1 + which) @ shift

    def _case(self) -> tuple[Objective, Pair]:
        """An objective under which the statistic can be released: two classes, or numbers."""
        for loss, pair in ((CappedLogistic(), opposite_labels), (Huber(), opposite_targets)):
            objective = Objective(loss, l2=RELEASED_L2, feature_bound=FEATURE_BOUND)
            if not any(self.statistic.misfits(objective)):
                return objective, pair(self.direction)
        raise PrivacyError(f"{self.name}: no attack fits the statistic {self.statistic!r}")

    def _releases(self, objective: Objective, samples: Samples, runs: int, seed: int) -> Floats:
        problem = Problem(*repeated(samples, runs), objective)
        return ReleaseOnce(self.budget, self.statistic).release(problem, seed).vectors


@dataclass(frozen=True, eq=False)
class LocalDPAttack(Attack):
    """A perturbed sample and its perturbed label, both published.

    It is the sample, or its opposite with the other label; the score is the likelihood ratio.
    """

    direction: Floats

    def ratios(self, which: int, runs: int, seed: int) -> Floats:
        """Normal noise on the sample, sometimes a lie on the label."""
        sign = (1.0, -1.0)[which]
        samples = Samples(sign * self.direction[None, :], np.array([sign]))
        problem = Problem(*repeated(samples, runs), Objective(feature_bound=FEATURE_BOUND))
        published = LocalDP(self.budget).perturbed(problem, seed + which).population
        label_epsilon = TARGET_SHARE * self.budget.epsilon
        share = Budget(self.budget.epsilon - label_epsilon, self.budget.delta)
        (multiplier,) = Plan.fitting(share, "gaussian", 1).multipliers
        deviation = 2 * FEATURE_BOUND * multiplier
        along = published.features @ self.direction
        return -2 * FEATURE_BOUND * along / deviation**2 - label_epsilon * published.targets
