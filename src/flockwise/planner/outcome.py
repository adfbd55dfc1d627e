"""What comes of one candidate on one generated problem."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numpy.typing import NDArray

from flockwise.engine.run import simulate
from flockwise.method import Local, ReleaseOnce
from flockwise.method.smoothing import propagate
from flockwise.objective import Problem
from flockwise.planner.candidates import Candidate


class Outcome(NamedTuple):
    """Models kept and models released, noise over sensitivity, and all that was sent."""

    own: NDArray[Any]
    released: NDArray[Any] | None = None
    noise: float = math.nan
    vectors: int = 0
    bytes: int = 0


def outcome(candidate: Candidate, problem: Problem, seed: int) -> Outcome:
    """A run of the candidate; smoothing, which tends to the same end on every path, is solved at once."""
    problem, method = candidate.problem(problem), candidate.seeded(seed)
    if isinstance(method, Local):
        return Outcome(method.solve(problem))
    if isinstance(method, ReleaseOnce):
        return _settled(candidate, method, problem)
    # A twin is small: threads would wait for each other for longer than they work.
    run = simulate(problem, method, seed=seed, record_every=None, threads=1, **candidate.stops)
    assert run.own_models is not None
    assert run.guarantee is not None
    assert run.guarantee.noise_multiplier is not None
    final = run.final
    return Outcome(run.own_models, run.models, run.guarantee.noise_multiplier, final.vectors, final.bytes)


def _settled(candidate: Candidate, method: ReleaseOnce, problem: Problem) -> Outcome:
    descent = method.prepare(problem)
    assert descent.anchors is not None
    assert candidate.updates is not None
    models = propagate(problem.graph, descent.anchors, descent.pulls)
    multiplier = method.guarantee(problem).noise_multiplier
    assert multiplier is not None
    # The release itself, and a message after each update.
    vectors = (1 + candidate.updates) * len(problem.graph.neighbors)
    return Outcome(method.finish(problem, models), models, multiplier, vectors, vectors * models[0].nbytes)
