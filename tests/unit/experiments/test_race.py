"""When a run has arrived, and which graph the paper's figure 1 shows."""

from __future__ import annotations

import pytest
from experiments import published
from experiments.race import DIMENSION, arrival_at
from experiments.synthetic import PAPER_GRAPH, instance


def test_who_falls_back_has_not_arrived():
    assert arrival_at([0.6, 0.899, 0.8, 0.896, 0.91], 0.9) == 3
    assert arrival_at([0.6, 0.7], 0.9) is None
    assert arrival_at([0.9, 0.95], 0.9) == 0
    assert arrival_at([0.6, 0.95, 0.8], 0.9) is None


def test_the_medium_graph_has_as_many_neighbors_as_the_papers_curves_imply():
    """Coordinate descent has one accuracy at some iteration and at some number of vectors: their ratio."""
    by_iterations = published.FIG1_BY_ITERATIONS["cd"]["accuracy"]
    by_vectors = published.FIG1_BY_VECTORS["cd"]["accuracy"]
    # .865 after 12 000 vectors lies between 500 (.855) and 1000 iterations (.868).
    share = (by_vectors[12_000] - by_iterations[500]) / (by_iterations[1000] - by_iterations[500])
    implied = 12_000 / (500 + 500 * share)
    problem = instance(DIMENSION, 1_000_000, 1, 1.0, PAPER_GRAPH).problem
    assert problem.neighbors.neighbor_counts.mean() == pytest.approx(implied, abs=1.0)
