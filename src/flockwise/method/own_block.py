"""The silent finish of a descent, for all agents at once or for a part of them where their samples are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.method.rules import Descent
from flockwise.objective import Problem
from flockwise.protocol.aggregation import clipped_mean
from flockwise.release.finish import finish_around_means, finish_own_block, neighbor_means


@dataclass(frozen=True, eq=False)
class OwnBlock:
    """Everyone's own model by an exact solve on its own data, given what the others released.

    How far it trusts them follows from the public noise in their models, by agent the variance in the mean of
    its neighbors. Never to be sent.
    """

    problem: Problem
    variances: Floats

    def __call__(self, models: NDArray[Any], details: Any) -> Floats:
        return finish_own_block(self.problem, models, self.variances)

    def part(self, agents: NDArray[np.int64]) -> Callable[[Descent, NDArray[Any]], Floats]:
        """For the agents at these positions."""
        whole = self.problem
        l2 = tuple(whole.l2_penalties[agents].tolist())
        objective = replace(whole.objective, l2=l2, max_samples=whole.sample_cap)
        problem = Problem(whole.population.select(agents), None, objective)
        return OwnBlock(problem, self.variances[agents]).of_part

    def of_part(self, rule: Descent, models: NDArray[Any]) -> Floats:
        """models: of the agents of this part, and then of their neighbors elsewhere."""
        edges = rule.edges
        means = neighbor_means(edges.offsets_for(len(models)), edges, models)
        problem = replace(self.problem, population=self.problem.population.in_memory)
        return finish_around_means(problem, means, edges.degrees > 0, self.variances)


@dataclass(frozen=True, eq=False)
class ClippedOwnBlock:
    """The same around the clipped means of the neighbors' models."""

    problem: Problem
    variances: Floats

    def __call__(self, models: NDArray[Any], details: Any) -> Floats:
        graph, known = self.problem.neighbors, np.asarray(models, np.float64)
        means = np.zeros(known.shape)
        for agent in np.flatnonzero(graph.degrees):
            neighbors, weights = graph.neighbors_of(int(agent))
            means[agent] = clipped_mean(known[neighbors], weights)
        return finish_around_means(self.problem, means, graph.degrees > 0, self.variances)
