"""The choice of μ, against solving and scoring each value from scratch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flockwise.data import Population
from flockwise.engine import simulate
from flockwise.errors import DataError, ObjectiveError
from flockwise.graph import SimilarityGraph
from flockwise.method import ReleaseOnce
from flockwise.objective import Logistic, Loss, Objective, Problem, Quadratic
from flockwise.objective.local_batch import LocalObjectives
from flockwise.privacy.budget import Budget
from flockwise.results.metrics import agent_metrics, mean_metric
from flockwise.results.tuning import WEIGHTS, TradeoffChoice, choose_tradeoff
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


def score(problem: Problem, held_out: Population, judged_by: Any, models: Any) -> float:
    if judged_by == "metric":
        return mean_metric(agent_metrics(problem.loss, held_out, models))
    judge = LocalObjectives(Problem(held_out, None, Objective(problem.loss, l2=0.0)))
    return float(judge.values(models).mean())


@pytest.mark.parametrize(
    ("loss", "judged_by", "words"),
    [
        (Logistic(), "loss", "log loss"),
        (Logistic(), "metric", "accuracy"),
        (Quadratic(), "loss", "squared error"),
        (Quadratic(), "metric", "rmse"),
    ],
)
def test_the_best_mean_over_trials_is_chosen(loss, judged_by, words):
    trials = [trial(loss, seed) for seed in (0, 1)]
    choice = choose_tradeoff(trials, GRID, judged_by=judged_by)
    assert (choice.judged_by, choice.weight) == (words, None)
    assert [row.tradeoff for row in choice.table] == [0.01, 1.0, 10.0]
    for row in choice.table:
        for (problem, held_out), found in zip(trials, row.problem_scores, strict=True):
            models = solve_optimum(problem.with_tradeoff(row.tradeoff)).models
            assert found == pytest.approx(score(problem, held_out, judged_by, models), rel=1e-3)
        assert row.score == pytest.approx(np.mean(row.problem_scores), rel=1e-15)
    best = max if words == "accuracy" else min
    assert choice.best == best(choice.table, key=lambda row: row.score).tradeoff


def test_penalties_are_chosen_together_with_the_tradeoff():
    """The pair, and not the best trade-off under some penalty that nobody chose."""
    problem, held_out = trial(Quadratic(), 0)
    choice = choose_tradeoff([(problem.with_objective(l2="auto"), held_out)], GRID)

    def reached(tradeoff: float, weight: float) -> float:
        penalties = weight / problem.population.sample_counts
        tried = problem.with_objective(tradeoff=tradeoff, l2=tuple(penalties.tolist()))
        return score(problem, held_out, "loss", solve_optimum(tried).models)

    everything = {(mu, kappa): reached(mu, kappa) for mu in GRID for kappa in WEIGHTS}
    assert (choice.best, choice.weight) == min(everything, key=lambda pair: everything[pair])
    for row in choice.table:
        assert row.score == pytest.approx(min(everything[row.tradeoff, one] for one in WEIGHTS), rel=1e-4)
    applied = choice.applied(problem)
    assert applied.tradeoff == choice.best
    assert applied.l2_penalties == pytest.approx((choice.weight or 0) / problem.population.sample_counts)


def test_a_choice_says_what_it_costs_and_guarantees_name_it():
    problem, held_out = trial(Logistic(), 0)
    trials = [(problem.with_objective(l2="auto"), held_out)]
    budget = Budget(1.0, 1e-5)

    def gaps(choice: TradeoffChoice) -> tuple[str, ...]:
        guarantee = simulate(
            choice.applied(problem), ReleaseOnce(budget), updates=1, progress=False
        ).guarantee
        assert guarantee is not None
        return tuple(one for one in guarantee.not_covered if "chosen" in one)

    private, public = (choose_tradeoff(trials, GRID, public=known) for known in (False, True))
    assert "names it as not covered" in private.cost
    assert "costs no privacy" in public.cost
    assert gaps(private) == (
        "the penalties l2, chosen by cross-validation on the agents' samples",
        "the trade-off, chosen on held-out samples of the agents",
    )
    assert gaps(public) == ()


def test_agents_that_resemble_each_other_are_better_off_together():
    choice = choose_tradeoff([trial(Quadratic(), seed) for seed in range(3)], (0.1, 1e4))
    assert choice.best == 0.1


def test_what_cannot_be_judged_is_refused():
    problem, held_out = trial(Quadratic(), 0)
    with pytest.raises(ObjectiveError, match="at least one problem"):
        choose_tradeoff([], GRID)
    with pytest.raises(ObjectiveError, match="at least one problem and one value"):
        choose_tradeoff([(problem, held_out)], [])
    with pytest.raises(ObjectiveError, match="different losses"):
        choose_tradeoff([(problem, held_out), trial(Logistic(), 0)], GRID)
    two = Population.packed(np.zeros((2, 4)), np.zeros(2), np.arange(3))
    with pytest.raises(ObjectiveError, match="validation data has 2 agents and the problem 8"):
        choose_tradeoff([(problem, two)], GRID)
    strangers = replace(held_out, given_names=tuple("abcdefgh"))
    with pytest.raises(DataError, match="no agent named 'a'"):
        choose_tradeoff([(problem, strangers)], GRID)
    with pytest.raises(DataError, match="the features are 'a', 'b', 'c', 'd'"):
        choose_tradeoff([(problem, replace(held_out, feature_names=tuple("abcd")))], GRID)
    with pytest.raises(ObjectiveError, match="give it to all of them or none"):
        choose_tradeoff([(problem, held_out), (problem.with_objective(l2="auto"), held_out)], GRID)
    nobody = Population.packed(np.empty((0, 4)), np.empty(0), np.zeros(9, dtype=np.int64))
    with pytest.raises(ObjectiveError, match="no samples"):
        choose_tradeoff([(problem, nobody)], GRID)


def test_validation_samples_find_their_agents_by_name():
    problem, held_out = trial(Quadratic(), 0)
    expected = choose_tradeoff([(problem, held_out)], GRID)
    assert choose_tradeoff([(problem, held_out.select([7, 1, 3, 2, 4, 5, 6, 0]))], GRID) == expected
