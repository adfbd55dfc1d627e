"""The two ends of Eq. (2): everyone alone, and one model for all. Neither sends a message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flockwise.method.base import METHODS, Candidate, Prepared, PublicFacts
from flockwise.method.rules import Solved
from flockwise.objective import CollaborativeObjective, Objective, Problem
from flockwise.release.statistic import Misfit
from flockwise.solve import solve_global_model, solve_local_models


@METHODS.register
@dataclass(frozen=True)
class Local:
    """Eq. (1): every agent learns from its own data only (the limit μ → ∞)."""

    name = "local"
    label: ClassVar[str] = "local (each alone)"
    rule: ClassVar[type] = Solved
    needs_graph: ClassVar[bool] = False
    privacy = None

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        yield from ()

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        objective = None if problem.graph is None else CollaborativeObjective(problem)
        return Prepared(Solved(solve_local_models(problem)), objective)

    @classmethod
    def candidates(cls, facts: PublicFacts) -> Iterator[Candidate]:
        yield Candidate("local", cls())


@METHODS.register
@dataclass(frozen=True)
class Global:
    """One model for all, argmin Σ D_ii·c_i·ℒ_i (the limit μ → 0), computed centrally for comparison."""

    name = "global"
    label: ClassVar[str] = "global (one model)"
    rule: ClassVar[type] = Solved
    needs_graph: ClassVar[bool] = True
    privacy = None

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        yield from ()

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        models = np.tile(solve_global_model(problem), (problem.n_agents, 1))
        return Prepared(Solved(models), CollaborativeObjective(problem))
