"""Prop. 1's constants, against dense algebra; the inequalities themselves are in tests/property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from flockwise.errors import ObjectiveError
from flockwise.objective import Logistic, Quadratic
from flockwise.theory import convergence, convergence_theory


def test_constants_follow_their_definitions(make_problem):
    problem = make_problem(Logistic(), tradeoff=0.4)
    theory = convergence_theory(problem)
    penalties = 2 * 0.4 * problem.neighbors.degrees * problem.confidences * problem.l2_penalties
    lower_bound = problem.neighbors.laplacian().toarray() + np.diag(penalties)
    assert theory.published_strong_convexity == pytest.approx(penalties.min(), rel=1e-14)
    assert theory.strong_convexity == pytest.approx(np.linalg.eigvalsh(lower_bound)[0], rel=1e-10)
    assert theory.strong_convexity > theory.published_strong_convexity
    assert theory.smallest_block_smoothness == problem.block_smoothness.min()
    assert theory.largest_block_smoothness == problem.block_smoothness.max()
    expected = 1 - theory.strong_convexity / (problem.n_agents * theory.largest_block_smoothness)
    assert theory.contraction == pytest.approx(expected, rel=1e-15)
    assert theory.contraction < theory.published_contraction < 1


def test_sparse_and_dense_eigenvalues_agree(make_problem, monkeypatch):
    edges = tuple((i, (i + step) % 60) for i in range(60) for step in (1, 5))
    problem = make_problem(Quadratic(), counts=tuple(range(1, 61)), edges=edges, l2=0.05)
    dense = convergence_theory(problem).strong_convexity
    monkeypatch.setattr(convergence, "_LARGEST_DENSE", 1)
    sparse = convergence_theory(problem).strong_convexity
    assert sparse == pytest.approx(dense, rel=1e-4)


@pytest.mark.parametrize(
    "edges",
    [
        tuple((i, (i + 1) % 60) for i in range(60)),
        tuple((i, i + 1) for i in range(59)),
        tuple((i, i + 1) for i in range(0, 60, 2)),  # 30 components
        tuple((0, i) for i in range(1, 60)),
    ],
)
@pytest.mark.parametrize("l2", [0.05, [0.0] * 30 + [1.0] * 30, 0.0])
def test_a_vector_proves_no_more_than_the_eigenvalue_and_nearly_that(make_problem, monkeypatch, edges, l2):
    problem = make_problem(Quadratic(), counts=tuple(range(1, 61)), edges=edges, l2=l2)
    lower_bound = problem.neighbors.laplacian().toarray() + np.diag(convergence.data_curvatures(problem))
    smallest = np.linalg.eigvalsh(lower_bound)[0]
    monkeypatch.setattr(convergence, "_LARGEST_DENSE", 1)
    proved = convergence_theory(problem).strong_convexity
    assert proved <= smallest + 1e-12
    assert proved == pytest.approx(smallest, rel=0.01, abs=1e-9)


def test_any_positive_vector_proves_a_bound():
    rng = np.random.default_rng(3)
    weights = np.triu(rng.random((20, 20)), 1)
    matrix = np.diag((weights + weights.T).sum(axis=1) + rng.random(20)) - weights - weights.T
    smallest = np.linalg.eigvalsh(matrix)[0]
    for _ in range(50):
        assert convergence._bound_by_vector(sparse.csr_array(matrix), rng.random(20) + 1e-3) < smallest


def test_bound_and_ticks_are_inverse(make_problem):
    theory = convergence_theory(make_problem(Quadratic()))
    ticks = theory.ticks_for(1e-6, initial_gap=3.0)
    assert theory.bound(3.0, ticks) <= 1e-6 < theory.bound(3.0, ticks - 1)
    assert theory.ticks_for(2.0, initial_gap=1.0) == 0
    assert theory.bound(3.0, np.array([0, 1])) == pytest.approx([3.0, 3.0 * theory.contraction], rel=1e-12)
    assert theory.published_bound(3.0, 10) == pytest.approx(3.0 * theory.published_contraction**10, rel=1e-12)


def test_without_penalty_only_the_convex_rate_holds(make_problem):
    problem = make_problem(Logistic(), l2=0.0)
    theory = convergence_theory(problem)
    assert theory.published_strong_convexity == 0
    assert theory.published_contraction == 1
    with pytest.raises(ObjectiveError, match="use convex_ticks_for"):
        theory.ticks_for(1e-3, initial_gap=1.0)
    expected = 2 * problem.n_agents * theory.largest_block_smoothness * 4.0 / 100
    assert theory.convex_bound(radius=2.0, ticks=100) == pytest.approx(expected, rel=1e-15)
    assert theory.convex_bound(2.0, np.array([0, 100]))[0] == math.inf  # pyright: ignore[reportIndexIssue]
    ticks = theory.convex_ticks_for(1e-3, radius=2.0)
    assert theory.convex_bound(2.0, ticks) <= 1e-3 < theory.convex_bound(2.0, ticks - 1)


def test_isolated_agents_slow_the_rate_down_but_do_not_spoil_it(make_problem):
    problem = make_problem(Logistic(), edges=((0, 1), (1, 2), (2, 3)))
    theory = convergence_theory(problem)
    assert theory.n_agents == 5
    assert theory.published_strong_convexity > 0
    assert theory.smallest_block_smoothness > 0


def test_nothing_converges_without_edges(make_problem):
    with pytest.raises(ObjectiveError, match="no agent has a neighbor"):
        convergence_theory(make_problem(Logistic(), edges=()))


def test_a_precision_of_zero_is_refused(make_problem):
    with pytest.raises(ObjectiveError, match="precision=0"):
        convergence_theory(make_problem(Logistic())).ticks_for(0, initial_gap=1.0)
