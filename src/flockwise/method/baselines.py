"""The two ends of Eq. (2): everyone alone, and one model for all. Neither sends a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.objective import Problem, solve_global_model, solve_local_models


@dataclass(frozen=True)
class Local:
    """Eq. (1): every agent learns from its own data only (the limit μ → ∞)."""

    name = "local"

    def solve(self, problem: Problem) -> NDArray[Any]:
        return solve_local_models(problem)


@dataclass(frozen=True)
class Global:
    """One model for all, argmin Σ D_ii·c_i·ℒ_i (the limit μ → 0), computed centrally for comparison."""

    name = "global"

    def solve(self, problem: Problem) -> NDArray[Any]:
        return np.tile(solve_global_model(problem), (problem.n_agents, 1))
