"""Private coordinate descent on ratings, tuned as the paper tunes it: on a fifth of each training set.

    printed   the last iterate, steps from the data, gradients clipped in L2 as in what the paper refers to,
              Laplace noise by Theorem 1: no guarantee
    sound     the library's: clipped in L1, public steps, the same noise; no guarantee either, since ratings
              are centred by the user's mean

The trade-off is the printed one. Features and graph are those of the whole training set, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.printed import descend_as_printed
from experiments.published import DELTA, PRINTED_TRADEOFF
from experiments.ratings_descent import LENGTH_BOUND
from experiments.ratings_measures import who_rates_alike
from experiments.ratings_rule import climb
from flockwise.data import Population
from flockwise.data.movielens import load_movielens
from flockwise.data.ratings import ratings_task
from flockwise.engine.simulate import simulate
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.results.metrics import agent_metrics
from flockwise.results.trajectory import Trajectory

Array = NDArray[np.float64]
Kind: TypeAlias = Literal["printed", "sound"]

PRINTED_CLIP = 10.0
VALIDATION_SHARE = 0.2
UPDATES = (1, 3, 10, 30, 100, 200, 500, 1000, 2000, 5000)
CLIPS = (30.0, 10.0, 3.0, 1.0, 0.3)
# Printed: the paper tunes the number of updates alone.
CHOICES: Mapping[Kind, Mapping[str, tuple[float, ...]]] = {
    "printed": {"updates": UPDATES},
    "sound": {"updates": UPDATES, "clip": CLIPS},
}


@dataclass(frozen=True)
class Tuning:
    updates: int = 100
    clip: float = PRINTED_CLIP


def task_of(split: int) -> tuple[Population, Population, SimilarityGraph]:
    """Training and test ratings, and the graph of one random split."""
    task = ratings_task(load_movielens(), seed=split)
    return task.train, task.test, who_rates_alike(task)


def descend(
    train: Population, graph: SimilarityGraph, epsilon: float, kind: Kind, tuning: Tuning, seed: int
) -> tuple[Array, Array | None]:
    """The last models, and the averages of the later half if the run has them."""
    budget, updates = Budget(epsilon, DELTA), int(tuning.updates)
    if kind == "printed":
        problem = Problem(train, graph, Objective(Quadratic(), tradeoff=PRINTED_TRADEOFF))
        start = np.zeros((problem.n_agents, problem.dimension))
        # A gradient of length C at most: C in the place of L₀.
        clip = tuning.clip
        return descend_as_printed(problem, start, budget, updates, seed, lipschitz=clip, clip=clip), None
    objective = Objective(Quadratic(), tradeoff=PRINTED_TRADEOFF, feature_bound=LENGTH_BOUND)
    privacy = PrivateUpdates(budget, updates, tuning.clip, "laplace", "theorem1")
    run: Trajectory = simulate(
        Problem(train, graph, objective),
        CoordinateDescent(privacy=privacy),
        seed=seed,
        record_every=None,
        threads=1,
    )
    return run.state["models"], np.asarray(run.models)


def tune(split: int, epsilon: float, kind: Kind) -> dict[str, Any]:
    """The settings that are best on a fifth of everybody's training ratings, and what is at an edge."""
    train, _, graph = task_of(split)
    rest, held_out = train.split(VALIDATION_SHARE, seed=split)

    @cache
    def error(tuning: Tuning) -> float:
        last, tail = descend(rest, graph, epsilon, kind, tuning, split)
        return rmse(held_out, last if tail is None else tail)

    # A smaller clip takes more updates: for every clip the best number of them, from that of the one before.
    best, least, start = Tuning(), math.inf, Tuning(updates=200)
    for clip in CHOICES[kind].get("clip", (PRINTED_CLIP,)):
        start = climb(replace(start, clip=clip), {"updates": UPDATES}, error)
        if (found := error(start)) < least:
            best, least = start, found
    edges = [name for name, grid in CHOICES[kind].items() if getattr(best, name) in (grid[0], grid[-1])]
    return {**asdict(best), "edge": edges}


def measure(split: int, settings: Sequence[tuple[float, Kind, int, float]]) -> dict[str, float]:
    """Test errors by "kind ε model"."""
    train, test, graph = task_of(split)
    errors = {}
    for epsilon, kind, updates, clip in settings:
        last, tail = descend(train, graph, epsilon, kind, Tuning(updates, clip), split)
        errors[f"{kind} {epsilon:g} last"] = rmse(test, last)
        if tail is not None:
            errors[f"{kind} {epsilon:g} tail"] = rmse(test, tail)
    return errors


def rmse(test: Population, models: Array) -> float:
    """Averaged over the users who have a test rating."""
    return float(np.nanmean(agent_metrics(Quadratic(), test, models)))
