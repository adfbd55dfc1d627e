"""Public facts as problems: of some of the agents, and with generated samples in place of the real ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.method import PublicFacts
from flockwise.objective import Problem
from flockwise.privacy.budget import Budget


def problem_with(facts: PublicFacts, population: Population) -> Problem:
    """The same problem with other data, generated ones for instance."""
    return Problem(population, facts.graph, facts.objective)


def facts_of_part(facts: PublicFacts, agents: NDArray[np.int64]) -> PublicFacts:
    """Those of some agents, with the edges between them."""
    graph, budgets, l2 = facts.graph, facts.budgets, facts.objective.l2
    if graph is not None:
        graph = SimilarityGraph.from_scipy(graph.to_scipy()[agents][:, agents], source=graph.source)
    if not isinstance(budgets, Budget):
        budgets = tuple(budgets[agent] for agent in agents)
    if isinstance(l2, tuple):
        l2 = tuple(l2[agent] for agent in agents)
    return replace(
        facts,
        sample_counts=facts.sample_counts[agents],
        graph=graph,
        budgets=budgets,
        objective=replace(facts.objective, l2=l2),
    )
