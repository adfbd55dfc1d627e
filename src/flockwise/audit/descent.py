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

from flockwise.audit.samples import Samples, repeated
from flockwise.data import Population
from flockwise.engine import Conditions, simulate
from flockwise.engine.cpu import CpuEngine
from flockwise.method import CoordinateDescent
from flockwise.method.descent import Descent
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.method.private_updates import PrivateUpdates, WarmStart
from flockwise.objective import Problem, Quadratic
from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.audit.gate import CLIP
from flockwise.privacy.audit.likelihood import log_likelihood
from flockwise.privacy.budget import Budget
from flockwise.privacy.noise_plan import MechanismName, NoisePlan
from flockwise.randomness.clocks import NEVER

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
    mechanism: MechanismName
    budget: Budget
    accountant: str
    updates: int
    runs: int
    pair: tuple[Samples, Samples]
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

    def _problem(self, samples: Samples, runs: int) -> Problem:
        population, no_edges = repeated(samples, runs)
        return Problem(
            self.prepare(population),
            no_edges,
            Quadratic(),
            tradeoff=TRADEOFF,
            l2=L2,
            smoothness="public",
            feature_bound=FEATURE_BOUND,
        )

    def _method(self, seed: int) -> CoordinateDescent:
        return CoordinateDescent(
            "zeros" if self.warm_start is None else WarmStart(self.warm_start, noise_seed=seed),
            PrivateUpdates(self.budget, self.updates, CLIP, self.mechanism, self.accountant),
        )

    def _releases(self, problem: Problem, seed: int) -> list[NDArray[np.float64]]:
        """What every agent sends, its start first: a run that stops early is the beginning of a whole one."""
        method = self._method(seed)
        runs = (
            simulate(problem, method, seed=seed, updates=number, record_every=None)
            for number in range(1, self.updates + 1)
        )
        return [method.prepare(problem).start, *(run.state["models"] for run in runs)]

    def _ratios(self, problems: list[Problem], releases: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        # With the same seed the noise of two starts is the same, and drops out of their difference.
        first, second = (self._method(seed=0).prepare(problem) for problem in problems)
        return (
            _start_ratios(second.start - first.start, _plan_of(first), releases[0])
            + _log_likelihoods(second, releases)
            - _log_likelihoods(first, releases)
        )


def _start_ratios(
    shifts: NDArray[np.float64], plan: NoisePlan, starts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log-likelihood ratios of starts that are released with normal noise, up to a constant."""
    if plan.start_sensitivities is None:
        return np.zeros(len(starts))
    return (starts * shifts).sum(axis=1) / (plan.start_multipliers * plan.start_sensitivities) ** 2


def _log_likelihoods(descent: Descent, releases: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Of the noise that these data would need for these releases."""
    plan = _plan_of(descent)
    gains = (descent.step_sizes * descent.pulls * plan.sensitivities)[:, None]
    events = plan.unit_events[0][plan.n_before :]
    total = np.zeros(len(releases[0]))
    for event, before, after in zip(events, releases[:-1], releases[1:], strict=True):
        total += log_likelihood(event, (_next_without_noise(descent, before) - after) / gains)
    return total


def _next_without_noise(descent: Descent, models: NDArray[np.float64]) -> NDArray[np.float64]:
    """One update of every agent, by the engine that is attacked."""
    silent = dataclasses.replace(_plan_of(descent), sensitivities=np.zeros(len(models)))
    once = dataclasses.replace(descent, start=models, noise=silent)
    engine = CpuEngine(once, Conditions().table(len(models)), seed=0, limit=1, ideal=True)
    engine.advance(NEVER - 1)
    return engine.models


def _plan_of(descent: Descent) -> NoisePlan:
    assert descent.noise is not None, "only a private descent is attacked"
    return descent.noise
