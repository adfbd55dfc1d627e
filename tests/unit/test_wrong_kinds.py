"""An argument of the wrong kind is refused where it is given, in words that name it."""

# pyright: reportArgumentType=false
from __future__ import annotations

import numpy as np
import pytest

import flockwise as fw

TASK = fw.linear_classification(6, 2, seed=0)
GRAPH = fw.complete_graph(6)
PROBLEM = fw.Problem(TASK.train, GRAPH)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda: fw.Problem(GRAPH, TASK.train),
            "population must be of class Population, got a SimilarityGraph",
        ),
        (
            lambda: fw.Problem(TASK.train, TASK.train),
            "graph must be a SimilarityGraph or None, got a Population",
        ),
        (
            lambda: fw.Problem(TASK.train, GRAPH, fw.Quadratic()),
            "objective must be of class Objective, got a Quad",
        ),
        (
            lambda: fw.simulate(GRAPH, fw.CoordinateDescent()),
            "problem must be of class Problem, got a Similarity",
        ),
        (
            lambda: fw.simulate(PROBLEM, "cd"),
            r"method must be a method such as CoordinateDescent\(\), got 'cd'",
        ),
        (lambda: fw.simulate(PROBLEM, fw.CoordinateDescent), "method must be a method such as"),
        (
            lambda: fw.simulate(PROBLEM, fw.Local(), test=np.ones(3)),
            "test must be of class Population, got a ndarray",
        ),
        (
            lambda: fw.CoordinateDescent(privacy=fw.Budget(1.0)),
            "privacy must be PrivateUpdates, got privacy=Budget",
        ),
        (lambda: fw.ReleaseOnce(1.0), "privacy must be Budget or a sequence of Budget, got privacy=1.0"),
        (lambda: fw.ReleaseOnce([fw.Budget(1.0), 1.0]), "privacy must be Budget or a sequence of Budget"),
        (lambda: fw.Budget("1"), "epsilon must be positive and finite, got epsilon='1'"),
    ],
)
def test_a_wrong_kind_of_argument_is_named(wrong, words):
    with pytest.raises(fw.FlockwiseError, match=words):
        wrong()
