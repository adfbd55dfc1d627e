"""The paper's linear classification task, as the experiments on it share it (Section 5.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.published import AGENTS
from murmura.data import Population, linear_classification
from murmura.graph import angular_graph
from murmura.objective import CollaborativeObjective, Problem
from murmura.results.metrics import agent_metrics
from murmura.results.tuning import choose_tradeoff

Graph: TypeAlias = Literal["dense", "sparse"]

# "Negligible weights are ignored": weights below .01, which leaves about 31 neighbors, or as the group's
# later code does, all that are not needed to keep the graph connected, which leaves about 15.
THRESHOLDS: dict[Graph, float | Literal["connected"]] = {"dense": 0.01, "sparse": "connected"}
TRADEOFFS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
TUNING_TEST_SAMPLES = 400


@dataclass(frozen=True, eq=False)
class Instance:
    """One draw of the task: a problem, and clean test points of the same agents."""

    problem: Problem
    test: Population

    def accuracies(self, models: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of each agent's model, on its test points."""
        return agent_metrics(self.problem.loss, self.test, models)

    def accuracy(self, models: NDArray[np.float64]) -> float:
        return float(self.accuracies(models).mean())

    def objective(self, models: NDArray[np.float64]) -> float:
        """Q(Θ)/Q(0): the share of what models that know nothing have. The paper's unit is not known."""
        return CollaborativeObjective(self.problem).value(models) / self.objective_at_zero

    @cached_property
    def objective_at_zero(self) -> float:
        zeros = np.zeros((self.problem.n_agents, self.problem.dimension))
        return CollaborativeObjective(self.problem).value(zeros)


@lru_cache(maxsize=4)
def instance(
    dimension: int,
    seed: int,
    test_samples: int,
    tradeoff: float,
    graph: Graph = "dense",
    public: bool = False,
) -> Instance:
    """`public`: step sizes from a bound on the features instead of the data, as private runs need them.

    Points of [−1, 1]^p have ‖x‖₂ ≤ √p. The cap of 100 points per agent is part of the task.
    """
    task = linear_classification(AGENTS, dimension, seed=seed, test_samples=test_samples)
    problem = Problem(
        task.train,
        angular_graph(task.targets, threshold=THRESHOLDS[graph], source="targets"),
        tradeoff=tradeoff,
        max_samples=100,
        smoothness="public" if public else "exact",
        feature_bound=math.sqrt(dimension) if public else None,
    )
    return Instance(problem, task.test)


@lru_cache(maxsize=16)
def best_tradeoff(dimension: int, seeds: range, graph: Graph) -> float:
    """μ by the accuracy of the optimum of Eq. (2) on tuning instances, as the paper chose it."""
    found = (instance(dimension, seed, TUNING_TEST_SAMPLES, 1.0, graph) for seed in seeds)
    trials = [(drawn.problem, drawn.test) for drawn in found]
    return choose_tradeoff(trials, TRADEOFFS, tolerance=1e-4).best
