"""What grouped data are predicted with in other ways: alone, by one model, or from single releases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.grouped import GroupedSplit
from flockwise.data import Population
from flockwise.engine import simulate
from flockwise.graph import random_graph
from flockwise.method import Local, LowPass, ReleaseOnce
from flockwise.objective import Problem
from flockwise.objective.losses import has_two_classes
from flockwise.objective.passes import all_scores
from flockwise.privacy.budget import Budget
from flockwise.release import OutputPerturbation, PointMean
from flockwise.results.metrics import LEAST_PROBABILITY, probabilities
from flockwise.solve import choose_l2, solve_local_models
from flockwise.solve.penalty import WEIGHTS

Models = NDArray[np.float64]

# Neighbors of an agent where the data tell nothing about who resembles whom.
DEGREE = 10
# From which residual on a released model takes it as absolute: that of a target within [−1, 1].
RESIDUAL = 1.0
# λ of released models, in units of the curvature that their data have in one direction. Of what plans try
# this one did better, on splits that are not reported.
PENALTY_SHARE = 0.5


class Errors(NamedTuple):
    """Of all test rows together, and the mean over the agents that have any."""

    rows: float
    agents: float


def errors_of(split: GroupedSplit, models: Models) -> Errors:
    """RMSE, or log loss where there are two classes, of each agent's model on its own test rows."""
    loss, test = split.problem.loss, split.test
    blocks = np.ascontiguousarray(models, dtype=np.float64).reshape(len(models), loss.outputs, -1)
    scores = all_scores(test.features, test.offsets[:-1], test.offsets, blocks)
    if has_two_classes(loss):
        chances = probabilities(loss, scores)[np.arange(test.n_samples), (test.targets > 0).astype(int)]
        return _means(test, -np.log(np.maximum(chances, LEAST_PROBABILITY)))
    return _means(test, (loss.predict(scores) - test.targets) ** 2, np.sqrt)


def _means(test: Population, values: NDArray[Any], outer: Any = np.asarray) -> Errors:
    counts = test.sample_counts
    sums = np.bincount(np.repeat(np.arange(test.n_agents), counts), values, test.n_agents)
    of_agents = sums[counts > 0] / counts[counts > 0]
    return Errors(float(outer(values.mean())), float(outer(of_agents).mean()))


def tuned_local_models(problem: Problem) -> Models:
    """Everyone alone, with the one ridge weight that predicts best within the training rows."""
    return simulate(choose_l2(problem), Local()).models


def best_local_models(split: GroupedSplit) -> Models:
    """Everyone alone, with the ridge weight that is best on the test rows: nobody can do that."""
    tried = (ridge_models(split.problem, weight) for weight in WEIGHTS)
    return min(tried, key=lambda models: errors_of(split, models).rows)


def ridge_models(problem: Problem, weight: float) -> Models:
    """Minima of the sum of losses + weight·‖θ‖²."""
    counts = np.maximum(problem.population.sample_counts, 1)
    return solve_local_models(problem.with_objective(l2=tuple((weight / counts).tolist())))


def pooled_models(problem: Problem) -> Models:
    """One ridge model of all rows together, the same for everyone, its weight chosen in the same way."""
    population = problem.population
    together = Population.packed(
        population.features, population.targets, np.array([0, population.n_samples]), agent_names=["all"]
    )
    one = choose_l2(Problem(together, None, replace(problem.objective, l2="auto")))
    return np.repeat(solve_local_models(one), problem.n_agents, axis=0)


def release_once_models(problem: Problem, budget: Budget, seed: int) -> Models:
    """Own models after one release per agent, on random edges: nothing public says who resembles whom.

    Means where there are two classes, models elsewhere, and the low-pass filter, as a plan would try them.
    """
    linked = replace(problem, graph=random_graph(problem.n_agents, DEGREE, seed))
    method = ReleaseOnce(budget, _statistic(problem), LowPass())
    own = simulate(linked, method, seed=seed).own_models
    assert own is not None
    return own


def _statistic(problem: Problem) -> PointMean | OutputPerturbation:
    if has_two_classes(problem.loss):
        return PointMean()
    bound = problem.objective.feature_bound
    assert bound is not None
    return OutputPerturbation(RESIDUAL, PENALTY_SHARE * problem.loss.curvature * bound**2 / problem.dimension)
