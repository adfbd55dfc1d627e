"""The attack on private coordinate descent, Eq. (6), in the compiled engine.

Agents without neighbors that hold the same data are independent runs, so that one simulation is
thousands of them. The attacker sees every model that an agent releases and knows all but its noise: for
either data set he lets the engine itself do the next update without noise, and what is missing to the
model that was released is the noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.audit.samples import AgentSamples, repeated
from flockwise.data import Population
from flockwise.engine import ENGINES, RunSettings, simulate
from flockwise.method import CoordinateDescent, PrivateUpdates, WarmStart
from flockwise.method.rules import Descent, DescentNoise
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.audit.gate import CLIP
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.randomness.clocks import NEVER
from flockwise.release import OutputPerturbation

FEATURE_BOUND = 1.0
TRADEOFF = 10.0
L2 = 0.01


def as_it_is(population: Population) -> Population:
    """No preparation of the data."""
    return population


@dataclass(frozen=True, eq=False)
class DescentAttack:
    """`prepare` is what agents do to their data first; with `warm_start` their first release is a model."""

    name: str
    mechanism: str
    budget: Budget
    accountant: str
    updates: int
    runs: int
    pair: tuple[AgentSamples, AgentSamples]
    prepare: Callable[[Population], Population] = as_it_is
    warm_start: OutputPerturbation | None = None

    def scores(self, runs: int, seed: int) -> Scores:
        problems = [self._problem(samples, runs) for samples in self.pair]
        return Scores(
            *(
                self._ratios(problems, self._releases(problem, seed + which))
                for which, problem in enumerate(problems)
            )
        )

    def _problem(self, samples: AgentSamples, runs: int) -> Problem:
        population, no_edges = repeated(samples, runs)
        objective = Objective(Quadratic(), tradeoff=TRADEOFF, l2=L2, feature_bound=FEATURE_BOUND)
        return Problem(self.prepare(population), no_edges, objective)

    @property
    def _method(self) -> CoordinateDescent:
        return CoordinateDescent(
            "zeros" if self.warm_start is None else WarmStart(self.warm_start),
            PrivateUpdates(self.budget, self.updates, CLIP, self.mechanism, self.accountant),
        )

    def _rule(self, problem: Problem, seed: int) -> Descent:
        rule = self._method.prepare(problem, seed).rule
        assert isinstance(rule, Descent)
        return rule

    def _releases(self, problem: Problem, seed: int) -> list[NDArray[np.float64]]:
        """What every agent sends, its start first: a run that stops early is the beginning of a whole one."""
        runs = (
            simulate(problem, self._method, seed=seed, updates=number, record_every=None)
            for number in range(1, self.updates + 1)
        )
        return [self._rule(problem, seed).start, *(run.state["models"] for run in runs)]

    def _ratios(self, problems: list[Problem], releases: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        # With the same seed the noise of two starts is the same, and drops out of their difference.
        first, second = (self._rule(problem, seed=0) for problem in problems)
        return (
            _start_ratios(second.start - first.start, _noise_of(first), releases[0])
            + _log_likelihoods(second, releases)
            - _log_likelihoods(first, releases)
        )


def _start_ratios(
    shifts: NDArray[np.float64], noise: DescentNoise, starts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log-likelihood ratios of starts that are released with normal noise, up to a constant."""
    if noise.start_sensitivities is None:
        return np.zeros(len(starts))
    multipliers = noise.schedule.multipliers[noise.schedule.rows, 0]
    return (starts * shifts).sum(axis=1) / (multipliers * noise.start_sensitivities) ** 2


def _log_likelihoods(descent: Descent, releases: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Of the noise that these data would need for these releases."""
    noise = _noise_of(descent)
    gains = (descent.step_sizes * descent.pulls * noise.sensitivities)[:, None]
    kind, multipliers = MECHANISMS[noise.schedule.mechanism], noise.multipliers[0]
    total = np.zeros(len(releases[0]))
    for multiplier, before, after in zip(multipliers, releases[:-1], releases[1:], strict=True):
        event = kind(1.0, float(multiplier), None, noise.dimension)
        total += event.log_likelihood((_next_without_noise(descent, before) - after) / gains)
    return total


def _next_without_noise(descent: Descent, models: NDArray[np.float64]) -> NDArray[np.float64]:
    """One update of every agent, by the engine that is attacked."""
    silent = dataclasses.replace(_noise_of(descent), sensitivities=np.zeros(len(models)))
    once = dataclasses.replace(descent, start=models, noise=silent)
    run = ENGINES["cpu"].start(once, RunSettings(seed=0, limit=1))
    run.advance(NEVER - 1, 2**62)
    return run.state()["models"]


def _noise_of(descent: Descent) -> DescentNoise:
    assert descent.noise is not None, "only a private descent is attacked"
    return descent.noise
