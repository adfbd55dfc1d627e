"""One agent of a real network, made of its own points and of what everyone knows.

The agent is that of the simulator, with the same update: step size and pull come from a `Problem` that has
this one agent in it, with public bounds in place of everything that would be computed from data.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from murmura.agent import Agent, Shelter
from murmura.agent.agent import Clock
from murmura.data import Population
from murmura.graph import SimilarityGraph
from murmura.objective import LocalObjective, Problem
from murmura.objective.losses import Loss
from murmura.privacy.gate import Gate


@dataclass(frozen=True)
class Settings:
    """The public side of a learning task, the same for all agents; see `Problem`.

    max_samples: the cap on an agent's points that confidences are measured against.
    feature_bound: on every ‖x‖₂; step sizes come from it and from no data. Without it, which is for networks
    without privacy, they come from the agent's points.
    """

    loss: Loss
    tradeoff: float
    max_samples: int
    feature_bound: float | None
    l2: float | None = None

    def problem(self, features: ArrayLike, targets: ArrayLike) -> Problem:
        """The problem of an agent with these points; who its neighbors are plays no part in its settings."""
        rows, values = np.asarray(features, np.float64), np.asarray(targets, np.float64)
        return Problem(
            Population.packed(rows, values, np.array([0, len(values)])),
            SimilarityGraph.from_edges(1, np.empty((0, 2), np.int64), np.empty(0)),
            self.loss,
            tradeoff=self.tradeoff,
            l2=self.l2,
            max_samples=self.max_samples,
            smoothness="exact" if self.feature_bound is None else "public",
            feature_bound=self.feature_bound,
        )


@dataclass(frozen=True)
class Protection:
    """An agent's gate, and the bound on the gradient of one point in the norm of its noise."""

    gate: Gate
    clip: float


def make_agent(
    name: str,
    problem: Problem,
    weights: Mapping[Hashable, float],
    clock: Clock,
    *,
    start: NDArray[Any] | None = None,
    protection: Protection | None = None,
    now: int = 0,
) -> Agent:
    """The agent with the points of a one-agent problem, and these ties; it starts from zeros."""
    term = LocalObjective.of_agent(problem, 0)
    return Agent(
        name,
        term,
        np.zeros(problem.dimension) if start is None else start,
        weights,
        step_size=float(problem.step_sizes[0]),
        pull=float(problem.pulls[0]),
        clock=clock,
        shelter=None if protection is None else Shelter(protection.gate, term, protection.clip),
        now=now,
    )
