"""Small networks with private data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.support import PUBLIC

from flockwise import Budget, Logistic, Objective, Population, Problem, SimilarityGraph
from flockwise.method import PublicFacts

LOGISTIC, DELTA = Logistic(), math.exp(-5)


def _ring(n_agents, reach, source: Any = PUBLIC):
    """Everyone is linked to the next few on either side."""
    agents = np.arange(n_agents)
    edges = np.concatenate([np.column_stack([agents, (agents + k) % n_agents]) for k in range(1, reach + 1)])
    return SimilarityGraph.from_edges(n_agents, edges, source=source)


def _problem(graph, seed=0, *, n_features=4, loss=LOGISTIC, feature_bound=None, samples=20):
    """Sample counts depend on the agent's number alone, features and targets on the seed."""
    random = np.random.default_rng(seed)
    counts = samples + np.arange(graph.n_agents) % 5
    offsets = np.concatenate([[0], np.cumsum(counts)])
    features = random.uniform(-0.5, 0.5, (offsets[-1], n_features))
    targets = random.choice([-1.0, 1.0], offsets[-1])
    if loss.outputs > 1:
        targets = (targets + 1) / 2
    objective = Objective(loss, feature_bound=feature_bound)
    return Problem(Population.packed(features, targets, offsets), graph, objective)


@pytest.fixture
def ring():
    return _ring


@pytest.fixture
def problem():
    return _problem


@pytest.fixture
def facts(ring, problem):
    """Facts of a ring of 40 agents, unless something else is said."""

    def make(graph=None, *, epsilon=1.0, delta=DELTA, residual_scale=None, tradeoff=None, **settings):
        task = problem(ring(40, 3) if graph is None else graph, **settings)
        return PublicFacts.of(
            task if tradeoff is None else task.with_tradeoff(tradeoff),
            Budget(epsilon, delta),
            chooses_tradeoff=tradeoff is None,
            residual_scale=residual_scale,
        )

    return make
