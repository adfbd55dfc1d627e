"""Candidates on twins: one trial each, and what they are worth on average."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.engine import simulate
from flockwise.method import Candidate
from flockwise.method.base import check_method, check_prepared
from flockwise.method.rules import Descent, LocalAnchors
from flockwise.method.smoothing import propagate
from flockwise.objective import Problem
from flockwise.planner.twins import Twin
from flockwise.privacy.guarantee import Guarantee
from flockwise.results.metrics import agent_metrics, mean_metric
from flockwise.solve import solve_local_models


class TrialOutcome(NamedTuple):
    """Models kept and models released, noise over sensitivity, and all that was sent."""

    own: NDArray[Any]
    released: NDArray[Any] | None = None
    noise: float = math.nan
    vectors: int = 0
    bytes: int = 0


class Trial(NamedTuple):
    """One candidate on one twin: means over agents, noise over sensitivity, and what an agent sends.

    Without a release there is neither a metric of it nor noise: they are NaN.
    """

    share: float
    released: float
    own: float
    gain: float
    noise: float
    vectors: float
    bytes: float


def outcome(candidate: Candidate, problem: Problem, seed: int) -> TrialOutcome:
    """A run of the candidate; smoothing, which tends to the same end on every path, is solved at once."""
    problem, method = candidate.problem(problem), candidate.method
    if candidate.sends_nothing:
        return TrialOutcome(np.asarray(simulate(problem, method, seed=seed).models))
    check_method(method, problem)
    prepared = method.prepare(problem, seed)
    check_prepared(method, prepared)
    rule = prepared.rule
    if isinstance(rule, Descent) and isinstance(rule.local, LocalAnchors):
        models = propagate(problem.neighbors, rule.local.anchors, rule.pulls)
        own, noise = prepared.finish(models, None), _noise(prepared.guarantee)
        # The release itself, and a message after each update.
        vectors = (1 + candidate.stops["updates"]) * len(rule.edges.neighbors)
        return TrialOutcome(own, models, noise, vectors, vectors * models[0].nbytes)
    # A twin is small: threads would wait for each other for longer than they work.
    options = {"threads": 1, "record_every": None} if candidate.stops else {}
    run = simulate(problem, method, seed=seed, **options, **candidate.stops)
    own, released = np.asarray(run.own_models), np.asarray(run.models)
    return TrialOutcome(own, released, _noise(run.guarantee), run.final.vectors, run.final.bytes)


def trial(candidate: Candidate, twin: Twin, local: float) -> Trial:
    """Run it. local: the metric of this twin's local models."""
    problem = twin.problem
    made = outcome(candidate, problem, twin.seed)
    own = _metric(twin, made.own)
    return Trial(
        share=twin.share,
        released=math.nan if made.released is None else _metric(twin, made.released),
        own=own,
        gain=own - local if problem.loss.metric == "accuracy" else local - own,
        noise=made.noise,
        vectors=made.vectors / problem.n_agents,
        bytes=made.bytes / problem.n_agents,
    )


def local_metric(twin: Twin) -> float:
    """Of the models that agents learn alone."""
    return _metric(twin, solve_local_models(twin.problem))


def _metric(twin: Twin, models: NDArray[Any]) -> float:
    return mean_metric(agent_metrics(twin.problem.loss, twin.test, models))


def _noise(guarantee: Guarantee | None) -> float:
    multiplier = None if guarantee is None else guarantee.noise_multiplier
    return math.nan if multiplier is None else multiplier


@dataclass(frozen=True)
class Expectation:
    """Means over twins, every share of the graph counting alike."""

    candidate: Candidate
    trials: tuple[Trial, ...]

    def mean(self, field: str) -> float:
        return float(np.mean([np.mean(values) for values in self._by_share(field).values()]))

    @property
    def gain(self) -> float:
        """How much better own models are expected to be than local ones; negative if they are worse."""
        return self.mean("gain")

    @property
    def gains(self) -> dict[float, float]:
        """By the share of a model that varies along the graph."""
        return {share: float(np.mean(values)) for share, values in self._by_share("gain").items()}

    @property
    def gain_by_collaboration(self) -> float:
        """The gain beyond that of own models where nothing varies along the graph.

        Neighbors cannot help there: own models are better for being held less tightly, which can be had
        alone and is not a reason to send anything.
        """
        return self.gain - max(0.0, self.gains[0.0])

    @property
    def spread(self) -> float:
        """Standard deviation of the gain over all twins: how much one network may differ from the mean."""
        return float(np.std([trial.gain for trial in self.trials]))

    @property
    def error(self) -> float:
        """Standard error of the expected gain, from twins of the same share."""
        groups = self._by_share("gain").values()
        return math.sqrt(sum(np.var(values, ddof=1) / len(values) for values in groups)) / len(groups)

    def _by_share(self, field: str) -> Mapping[float, NDArray[np.float64]]:
        shares = dict.fromkeys(trial.share for trial in self.trials)
        return {
            share: np.array([getattr(trial, field) for trial in self.trials if trial.share == share])
            for share in shares
        }
