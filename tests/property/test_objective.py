"""Inequalities that hold for every problem and every state: smoothness, strong convexity, Prop. 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from tests.support import LOSSES, random_targets

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.objective import CollaborativeObjective, Loss, Objective, Problem, Quadratic
from flockwise.solve import solve_optimum
from flockwise.theory import convergence_theory

# Both sides of an inequality carry rounding errors of this size relative to the numbers in it.
ROUNDING = 1e-9


@st.composite
def problems(draw: st.DrawFn, losses: tuple[Loss, ...] = LOSSES) -> Problem:
    """Two to six agents, some perhaps without data or without neighbors, at least one edge."""
    loss = draw(st.sampled_from(losses))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = draw(st.lists(st.integers(0, 8), min_size=2, max_size=6))
    n_agents, n_features = len(counts), draw(st.integers(1, 4))
    offsets = np.concatenate(([0], np.cumsum(counts)))
    features = rng.standard_normal((offsets[-1], n_features)) * draw(st.sampled_from([0.1, 1.0, 5.0]))
    pairs = [(i, j) for i in range(n_agents) for j in range(i)]
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    targets = random_targets(rng, loss, int(offsets[-1]), spread=2.0)
    return Problem(
        Population.packed(features, targets, offsets),
        SimilarityGraph.from_edges(n_agents, edges, rng.uniform(0.05, 2.0, len(edges))),
        Objective(
            loss,
            tradeoff=draw(st.sampled_from([0.01, 0.3, 1.0, 10.0])),
            l2=draw(st.sampled_from([None, 0.05, 1.0])),
        ),
    )


def states(problem: Problem, seed: int, count: int) -> np.ndarray:
    shape = (count, problem.n_agents, problem.dimension)
    return np.random.default_rng(seed).normal(scale=2.0, size=shape)


seeds = st.integers(0, 2**32 - 1)


@given(problems(), seeds)
@settings(max_examples=15)
def test_gradient_is_that_of_the_value(problem, seed):
    objective = CollaborativeObjective(problem)
    (models,) = states(problem, seed, 1)
    error = check_grad(
        lambda flat: objective.value(flat.reshape(models.shape)),
        lambda flat: objective.gradient(flat.reshape(models.shape)).ravel(),
        models.ravel(),
    )
    # Forward differences err by about the step, 1.5e-8, times the curvature, and by rounding.
    scale = 1 + objective.value(models) + problem.block_smoothness.max()
    assert error <= 1e-6 * scale * models.size


@given(problems(), seeds)
@settings(max_examples=60)
def test_block_smoothness_bounds_the_change_of_each_block_gradient(problem, seed):
    objective = CollaborativeObjective(problem)
    models, shifts = states(problem, seed, 2)
    for agent in range(problem.n_agents):
        moved = models.copy()
        moved[agent] += shifts[agent]
        before, after = objective.gradient(models)[agent], objective.gradient(moved)[agent]
        change = np.linalg.norm(after - before)
        largest = problem.block_smoothness[agent] * np.linalg.norm(shifts[agent])
        assert change <= largest * (1 + ROUNDING) + ROUNDING * np.linalg.norm(before)


@given(problems(losses=(Quadratic(),)))
@settings(max_examples=30)
def test_block_smoothness_is_attained_by_the_quadratic_loss(problem):
    """Its Hessian is constant: L_i is the largest eigenvalue of block i, no more."""
    objective = CollaborativeObjective(problem)
    product, _ = objective.hessian(objective.local_objectives.zeros())
    for agent in range(problem.n_agents):
        block = np.empty((problem.dimension, problem.dimension))
        for k in range(problem.dimension):
            axis = objective.local_objectives.zeros()
            axis[agent, k] = 1.0
            block[k] = product(axis)[agent]
        largest = np.linalg.eigvalsh(block)[-1]
        assert problem.block_smoothness[agent] == pytest.approx(largest, rel=1e-8, abs=1e-12)


@given(problems(), seeds)
@settings(max_examples=60)
def test_strong_convexity_inequality_holds_for_both_constants(problem, seed):
    """Q(Θ') ≥ Q(Θ) + ∇Q(Θ)ᵀ(Θ' − Θ) + (σ/2)‖Θ' − Θ‖², over the agents that have neighbors."""
    objective, theory = CollaborativeObjective(problem), convergence_theory(problem)
    here, there = states(problem, seed, 2)
    difference = there - here
    distance = np.sum(difference[problem.neighbors.neighbor_counts > 0] ** 2)
    linear = objective.value(here) + np.vdot(objective.gradient(here), difference)
    for sigma in (theory.published_strong_convexity, theory.strong_convexity):
        below = linear + 0.5 * sigma * distance
        assert objective.value(there) >= below - ROUNDING * (abs(below) + objective.value(here))


@given(problems(), seeds)
@settings(max_examples=60)
def test_one_tick_contracts_the_expected_gap_as_prop_1_says(problem, seed):
    """Prop. 1, exactly: the mean over all n possible wakers, not an average of draws."""
    objective, theory = CollaborativeObjective(problem), convergence_theory(problem)
    best = solve_optimum(problem).value
    (models,) = states(problem, seed, 1)
    gradient = objective.gradient(models)
    before = objective.value(models)
    after = []
    for agent in range(problem.n_agents):
        updated = models.copy()
        if problem.block_smoothness[agent] > 0:  # an isolated agent's update leaves Q as it is
            updated[agent] -= gradient[agent] / problem.block_smoothness[agent]
        after.append(objective.value(updated))
    for contraction in (theory.contraction, theory.published_contraction):
        assert np.mean(after) - best <= contraction * (before - best) + ROUNDING * before


@given(problems())
@settings(max_examples=40)
def test_the_certified_gap_never_lies(problem):
    """A rough solution's gap, measured against a precise one, is within what it certified."""
    precise, rough = solve_optimum(problem, tolerance=1e-12), solve_optimum(problem, tolerance=1e-2)
    assert rough.value - precise.value <= rough.gap_bound + 1e-12 * rough.value
