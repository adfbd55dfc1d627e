"""The choice of μ, against solving and scoring each value from scratch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flockwise.data import Population
from flockwise.errors import DataError, ObjectiveError
from flockwise.graph import SimilarityGraph
from flockwise.objective import Logistic, Loss, Objective, Problem, Quadratic
from flockwise.results.metrics import agent_metrics, mean_metric
from flockwise.results.tuning import choose_tradeoff
from flockwise.solve import solve_optimum

GRID = (10.0, 0.01, 1.0)


def trial(loss: Loss, seed: int) -> tuple[Problem, Population]:
    """Eight agents whose targets follow nearly the same model, with few samples each."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((8 * 30, 4))
    scores = features @ np.array([1.0, -1.0, 0.5, 0.0]) + rng.standard_normal(len(features))
    targets = np.where(scores >= 0, 1.0, -1.0) if loss.metric == "accuracy" else scores
    population = Population.packed(features, targets, np.arange(0, 241, 30))
    train, held_out = population.split(0.8, seed)
    graph = SimilarityGraph.from_edges(8, [(i, (i + 1) % 8) for i in range(8)])
    return Problem(train, graph, Objective(loss)), held_out


@pytest.mark.parametrize("loss", [Logistic(), Quadratic()])
def test_the_best_mean_over_trials_is_chosen(loss):
    trials = [trial(loss, seed) for seed in (0, 1)]
    choice = choose_tradeoff(trials, GRID)
    assert choice.metric == loss.metric
    assert [row.tradeoff for row in choice.table] == [0.01, 1.0, 10.0]
    for row in choice.table:
        for (problem, held_out), score in zip(trials, row.problem_scores, strict=True):
            models = solve_optimum(problem.with_tradeoff(row.tradeoff)).models
            assert score == pytest.approx(mean_metric(agent_metrics(loss, held_out, models)), rel=1e-3)
        assert row.score == pytest.approx(np.mean(row.problem_scores), rel=1e-15)
    best = max if loss.metric == "accuracy" else min
    assert choice.best == best(choice.table, key=lambda row: row.score).tradeoff


def test_agents_that_resemble_each_other_are_better_off_together():
    choice = choose_tradeoff([trial(Quadratic(), seed) for seed in range(3)], (0.1, 1e4))
    assert choice.best == 0.1


def test_what_cannot_be_judged_is_refused():
    problem, held_out = trial(Quadratic(), 0)
    with pytest.raises(ObjectiveError, match="at least one problem"):
        choose_tradeoff([], GRID)
    with pytest.raises(ObjectiveError, match="at least one problem and one value"):
        choose_tradeoff([(problem, held_out)], [])
    with pytest.raises(ObjectiveError, match="different metrics"):
        choose_tradeoff([(problem, held_out), trial(Logistic(), 0)], GRID)
    two = Population.packed(np.zeros((2, 4)), np.zeros(2), np.arange(3))
    with pytest.raises(ObjectiveError, match="validation data has 2 agents and the problem 8"):
        choose_tradeoff([(problem, two)], GRID)
    strangers = replace(held_out, given_names=tuple("abcdefgh"))
    with pytest.raises(DataError, match="no agent named 'a'"):
        choose_tradeoff([(problem, strangers)], GRID)
    with pytest.raises(DataError, match="the features are 'a', 'b', 'c', 'd'"):
        choose_tradeoff([(problem, replace(held_out, feature_names=tuple("abcd")))], GRID)
    nobody = Population.packed(np.empty((0, 4)), np.empty(0), np.zeros(9, dtype=np.int64))
    with pytest.raises(ObjectiveError, match="no samples"):
        choose_tradeoff([(problem, nobody)], GRID)


def test_validation_samples_find_their_agents_by_name():
    problem, held_out = trial(Quadratic(), 0)
    expected = choose_tradeoff([(problem, held_out)], GRID)
    assert choose_tradeoff([(problem, held_out.select([7, 1, 3, 2, 4, 5, 6, 0]))], GRID) == expected
