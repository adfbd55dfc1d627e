"""The low-pass method computed at once, with all that it decided on the way."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from flockwise.method import LowPass, ReleaseOnce
from flockwise.method.release_once import finish_smoothed
from flockwise.method.rules import Rounds, Traffic
from flockwise.method.smoothing import Smoothing, smooth
from flockwise.objective import Problem
from flockwise.privacy.budget import Budget


class LowPassResult(NamedTuple):
    own_models: NDArray[Any]
    smoothing: Smoothing
    traffic: Traffic
    guarantee: str


def solve_lowpass(problem: Problem, budget: Budget, seed: int) -> LowPassResult:
    prepared = ReleaseOnce(budget, smoother=LowPass()).prepare(problem, seed)
    rule, finish, guarantee = prepared.rule, prepared.finish, prepared.guarantee
    assert isinstance(rule, Rounds)
    assert rule.at_once is not None
    assert finish is not None
    assert guarantee is not None
    outcome = rule.at_once(rule.ids)
    own_models = finish(outcome.models, outcome.details)
    return LowPassResult(own_models, outcome.details, outcome.traffic, guarantee.explain())


def own_models_after(problem: Problem, budget: Budget, seed: int, degree: int) -> NDArray[Any]:
    """With a filter of this degree, where the releases are not to decide it."""
    method = ReleaseOnce(budget)
    released = method.release(problem, seed)
    power = method.statistic.signal_power(problem.dimension)
    smoothing = smooth(problem.neighbors, released, power, degree)
    return finish_smoothed(problem, method.statistic, released, smoothing)
