"""All that a planner may know: what everyone knows before anyone looks at the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.objective import Huber, Loss, Problem
from flockwise.privacy.budget import Budget


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """Sizes, graph, loss, bounds and budgets; nothing here was computed from a feature or a target.

    tradeoff: μ, or None for one that the plan chooses. feature_bound: a bound on every ‖x‖₂, or None.
    residual_scale: how far targets lie from predictions, roughly, where targets are numbers; None if nobody
    has said. leaks: what was derived from private data all the same, the graph for instance; a plan made
    with it tells of it.
    """

    sample_counts: NDArray[np.int64]
    n_features: int
    graph: SimilarityGraph
    loss: Loss
    budgets: Budget | tuple[Budget, ...]
    l2: float | NDArray[np.float64] | None
    tradeoff: float | None
    sample_cap: int
    feature_bound: float | None
    residual_scale: float | None
    leaks: tuple[str, ...]

    @classmethod
    def of(
        cls,
        problem: Problem,
        budgets: Budget | Sequence[Budget],
        *,
        tradeoff: float | None = None,
        residual_scale: float | None = None,
    ) -> PublicFacts:
        """The one place where a problem with data is made into public facts: read here what is taken."""
        loss = problem.loss
        return cls(
            sample_counts=problem.population.sample_counts,
            n_features=problem.population.n_features,
            graph=problem.graph,
            loss=loss,
            budgets=budgets if isinstance(budgets, Budget) else tuple(budgets),
            l2=None if problem.l2 is None else _plain(problem.l2),
            tradeoff=tradeoff,
            sample_cap=problem.sample_cap,
            feature_bound=problem.feature_bound,
            residual_scale=loss.width if isinstance(loss, Huber) else residual_scale,
            leaks=problem.leaks,
        )

    @property
    def n_agents(self) -> int:
        return len(self.sample_counts)

    @property
    def least_delta(self) -> float:
        """0 if any agent allows no δ."""
        return self.budgets.delta if isinstance(self.budgets, Budget) else min(b.delta for b in self.budgets)

    def problem(self, population: Population) -> Problem:
        """The same problem with other data, generated ones for instance."""
        return Problem(
            population,
            self.graph,
            self.loss,
            tradeoff=self.tradeoff or 1.0,
            l2=self.l2,
            max_samples=self.sample_cap,
            smoothness="exact" if self.feature_bound is None else "public",
            feature_bound=self.feature_bound,
        )

    def only(self, agents: NDArray[np.int64]) -> PublicFacts:
        """Those of some agents, with the edges between them."""
        weights = self.graph.to_scipy()[agents][:, agents]
        return replace(
            self,
            sample_counts=self.sample_counts[agents],
            graph=SimilarityGraph.from_scipy(weights, source=self.graph.source),
            budgets=self.budgets
            if isinstance(self.budgets, Budget)
            else tuple(self.budgets[agent] for agent in agents),
            l2=self.l2[agents] if isinstance(self.l2, np.ndarray) else self.l2,
        )


def _plain(l2: Any) -> float | NDArray[np.float64]:
    values = np.asarray(l2, np.float64)
    return float(values) if values.ndim == 0 else values
