"""Supplement C's objective, against Eq. (2), dense algebra and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from flockwise.errors import ObjectiveError
from flockwise.graph import SimilarityGraph
from flockwise.objective import AnchoredObjective, PropagationObjective

GRAPH = SimilarityGraph.from_edges(5, [(0, 1), (1, 2), (2, 0), (2, 3)], [0.5, 1.0, 2.0, 0.3])  # 4 is isolated
CONFIDENCES = np.array([1.0, 0.2, 0.5, 0.01, 0.7])
ANCHORS = np.random.default_rng(0).standard_normal((5, 3))


@pytest.fixture
def objective() -> PropagationObjective:
    return PropagationObjective(GRAPH, ANCHORS, 0.8 * CONFIDENCES)


def test_value_is_eq_2_with_anchored_local_objectives(objective):
    models = np.random.default_rng(1).standard_normal((5, 3))
    weights = GRAPH.to_scipy().toarray()
    expected = 0.25 * sum(
        weights[i, j] * np.sum((models[i] - models[j]) ** 2) for i in range(5) for j in range(5)
    ) + 0.8 * sum(
        GRAPH.degrees[i] * CONFIDENCES[i] * AnchoredObjective(ANCHORS[i]).value(models[i]) for i in range(5)
    )
    assert objective.value(models) == pytest.approx(expected, rel=1e-14)
    numeric = approx_fprime(models.ravel(), lambda flat: objective.value(flat.reshape(5, 3)))
    assert objective.gradient(models).ravel() == pytest.approx(numeric, abs=1e-6)


def test_optimum_solves_the_dense_system_and_leaves_the_isolated_at_their_anchor(objective):
    optimum = objective.optimum()
    assert objective.gradient(optimum) == pytest.approx(np.zeros((5, 3)), abs=1e-14)
    pulls = np.diag(0.8 * GRAPH.degrees * CONFIDENCES)
    system = (GRAPH.laplacian().toarray() + pulls)[:4, :4]
    assert optimum[:4] == pytest.approx(np.linalg.solve(system, (pulls @ ANCHORS)[:4]), rel=1e-12)
    assert np.array_equal(optimum[4], ANCHORS[4])


def test_without_edges_the_anchors_are_optimal():
    lonely = PropagationObjective(SimilarityGraph.from_edges(5, []), ANCHORS, 0.8 * CONFIDENCES)
    assert np.array_equal(lonely.optimum(), ANCHORS)


@pytest.mark.parametrize(
    ("anchors", "pulls", "message"),
    [
        (ANCHORS[:3], CONFIDENCES, "one model for each of 5 agents"),
        (ANCHORS * np.inf, CONFIDENCES, "agent 0: its anchor"),
        (ANCHORS, CONFIDENCES[:2], r"one entry per agent \(5\), got shape \(2,\)"),
        (ANCHORS, CONFIDENCES - 0.2, "agent 1: its pull must be positive and finite, got 0.0"),
        (ANCHORS, CONFIDENCES * np.inf, "agent 0: its pull must be positive and finite, got inf"),
    ],
)
def test_bad_parts_are_refused(anchors, pulls, message):
    with pytest.raises(ObjectiveError, match=message):
        PropagationObjective(GRAPH, anchors, pulls)


def test_models_of_the_wrong_shape_are_refused(objective):
    with pytest.raises(ObjectiveError, match=r"shape \(5, 3\), got \(5, 2\)"):
        objective.value(np.zeros((5, 2)))
