"""Model propagation (supplement C): smooth models that were learned alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Configured
from flockwise.errors import SimulationError
from flockwise.method.base import METHODS, Prepared
from flockwise.method.rules import Descent, Edges, LocalAnchors
from flockwise.method.start import starting_models
from flockwise.objective import Objective, Problem, PropagationObjective
from flockwise.release.statistic import Misfit


@METHODS.register
@dataclass(frozen=True)
class ModelPropagation:
    """Eq. (4) with ℒ_i(θ) = ½‖θ − anchor_i‖²: each update is the exact minimum of the agent's block.

    The anchors are the local models of Eq. (1), or the given array; the start is the anchors.
    """

    anchors: Annotated[str | NDArray[np.float64], Configured(None)] = "local"
    name = "propagation"
    label: ClassVar[str] = "model propagation"
    rule: ClassVar[type] = Descent
    needs_graph: ClassVar[bool] = True
    privacy = None

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        yield from ()

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        if isinstance(self.anchors, str) and self.anchors != "local":
            raise SimulationError(f"anchors must be 'local' or an array, got anchors={self.anchors!r}")
        anchors, _ = starting_models(problem, self.anchors)
        return propagated(problem, anchors, problem.pulls)


def propagated(problem: Problem, anchors: NDArray[Any], pulls: NDArray[np.float64]) -> Prepared:
    """Smoothing of anchors that everyone first broadcasts; ℒ_i is 1-smooth, so α = 1/(1 + μc_i)."""
    rule = Descent(
        np.arange(problem.n_agents),
        Edges.of(problem.neighbors),
        LocalAnchors(anchors),
        anchors.copy(),
        False,
        1 / (1 + pulls),
        pulls,
    )
    return Prepared(rule, PropagationObjective(problem.neighbors, anchors, pulls, 1.0))
