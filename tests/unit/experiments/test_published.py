"""Published values: each is reproduced by exactly one row, on test labels as noisy as the paper's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from experiments import published
from experiments.printed import PrintedNoise, descend_as_printed
from experiments.result import LABEL_NOISE, Row
from experiments.synthetic import instance

from flockwise.data import linear_classification
from flockwise.privacy.budget import Budget
from flockwise.results.metrics import agent_metrics
from flockwise.solve import solve_local_models

FOLDER = Path(__file__).parents[3] / "docs" / "reproduction"
TUNING_SEED = 1_000_000


def test_no_published_value_is_counted_twice_and_none_is_invented():
    files = FOLDER.glob("*.json")
    rows = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]
    counts = Counter(row["value"] for row in rows if "value" in row)
    assert set(counts) <= set(published.VALUES)
    assert set(counts.values()) == {1}
    assert len(set(published.VALUES)) == len(published.VALUES)


def test_an_accuracy_on_noisy_labels_follows_from_that_on_clean_ones():
    """Against labels that were really flipped: 100 agents, 400 points each, within four standard errors."""
    clean, noisy = (
        linear_classification(100, 10, seed=TUNING_SEED, test_samples=400, noisy_test=flip)
        for flip in (False, True)
    )
    drawn = instance(10, TUNING_SEED, 1, 1.0)
    models = solve_local_models(drawn.problem)
    found = [float(agent_metrics(drawn.problem.loss, task.test, models).mean()) for task in (clean, noisy)]
    row = Row("local", 100, 10, "baseline", "own", "accuracy", ours=found[0])
    error = np.sqrt(LABEL_NOISE * (1 - LABEL_NOISE) / (100 * 400))
    assert row.as_published == pytest.approx(found[1], abs=4 * error)
    assert found[0] - found[1] > 0.02


def test_as_printed_the_noise_is_that_of_theorem_1_and_nothing_is_clipped():
    """With no end of a budget it is coordinate descent; with a small one, noise of the printed scale."""
    problem = instance(10, TUNING_SEED, 1, 1.0).problem
    zeros = np.zeros((problem.n_agents, problem.dimension))
    exact = descend_as_printed(problem, zeros, Budget(1e9, 0.1), 1, 0)
    small = Budget(0.5, 0.1)
    moved = descend_as_printed(problem, zeros, small, 1, 0) - exact
    # One update of all: own noise, and a little of what the neighbors sent before.
    gains = problem.step_sizes * problem.pulls
    scale = 2 / (small.epsilon * problem.population.sample_counts)
    ratio = np.abs(moved).mean() / (gains * scale).mean()
    assert 0.9 < ratio < 2
    assert PrintedNoise.norm.fget is not None
