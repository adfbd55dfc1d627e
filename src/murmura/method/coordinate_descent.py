"""Asynchronous block coordinate descent: the paper's Section 2.3."""

from __future__ import annotations

from dataclasses import dataclass

from murmura.method.descent import Descent, Start, starting_models
from murmura.objective import Problem


@dataclass(frozen=True)
class CoordinateDescent:
    """Eq. (4) at each tick, from `start`: "zeros" (public), "local" (Eq. (1)), or an array of models."""

    start: Start = "zeros"
    name = "cd"

    def prepare(self, problem: Problem) -> Descent:
        models, is_public = starting_models(problem, self.start)
        return Descent(problem, models, is_public, problem.step_sizes, problem.pulls)
