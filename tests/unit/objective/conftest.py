"""Small random problems, made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.objective import Huber, Logistic, Loss, Problem, Quadratic, Softmax

LOSSES = (Logistic(), Softmax(3), Quadratic(), Huber(0.5))


def random_targets(loss: Loss, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noisy = scores + 0.5 * rng.standard_normal(scores.shape)
    if isinstance(loss, Softmax):
        return rng.integers(0, loss.classes, scores.shape).astype(scores.dtype)
    return np.where(noisy >= 0, 1.0, -1.0).astype(scores.dtype) if isinstance(loss, Logistic) else noisy


def random_problem(
    loss: Loss,
    *,
    counts: tuple[int, ...] = (5, 0, 9, 3, 7),
    n_features: int = 3,
    edges: tuple[tuple[int, int], ...] = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)),
    seed: int = 0,
    **settings: Any,
) -> Problem:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    features = rng.standard_normal((offsets[-1], n_features))
    targets = random_targets(loss, features @ rng.standard_normal(n_features), rng)
    weights = rng.uniform(0.2, 1.5, len(edges))
    return Problem(
        Population.packed(features, targets, offsets),
        SimilarityGraph.from_edges(len(counts), edges, weights),
        loss,
        **settings,
    )


@pytest.fixture
def make_problem() -> Callable[..., Problem]:
    return random_problem


@pytest.fixture(params=LOSSES, ids=lambda loss: type(loss).__name__)
def loss(request: pytest.FixtureRequest) -> Loss:
    return request.param
