"""Small random problems, made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support import LOSSES, named

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.objective import Loss, Objective, Problem


def random_targets(loss: Loss, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noisy = scores + 0.5 * rng.standard_normal(scores.shape)
    if loss.metric == "rmse":
        return noisy
    if loss.outputs == 1:
        return np.where(noisy >= 0, 1.0, -1.0).astype(scores.dtype)
    return rng.integers(0, loss.outputs, scores.shape).astype(scores.dtype)


def random_problem(
    loss: Loss,
    *,
    counts: tuple[int, ...] = (5, 0, 9, 3, 7),
    n_features: int = 3,
    edges: tuple[tuple[int, int], ...] = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)),
    seed: int = 0,
    **settings: Any,
) -> Problem:
    """settings: of the objective, beside its loss."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    features = rng.standard_normal((offsets[-1], n_features))
    targets = random_targets(loss, features @ rng.standard_normal(n_features), rng)
    weights = rng.uniform(0.2, 1.5, len(edges))
    return Problem(
        Population.packed(features, targets, offsets),
        SimilarityGraph.from_edges(len(counts), edges, weights),
        Objective(loss, **settings),
    )


@pytest.fixture
def make_problem() -> Callable[..., Problem]:
    return random_problem


@pytest.fixture(params=LOSSES, ids=named)
def loss(request: pytest.FixtureRequest) -> Loss:
    return request.param
