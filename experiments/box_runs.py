"""The paper's runs as printed, on points of a box of any size: the steps of the experiment larger_box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.printed import descend_as_printed, private_start
from experiments.published import DELTA, PRINTED_TRADEOFF
from experiments.synthetic import PAPER_GRAPH, TUNING_TEST_SAMPLES, Instance, instance
from flockwise.engine.simulate import simulate
from flockwise.method import CoordinateDescent
from flockwise.objective import CollaborativeObjective
from flockwise.privacy.budget import Budget
from flockwise.solve import solve_local_models, solve_optimum

EPSILONS = (1.05, 0.55, 0.15)
START_EPSILON = 0.05  # of each ε; left unspent but for figure 2 (b)
UPDATES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CURVE_UPDATES = (1, 2, 4, 8)  # of figures 2 (a) and 2 (b)
CURVE_EPSILON = 0.5
WINDOW = (500, 1000, 1500)  # of figure 1, in iterations
LARGEST = 100


def draw_from_box(factor: float, dimension: int, seed: int, test: int) -> Instance:
    return instance(dimension, seed, test, PRINTED_TRADEOFF, PAPER_GRAPH, factor=factor)


def _zeros(drawn: Instance) -> NDArray[np.float64]:
    return np.zeros((drawn.problem.n_agents, drawn.problem.dimension))


def tune(factor: float, dimension: int, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """By ε, the number of updates that is best on these instances, and the accuracy that it has there."""
    draws = [draw_from_box(factor, dimension, seed, TUNING_TEST_SAMPLES) for seed in seeds]

    def accuracy(budget: Budget, updates: int) -> float:
        found = [
            drawn.accuracy(descend_as_printed(drawn.problem, _zeros(drawn), budget, updates, seed))
            for drawn, seed in zip(draws, seeds, strict=True)
        ]
        return float(np.mean(found))

    chosen = {}
    for epsilon in EPSILONS:
        budget = Budget(epsilon - START_EPSILON, DELTA)
        found = {updates: accuracy(budget, updates) for updates in UPDATES}
        best = max(found, key=lambda updates: found[updates])
        chosen[str(epsilon)] = {"updates": best, "accuracy": found[best]}
    return chosen


def measure(
    factor: float, dimension: int, updates: Sequence[tuple[float, int]], seed: int, test: int
) -> dict[str, float]:
    """Accuracies of figure 2 (c)."""
    drawn = draw_from_box(factor, dimension, seed, test)
    problem = drawn.problem
    found = {
        "local": drawn.accuracy(solve_local_models(problem)),
        "collaborative": drawn.accuracy(solve_optimum(problem, tolerance=1e-4).models),
    }
    for epsilon, count in updates:
        budget = Budget(epsilon - START_EPSILON, DELTA)
        models = descend_as_printed(problem, _zeros(drawn), budget, count, seed)
        found[str(epsilon)] = drawn.accuracy(models)
    return found


def measure_curves(factor: float, seed: int, test: int) -> dict[str, dict[str, float]]:
    """The ends of figure 2 (a), and coordinate descent in the window of figure 1."""
    drawn = draw_from_box(factor, LARGEST, seed, test)
    problem = drawn.problem
    found: dict[str, dict[str, float]] = {name: {} for name in ("2a accuracy", "2a objective")}
    for updates in CURVE_UPDATES:
        models = descend_as_printed(problem, _zeros(drawn), Budget(CURVE_EPSILON, DELTA), updates, seed)
        found["2a accuracy"][str(updates)] = drawn.accuracy(models)
        found["2a objective"][str(updates)] = drawn.objective(models)
    descents = {
        str(ticks): simulate(
            problem, CoordinateDescent("local"), seed=seed, ticks=ticks, record_every=None, threads=1
        )
        for ticks in WINDOW
    }
    start = CollaborativeObjective(problem).value(solve_local_models(problem))
    models = {ticks: np.asarray(run.models) for ticks, run in descents.items()}
    found["1 accuracy"] = {ticks: drawn.accuracy(own) for ticks, own in models.items()}
    found["1 objective"] = {ticks: run.final.objective / start for ticks, run in descents.items()}
    return found


def measure_from_release(factor: float, seed: int, test: int) -> dict[str, float]:
    """The ends of figure 2 (b), from local models that are released in our way and propagated."""
    drawn = draw_from_box(factor, LARGEST, seed, test)
    bounded = instance(LARGEST, seed, test, PRINTED_TRADEOFF, PAPER_GRAPH, True, factor=factor).problem
    start, budget = private_start(bounded, START_EPSILON, DELTA, seed), Budget(CURVE_EPSILON, DELTA)
    return {
        str(updates): drawn.accuracy(descend_as_printed(drawn.problem, start, budget, updates, seed))
        for updates in CURVE_UPDATES
    }
