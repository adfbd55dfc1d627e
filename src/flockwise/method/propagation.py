"""Model propagation (supplement C): smooth models that were learned alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import SimulationError
from flockwise.method.descent import Descent, starting_models
from flockwise.objective import Problem


@dataclass(frozen=True)
class ModelPropagation:
    """Eq. (4) with ℒ_i(θ) = ½‖θ − anchor_i‖²: each update is the exact minimiser of the agent's block.

    The anchors are the local models of Eq. (1), or the given array; the start is the anchors.
    """

    anchors: str | NDArray[np.float64] = "local"
    name = "propagation"

    def prepare(self, problem: Problem) -> Descent:
        if isinstance(self.anchors, str) and self.anchors != "local":
            raise SimulationError(f"anchors must be 'local' or an array, got anchors={self.anchors!r}")
        anchors, _ = starting_models(problem, self.anchors)
        # ℒ_i is 1-smooth, so α = 1/(1 + μc_i).
        return Descent(
            problem, anchors.copy(), False, 1 / (1 + problem.pulls), problem.pulls, anchors=anchors
        )
