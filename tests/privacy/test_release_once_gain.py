"""Release once, smooth and finish beats learning alone, within a budget that holds.

The paper's task with 100 agents and enforced sensitivity. Everything that could be tuned is a public
constant of the library, chosen on other instances (seeds from 5000 on); here nothing is chosen.
"""

import math

import numpy as np
import pytest

from flockwise import (
    Budget,
    Local,
    Logistic,
    Objective,
    Problem,
    ReleaseOnce,
    SimilarityGraph,
    angular_graph,
    linear_classification,
    simulate,
)
from flockwise.results.metrics import agent_metrics

pytestmark = pytest.mark.privacy

FRESH_SEEDS = range(100, 112)
TEST_POINTS = 4000
# Enough for the smoothing to settle to what accuracy can see; more costs no privacy.
UPDATES = 50


def neighbors_at_random(graph, seed):
    """A graph with the same weights between random agents: one that helps nobody."""
    random = np.random.default_rng(seed)
    order = random.permutation(graph.n_agents)
    return SimilarityGraph.from_scipy(graph.to_scipy()[order][:, order], source="random")


def gains(dimension, epsilon, *, rotated=False, useless=False):
    """Mean accuracy of the own models less that of purely local ones, one number per instance."""
    differences, losers = [], []
    for seed in FRESH_SEEDS:
        task = linear_classification(100, dimension, seed=seed, test_samples=TEST_POINTS, rotated=rotated)
        graph = angular_graph(task.targets, threshold=0.01, source="targets")
        if useless:
            graph = neighbors_at_random(graph, seed)
        problem = Problem(task.train, graph, Objective(Logistic()))
        method = ReleaseOnce(Budget(epsilon, math.exp(-5)))
        run = simulate(problem, method, updates=UPDATES, seed=seed, record_every=None)
        assert run.own_models is not None
        own = agent_metrics(problem.loss, task.test, run.own_models)
        local = agent_metrics(problem.loss, task.test, simulate(problem, Local()).models)
        differences.append(own.mean() - local.mean())
        losers.append((own < local).mean())
    return np.array(differences), float(np.mean(losers))


# Gains differ between instances by a standard deviation of about .01, so that their mean over twelve
# has a standard error of about .003; measured +.079, +.055, +.053 and +.022.
@pytest.mark.parametrize(
    ("dimension", "epsilon", "asked"), [(20, 1.0, 0.04), (20, 0.5, 0.02), (100, 1.0, 0.025), (100, 0.5, 0.01)]
)
def test_gain_over_learning_alone(dimension, epsilon, asked, record_property, capsys):
    differences, losers = gains(dimension, epsilon)
    error = differences.std(ddof=1) / math.sqrt(len(differences))
    with capsys.disabled():
        print(
            f"\np = {dimension}, ε = {epsilon}: gain {differences.mean():+.4f} ± {error:.4f} "
            f"(asked {asked:+.3f}), {losers:.0%} of agents lose"
        )
    record_property("gain", float(differences.mean()))
    assert differences.mean() >= asked


def test_the_gain_does_not_rest_on_zeros_in_the_targets():
    """Turned features leave no coordinate special; the gain at p = 20, ε = 1 stays."""
    differences, _ = gains(20, 1.0, rotated=True)
    assert differences.mean() >= 0.04


@pytest.mark.parametrize("dimension", [20, 100])
def test_a_useless_graph_costs_little(dimension):
    """Agents tell from the releases that their neighbors do not resemble them, and learn alone."""
    differences, _ = gains(dimension, 1.0, useless=True)
    assert differences.mean() >= -0.02
