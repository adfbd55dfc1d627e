"""Release once, low-pass and finish against learning alone, on the paper's task and within budgets that hold.

Fresh instances: all constants of the method were chosen on seeds from one million on. Accuracy of the
own models on 4000 clean points, δ = e⁻⁵, sensitivity enforced.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
from experiments.lowpass import solve_lowpass
from scipy import sparse

from flockwise import Objective, Problem, SimilarityGraph, angular_graph, linear_classification
from flockwise.graph import knn_graph
from flockwise.privacy.budget import Budget
from flockwise.solve.local import solve_local_models

pytestmark = pytest.mark.paper

DELTA = math.exp(-5)
EPSILONS = (0.15, 0.55, 1.05)
FRESH_SEEDS = range(4000, 4024)
# One draw of noise is luck, above all at ε = .15: all agents share in it.
NOISE_DRAWS = 2
FRESH_NOISE = 100_000
TEST_POINTS = 4000
NEIGHBORS = 20


def with_random_edges(graph, share, seed):
    """A share of the edges is moved to random pairs of agents, with the weights they had."""
    random = np.random.default_rng(seed)
    upper = sparse.triu(graph.to_scipy()).tocoo()
    (rows, columns), weights = (end.copy() for end in upper.coords), upper.data
    moved = random.random(len(weights)) < share
    rows[moved] = random.integers(0, graph.n_agents, moved.sum())
    columns[moved] = (rows[moved] + random.integers(1, graph.n_agents, moved.sum())) % graph.n_agents
    ends = np.minimum(rows, columns), np.maximum(rows, columns)
    # Two edges of one pair are added up.
    wired = sparse.coo_array((weights, ends), shape=upper.shape).tocsr()
    return SimilarityGraph.from_scipy(wired + wired.T, source="targets")


def instance(n_agents, dimension, seed, *, rotated=False, random_edges=0.0):
    task = linear_classification(n_agents, dimension, seed=seed, test_samples=0, rotated=rotated)
    if n_agents <= 100:
        graph = angular_graph(task.targets, threshold=0.01, source="targets")
    else:
        graph = knn_graph(task.targets, NEIGHBORS, weights="angular", source="targets")
    if random_edges:
        graph = with_random_edges(graph, random_edges, seed)
    return Problem(task.train, graph, Objective()), task


def accuracies(task, models, seed):
    """Each agent's accuracy on clean points, the same ones for all agents."""
    points = np.random.default_rng([seed, 1]).uniform(-1, 1, (TEST_POINTS, models.shape[1]))
    if task.rotation is not None:
        points = points @ task.rotation.T
    return ((points @ models.T >= 0) == (points @ task.targets.T >= 0)).mean(axis=0)


class Measured(NamedTuple):
    """Means over instances and draws of noise: gain over local models, share of losers, accuracy."""

    gain: float
    losing: float
    accuracy: float

    def __str__(self):
        return f"{self.gain:+.4f}, {self.losing:.1%} lose more than .002, accuracy {self.accuracy:.4f}"


def measured(n_agents, dimension, seeds, epsilons=EPSILONS, **settings):
    """One for each ε; the same instances for all."""
    rows = {epsilon: [] for epsilon in epsilons}
    for seed in seeds:
        problem, task = instance(n_agents, dimension, seed, **settings)
        local = accuracies(task, solve_local_models(problem), seed)
        for epsilon in epsilons:
            for draw in range(NOISE_DRAWS):
                found = solve_lowpass(problem, Budget(epsilon, DELTA), seed + FRESH_NOISE * draw)
                own = accuracies(task, found.own_models, seed)
                rows[epsilon].append((np.mean(own - local), np.mean(own - local < -0.002), own.mean()))
    return {epsilon: Measured(*np.mean(found, axis=0)) for epsilon, found in rows.items()}


def say(capsys, *words):
    with capsys.disabled():
        print("\n", *words)


# By dimension: what to gain, and the largest share of agents that may lose, for each ε.
ASKED = {20: (0.02, 0.06, 0.08), 100: (0.008, 0.04, 0.08)}
LOSERS = (0.20, 0.10, 0.10)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("dimension", [20, 100])
def test_gain_over_learning_alone(dimension, rotated, capsys):
    """On 24 instances for tuning it gained +.0109, +.0508 and +.0953 at p = 100.

    Instances and draws of noise differ by .006, .011 and .012 in standard deviation, 24 with two draws each
    by .001 to .002. A regression on the agents' true angles, which no agent knows, would gain about as much.
    """
    found = measured(100, dimension, FRESH_SEEDS, rotated=rotated)
    for (epsilon, result), asked, losers in zip(found.items(), ASKED[dimension], LOSERS, strict=True):
        say(capsys, f"p = {dimension}, ε = {epsilon}, rotated {rotated}: {result}")
        assert result.gain >= asked
        assert result.losing <= losers


@pytest.mark.parametrize("random_edges", [0.1, 0.3])
@pytest.mark.parametrize("dimension", [20, 100])
def test_random_edges_cost_nothing(dimension, random_edges, capsys):
    found = measured(100, dimension, FRESH_SEEDS[:6], random_edges=random_edges)
    for epsilon, result in found.items():
        say(capsys, f"p = {dimension}, ε = {epsilon}, {random_edges:.0%} random: {result}")
        assert result.gain >= -0.002


@pytest.mark.parametrize(("n_agents", "runs", "asked"), [(400, 6, 0.85), (1600, 1, 0.915)])
def test_privacy_gets_cheaper_in_a_larger_network(n_agents, runs, asked, capsys):
    (result,) = measured(n_agents, 100, FRESH_SEEDS[:runs], [1.05]).values()
    say(capsys, f"n = {n_agents}: {result}")
    assert result.accuracy >= asked
