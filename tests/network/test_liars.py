"""Neighbors that lie: what a clipped mean and public bounds leave of it.

`python -m tests.network.liars` prints the figures of the page on threats.
"""

import pytest
from tests.network.liars import SHARE, measure, with_liars

from flockwise.data import linear_classification
from flockwise.deploy.settings import MAGNITUDE_BOUND, magnitude_bound
from flockwise.graph import complete_graph
from flockwise.objective import Objective

UPDATES = 20


@pytest.fixture(scope="module")
def task():
    return linear_classification(16, 20, seed=3)


def measured(task, neighbors, lie, epsilon=None):
    return measure(task, neighbors, lie, epsilon, UPDATES, k=8)


def test_every_victim_has_a_liar_of_a_fifth_of_the_weight():
    graph = with_liars(complete_graph(4))
    assert graph.n_agents == 8
    for victim in range(4):
        others, weights = graph.neighbors_of(victim)
        assert weights[others == 4 + victim] == pytest.approx(SHARE * weights.sum())


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_a_lying_neighbor_breaks_a_plain_mean_and_not_a_clipped_one(task, epsilon):
    honest = measured(task, "mean", "none", epsilon)
    broken = measured(task, "mean", "large", epsilon)
    clipped = measured(task, "clipped", "large", epsilon)
    assert broken.released < 0.6 < honest.released - 0.05
    assert clipped.released > honest.released - 0.05
    assert clipped.own > honest.own - 0.05
    assert clipped.longest < 2 * honest.longest < broken.longest / 10


def test_what_is_taken_from_a_neighbor_follows_from_the_objective(task):
    objective = Objective(max_samples=20, feature_bound=1.0)
    assert magnitude_bound(objective, "none") == 10 * objective.largest_norm == 100.0
    assert magnitude_bound(objective, "dp") == 100 * objective.largest_norm
    assert magnitude_bound(Objective(max_samples=20), "none") == MAGNITUDE_BOUND
    largest = magnitude_bound(Objective(tradeoff=4.0, max_samples=100, feature_bound=20**0.5), "none")
    assert measured(task, "mean", "large").longest < 20**0.5 * largest * SHARE * 2 < MAGNITUDE_BOUND
