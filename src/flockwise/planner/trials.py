"""Candidates on twins: one trial each, and what they are worth on average."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.engine import Conditions, simulate
from flockwise.engine.base import models_sent
from flockwise.engine.simulate import Stops
from flockwise.errors import without_advice
from flockwise.method import Candidate
from flockwise.method.base import check_method, check_prepared
from flockwise.method.rules import Descent
from flockwise.objective import Problem
from flockwise.planner.twins import Twin
from flockwise.privacy.guarantee import Guarantee
from flockwise.results.metrics import agent_metrics, mean_metric
from flockwise.solve import solve_local_models

# λ_i = weight/m_i: local models are tried with all of these, and the best is what a run has to beat.
LOCAL_WEIGHTS: Final = tuple(4.0**power for power in range(-5, 4))


class TrialOutcome(NamedTuple):
    """Models kept and models released, what is guaranteed, and all that was sent."""

    own: NDArray[Any]
    released: NDArray[Any]
    guarantee: Guarantee | None
    vectors: int
    bytes: int


class LocalFit(NamedTuple):
    """Local models of a twin, with the penalty that is best on its test samples: their metric, and weight."""

    metric: float
    weight: float


class Trial(NamedTuple):
    """One candidate on one twin: means over agents, noise over sensitivity, and what an agent sends.

    gain: over the best local models, in accuracy or as a share of their RMSE.
    """

    world: str
    released: float
    own: float
    gain: float
    noise: float
    vectors: float
    bytes: float


def outcome(candidate: Candidate, problem: Problem, seed: int) -> TrialOutcome:
    """A run of the candidate; models to which updates tend in any order are computed at once."""
    problem, method = candidate.problem(problem), candidate.method
    check_method(method, problem)
    with without_advice():  # the plan says it once
        prepared = method.prepare(problem, seed)
    check_prepared(method, prepared)
    updates = _updates_each(Stops(**candidate.stops), problem.n_agents)
    rule, settled, finish = prepared.rule, prepared.settled, prepared.finish
    if settled is not None and finish is not None and updates is not None and isinstance(rule, Descent):
        models, every = settled(), np.full(problem.n_agents, updates)
        vectors = models_sent(rule, every, Conditions().table(rule.ids), np.uint64(seed), 0)
        own = finish(models, None)
        return TrialOutcome(own, models, prepared.guarantee, vectors, vectors * models[0].nbytes)
    # A twin is small: threads would wait for each other for longer than they work.
    options = {"threads": 1, "record_every": None} if candidate.stops else {}
    with without_advice():
        run = simulate(problem, method, seed=seed, **options, **candidate.stops)
    own, released = np.asarray(run.own_models), np.asarray(run.models)
    return TrialOutcome(own, released, run.guarantee, run.final.vectors, run.final.bytes)


def _updates_each(stops: Stops, n_agents: int) -> int | None:
    """How often an agent acts until then, on average; None if nobody can say."""
    ticks = None if stops.ticks is None else stops.ticks / n_agents
    given = [end for end in (stops.updates, ticks, stops.time) if end is not None]
    return round(min(given)) if given else None


def trial(candidate: Candidate, twin: Twin, alone: LocalFit) -> Trial:
    """Run it on a twin whose local models are known."""
    problem = twin.problem
    if problem.objective.l2 == "auto":
        problem = _with_weight(problem, alone.weight)
    made = outcome(candidate, problem, twin.seed)
    own, multiplier = metric_of(twin, made.own), made.guarantee and made.guarantee.noise_multiplier
    return Trial(
        world=twin.world.words,
        released=metric_of(twin, made.released),
        own=own,
        gain=own - alone.metric if problem.loss.metric == "accuracy" else 1 - own / alone.metric,
        noise=math.nan if multiplier is None else multiplier,
        vectors=made.vectors / problem.n_agents,
        bytes=made.bytes / problem.n_agents,
    )


def learned_alone(twin: Twin, weights: tuple[float, ...] = LOCAL_WEIGHTS) -> LocalFit:
    """The best that agents do alone, with one penalty for all, chosen in hindsight."""
    tried = [
        LocalFit(metric_of(twin, solve_local_models(_with_weight(twin.problem, weight))), weight)
        for weight in weights
    ]
    best = max if twin.problem.loss.metric == "accuracy" else min
    return best(tried, key=lambda one: one.metric)


def _with_weight(problem: Problem, weight: float) -> Problem:
    penalties = weight / np.maximum(problem.population.sample_counts, 1)
    return problem.with_objective(l2=tuple(penalties.tolist()))


def metric_of(twin: Twin, models: NDArray[Any]) -> float:
    return mean_metric(agent_metrics(twin.problem.loss, twin.test, models))


@dataclass(frozen=True)
class Expectation:
    """Means over twins of all worlds, each counting alike."""

    candidate: Candidate
    trials: tuple[Trial, ...]

    def mean(self, field: str) -> float:
        return float(np.mean([getattr(trial, field) for trial in self.trials]))

    @property
    def gain(self) -> float:
        """How much better own models are expected to be than the best local ones; negative if worse."""
        return self.mean("gain")

    @property
    def gains(self) -> dict[str, float]:
        """By world."""
        worlds = dict.fromkeys(trial.world for trial in self.trials)
        return {
            world: float(np.mean([trial.gain for trial in self.trials if trial.world == world]))
            for world in worlds
        }

    @property
    def worst(self) -> Trial:
        """The twin that gains least, or loses most."""
        return min(self.trials, key=lambda trial: trial.gain)

    @property
    def error(self) -> float:
        """Standard error of the expected gain, from twins of the same world: worlds are no random draws."""
        worlds = dict.fromkeys(trial.world for trial in self.trials)
        groups = [[one.gain for one in self.trials if one.world == world] for world in worlds]
        if any(len(gains) < 2 for gains in groups):
            return math.inf
        return math.sqrt(sum(np.var(gains, ddof=1) / len(gains) for gains in groups)) / len(groups)
