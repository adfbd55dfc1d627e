"""Eq. (4) as a plain NumPy loop, one agent after another: what the engine is compared with."""

from __future__ import annotations

import numpy as np


def numpy_loop(wakers, problem, models) -> None:
    """Run the updates of these agents in this order, logistic loss, on the models in place."""
    population, graph = problem.population, problem.graph
    features, targets, offsets = population.features, population.targets, population.offsets
    dtype = features.dtype
    steps, pulls = problem.step_sizes.astype(dtype), problem.pulls.astype(dtype)
    shrink = (2 * problem.l2_penalties).astype(dtype)
    shares = (graph.weights / np.repeat(graph.degrees, np.diff(graph.offsets))).astype(dtype)
    for i in wakers.tolist():
        rows = slice(offsets[i], offsets[i + 1])
        edges = slice(graph.offsets[i], graph.offsets[i + 1])
        x, y, model = features[rows], targets[rows], models[i]
        slopes = -y / (1 + np.exp(y * (x @ model)))
        gradient = slopes @ x / len(y) + shrink[i] * model
        neighbor_mean = shares[edges] @ models[graph.neighbors[edges]]
        models[i] = model + steps[i] * (neighbor_mean - model - pulls[i] * gradient)
