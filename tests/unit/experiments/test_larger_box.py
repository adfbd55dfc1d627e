"""Points in a larger box are another μ, λ and noise; the nearest box is chosen on tuning instances."""

from __future__ import annotations

import numpy as np
import pytest
from experiments import published
from experiments.larger_box import mean_distance
from experiments.printed import descend_as_printed
from experiments.synthetic import PAPER_GRAPH, instance

from flockwise.privacy.budget import Budget
from flockwise.solve import solve_optimum

SEED, FACTOR, TRADEOFF = 1_000_000, 3.0, 0.04


def problems():
    """Points three times as long; and the same points with 9·μ and λ/9."""
    longer = instance(5, SEED, 1, TRADEOFF, PAPER_GRAPH, factor=FACTOR).problem
    plain = instance(5, SEED, 1, FACTOR**2 * TRADEOFF, PAPER_GRAPH).problem
    penalties = tuple((plain.l2_penalties / FACTOR**2).tolist())
    return longer, plain.with_objective(l2=penalties)


def test_a_factor_is_its_square_in_the_tradeoff_and_the_penalty():
    longer, plain = (solve_optimum(problem, tolerance=1e-10).models for problem in problems())
    np.testing.assert_allclose(FACTOR * longer, plain, atol=1e-4)


def test_and_less_noise_by_the_factor():
    longer, plain = problems()
    zeros, budget = np.zeros((longer.n_agents, longer.dimension)), Budget(0.5, 0.01)
    far = descend_as_printed(longer, zeros, budget, 3, 0)
    near = descend_as_printed(plain, zeros, budget, 3, 0, lipschitz=1 / FACTOR)
    np.testing.assert_allclose(FACTOR * far, near, rtol=1e-9, atol=1e-12)


def test_the_distance_is_measured_on_noisy_labels():
    """.91 on clean labels is .869 on noisy ones."""
    paper = published.FIG2C[1.05][10]
    assert mean_distance({10: {"1.05": {"accuracy": 0.91}}}) == pytest.approx(paper - 0.869)
