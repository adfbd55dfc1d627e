"""What comes of one candidate on one generated problem."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.engine import simulate
from flockwise.method import Candidate
from flockwise.method.base import check_method, check_prepared
from flockwise.method.rules import Descent, LocalAnchors
from flockwise.method.smoothing import propagate
from flockwise.objective import Problem


class TrialOutcome(NamedTuple):
    """Models kept and models released, noise over sensitivity, and all that was sent."""

    own: NDArray[Any]
    released: NDArray[Any] | None = None
    noise: float = math.nan
    vectors: int = 0
    bytes: int = 0


def outcome(candidate: Candidate, problem: Problem, seed: int) -> TrialOutcome:
    """A run of the candidate; smoothing, which tends to the same end on every path, is solved at once."""
    problem, method = candidate.problem(problem), candidate.method
    if candidate.sends_nothing:
        return TrialOutcome(np.asarray(simulate(problem, method, seed=seed).models))
    check_method(method, problem)
    prepared = method.prepare(problem, seed)
    check_prepared(method, prepared)
    if isinstance(prepared.rule, Descent) and isinstance(prepared.rule.local, LocalAnchors):
        return _settled(candidate, prepared, problem)
    # A twin is small: threads would wait for each other for longer than they work.
    options = {"threads": 1, "record_every": None} if candidate.stops else {}
    run = simulate(problem, method, seed=seed, **options, **candidate.stops)
    assert run.own_models is not None
    assert run.guarantee is not None
    final = run.final
    noise = run.guarantee.noise_multiplier
    return TrialOutcome(
        np.asarray(run.own_models),
        np.asarray(run.models),
        math.nan if noise is None else noise,
        final.vectors,
        final.bytes,
    )


def _settled(candidate: Candidate, prepared: Any, problem: Problem) -> TrialOutcome:
    rule, anchors = prepared.rule, prepared.rule.local.anchors
    models = propagate(problem.neighbors, anchors, rule.pulls)
    multiplier = prepared.guarantee.noise_multiplier
    # The release itself, and a message after each update.
    vectors = (1 + candidate.stops["updates"]) * len(rule.edges.neighbors)
    own = prepared.finish(models, None)
    noise = math.nan if multiplier is None else multiplier
    return TrialOutcome(own, models, noise, vectors, vectors * models[0].nbytes)
