"""One split of real grouped data, or one draw of the rotated task, measured with one method."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.grouped import DATA_SETS, GroupedSplit
from experiments.grouped_baselines import (
    best_local_models,
    errors_of,
    pooled_models,
    release_once_models,
    ridge_models,
)
from experiments.scale import TUNING_SEEDS
from experiments.summed_descent import CHOICES, DescentSettings, common_models, finish_around
from experiments.synthetic import Network
from flockwise.data import linear_classification
from flockwise.engine import simulate
from flockwise.method import LearnedPrior
from flockwise.objective import Objective, Problem
from flockwise.privacy.budget import Budget
from flockwise.solve.mixed import fit_mixed_model

DELTA = 1e-5
# Splits on which gradient descent chooses its settings; they are not reported.
TUNING_SPLITS = range(TUNING_SEEDS, TUNING_SEEDS + 2)
# Weights of ‖θ‖² against the sum of losses: local models on the rotated task take the best on test points.
LOCAL_WEIGHTS = (1.0, 4.0, 16.0)


@lru_cache(maxsize=2)
def split_of(name: str, seed: int) -> GroupedSplit:
    return DATA_SETS[name].split(seed)


def _error(split: GroupedSplit, models: Any) -> float:
    return errors_of(split, np.asarray(models)).rows


def measure_local(name: str, seed: int) -> float:
    """RMSE or log loss of all test rows, with the ridge weight that is best on them."""
    split = split_of(name, seed)
    return _error(split, best_local_models(split))


def measure_pooled(name: str, seed: int) -> float:
    split = split_of(name, seed)
    return _error(split, pooled_models(split.problem))


def measure_mixed(name: str, seed: int) -> float:
    split = split_of(name, seed)
    return _error(split, fit_mixed_model(split.problem).models)


def measure_once(name: str, epsilon: float, seed: int) -> float:
    split = split_of(name, seed)
    return _error(split, release_once_models(split.problem, Budget(epsilon, DELTA), seed))


def measure_learned(name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """The error, and whether agents kept their local models."""
    split = split_of(name, seed)
    run = simulate(split.problem, LearnedPrior(Budget(epsilon, DELTA)), seed=seed)
    return {"error": _error(split, run.own_models), "kept": run.prior is None}


def choose_descent(name: str, epsilon: float) -> tuple[float, float, float]:
    """What gradient descent does best with, on other splits."""

    def error(settings: DescentSettings) -> float:
        return float(np.mean([_descent_error(name, epsilon, settings, seed) for seed in TUNING_SPLITS]))

    best = min(CHOICES, key=error)
    return best.rate, best.clip, best.weight


def measure_descent(name: str, epsilon: float, settings: DescentSettings, seed: int) -> float:
    return _descent_error(name, epsilon, settings, seed)


def _descent_error(name: str, epsilon: float, settings: DescentSettings, seed: int) -> float:
    split = split_of(name, seed)
    model = common_models(split.problem, Budget(epsilon, DELTA), settings.rate, settings.clip, seed)
    return _error(split, finish_around(split.problem, model, settings.weight))


def guarantee_of(name: str, epsilon: float) -> str:
    problem = split_of(name, 0).problem
    guarantee = LearnedPrior(Budget(epsilon, DELTA)).prepare(problem, 0).guarantee
    assert guarantee is not None
    return f"{name}: {guarantee.label}"


def rotated_task(agents: int, dimension: int, seed: int) -> Network:
    """The paper's task on randomly rotated features, without a graph."""
    task = linear_classification(agents, dimension, seed=seed, test_samples=0, rotated=True)
    return Network(Problem(task.train, None, Objective(feature_bound=math.sqrt(dimension))), task)


def measure_rotated(
    agents: int, dimension: int, seed: int, epsilons: tuple[float, ...], delta: float, test: int
) -> dict[str, Any]:
    """Accuracies of own models for each ε, and of local ones with the best ridge weight."""
    drawn = rotated_task(agents, dimension, seed)
    runs = [simulate(drawn.problem, LearnedPrior(Budget(e, delta)), seed=seed) for e in epsilons]
    alone: list[NDArray[np.float64]] = [ridge_models(drawn.problem, weight) for weight in LOCAL_WEIGHTS]
    models = [*(np.asarray(run.own_models) for run in runs), *alone]
    scores = drawn.accuracies(models, test).mean(axis=1).tolist()
    return {
        "own": scores[: len(runs)],
        "kept": [run.prior is None for run in runs],
        "local": max(scores[len(runs) :]),
    }
