"""The paper's linear classification task, as the experiments on it share it (Section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.published import AGENTS
from flockwise.data import LinearTask, Population, linear_classification
from flockwise.graph import SimilarityGraph, angular_graph, knn_graph, rewired
from flockwise.objective import CollaborativeObjective, Objective, Problem
from flockwise.results.metrics import agent_metrics
from flockwise.results.tuning import choose_tradeoff

Graph: TypeAlias = Literal["dense", "medium", "sparse"]

# "Negligible weights are ignored." Without those below .01 an agent has about 31 neighbors; without those
# below .4 about 13, as many as the paper's curves by iterations and by vectors imply; with only those that it
# takes to keep the graph connected about 8.
THRESHOLDS: dict[Graph, float | Literal["connected"]] = {
    "dense": 0.01,
    "medium": 0.4,
    "sparse": "connected",
}
# The paper does not say which one is its own; figure 1 implies it.
PAPER_GRAPH: Graph = "medium"
# The paper says "uniformly around the origin"; how far is our choice. larger_box has others.
BOX = "[−1, 1]^p"
TRADEOFFS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
TUNING_TEST_SAMPLES = 400
# Points per agent: part of the task, and so a public cap.
MAX_SAMPLES = 100
# In networks larger than the paper's, neighbors are those of whom one is among the nearest of the other.
NEAREST = 20
# Agents that are judged on the same test points; others get fresh ones.
AGENTS_PER_TEST = 10
# First word of the seed of test points, and of moved edges.
TEST_POINTS, MOVED_EDGES = 101, 102


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
    factor: float = 1.0,
) -> Instance:
    """`public`: step sizes from a bound on the features instead of the data, as private runs need them.

    factor: points are in [−factor, factor]^p, and so ‖x‖₂ ≤ factor·√p; the accuracy of a model on test
    points is the same for all factors. The cap of 100 points per agent is part of the task.
    """
    task = linear_classification(AGENTS, dimension, seed=seed, test_samples=test_samples)
    bound = factor * math.sqrt(dimension)
    problem = Problem(
        task.train.with_samples(factor * task.train.features, task.train.targets),
        angular_graph(task.targets, threshold=THRESHOLDS[graph], source="targets"),
        Objective(tradeoff=tradeoff, max_samples=MAX_SAMPLES, feature_bound=bound if public else None),
    )
    return Instance(problem, task.test)


@lru_cache(maxsize=16)
def best_tradeoff(dimension: int, seeds: range, graph: Graph) -> float:
    """μ by the accuracy of the optimum of Eq. (2) on tuning instances, as the paper chose it."""
    found = (instance(dimension, seed, TUNING_TEST_SAMPLES, 1.0, graph) for seed in seeds)
    trials = [(drawn.problem, drawn.test) for drawn in found]
    return choose_tradeoff(trials, TRADEOFFS, judged_by="metric", public=True, tolerance=1e-4).best


@dataclass(frozen=True, eq=False)
class Network:
    """One draw of the task of any size. Its test points are drawn when they are needed, and not kept."""

    problem: Problem
    task: LinearTask

    def accuracies(self, models: Sequence[NDArray[np.float64]], test_samples: int) -> NDArray[np.float64]:
        """On so many clean points per agent: one row per set of models, one column per agent."""
        generator = np.random.default_rng([self.task.seed, TEST_POINTS])
        # Turned back, models and targets see points of [−1, 1]^p: θᵀ(Rx) = (Rᵀθ)ᵀx.
        turned = np.stack([self._turned_back(own) for own in (self.task.targets, *models)]).astype(np.float32)
        found = np.empty((len(models), self.problem.n_agents))
        for first in range(0, self.problem.n_agents, AGENTS_PER_TEST):
            block = turned[:, first : first + AGENTS_PER_TEST]
            points = 2 * generator.random((test_samples, block.shape[2]), np.float32) - 1
            labels = (points @ block.reshape(-1, block.shape[2]).T >= 0).reshape(
                test_samples, *block.shape[:2]
            )
            found[:, first : first + AGENTS_PER_TEST] = (labels[:, 1:] == labels[:, :1]).mean(axis=0)
        return found

    def _turned_back(self, models: NDArray[np.float64]) -> NDArray[np.float64]:
        return models if self.task.rotation is None else models @ self.task.rotation


def network(
    n_agents: int, dimension: int, seed: int, *, random_edges: float = 0.0, rotated: bool = False
) -> Network:
    """Up to the paper's number of agents the dense graph, and beyond it NEAREST neighbors.

    random_edges: the share of edges that are moved to random pairs of agents, with their weights.
    """
    task = linear_classification(n_agents, dimension, seed=seed, test_samples=0, rotated=rotated)
    graph = _graph(task)
    if random_edges:
        graph = rewired(graph, random_edges, seed=_number(seed, MOVED_EDGES))
    return Network(Problem(task.train, graph, Objective(max_samples=MAX_SAMPLES)), task)


def _graph(task: LinearTask) -> SimilarityGraph:
    if len(task.targets) <= AGENTS:
        return angular_graph(task.targets, threshold=THRESHOLDS["dense"], source="targets")
    return knn_graph(task.targets, NEAREST, weights="angular", source="targets")


def _number(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1)[0])
