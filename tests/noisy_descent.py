"""Eq. (6) on the quadratic loss with the expectation taken exactly, so that tests need no luck.

With a quadratic loss the distance e from the optimum obeys a linear recursion. Its second moment
E[e eᵀ] over who wakes and over the noise, and with it the expected gap, follow without sampling.
"""

from __future__ import annotations

import numpy as np

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.protocol.descent import descent_update


def even_problem(n_agents=4, dimension=3, *, samples=None, tradeoff=1.0, l2=0.1):
    """Agents in a ring whose features are orthonormal and as many as coordinates: every L_i is the same
    and every block of ∇²Q is L_i times the identity, so that one step of noise costs just its bound."""
    samples = dimension if samples is None else samples
    rng = np.random.default_rng(0)
    features = np.tile(np.eye(dimension), (samples // dimension, 1)) * np.sqrt(dimension)
    population = Population.packed(
        np.tile(features, (n_agents, 1)),
        rng.normal(size=n_agents * samples),
        np.arange(n_agents + 1) * samples,
    )
    edges = [(i, (i + 1) % n_agents) for i in range(n_agents)]
    graph = SimilarityGraph.from_edges(n_agents, edges)
    return Problem(population, graph, Objective(Quadratic(), tradeoff=tradeoff, l2=l2))


def quadratic_form(problem):
    """∇²Q as a matrix over all agents' coordinates, and the models at its minimum."""
    assert isinstance(problem.loss, Quadratic)
    n, p = problem.n_agents, problem.dimension
    data_weights = problem.neighbors.degrees * problem.pulls
    hessian = np.kron(problem.neighbors.laplacian().toarray(), np.eye(p))
    linear = np.zeros((n, p))
    for agent in range(n):
        features, targets = problem.population.samples(agent)
        count, block = max(len(targets), 1), slice(agent * p, (agent + 1) * p)
        local = 2 * features.T @ features / count + 2 * problem.l2_penalties[agent] * np.eye(p)
        hessian[block, block] += data_weights[agent] * local
        linear[agent] = data_weights[agent] * 2 * features.T @ targets / count
    return hessian, np.linalg.solve(hessian, linear.ravel()).reshape(n, p)


def exact_expected_gaps(problem, start, noise_stds):
    """E[Q(Θ(t))] − Q* after 0, 1, …, T ticks of Eq. (6).

    noise_stds: (agents, T), the standard deviation of a coordinate of η_i(t) if agent i wakes at t.
    """
    hessian, optimum = quadratic_form(problem)
    n, p = problem.n_agents, problem.dimension
    distance = (start - optimum).ravel()
    moment = np.outer(distance, distance)
    moves = np.eye(n * p) - _scattered_blocks(hessian, problem.block_smoothness, p)
    noise_factors = problem.neighbors.degrees * problem.pulls / problem.block_smoothness
    gaps = [0.5 * np.sum(hessian * moment)]
    for stds in np.asarray(noise_stds, dtype=float).T:
        added = np.kron(np.diag((noise_factors * stds) ** 2), np.eye(p))
        moment = (sum(move @ moment @ move.T for move in moves) + added) / n
        gaps.append(0.5 * np.sum(hessian * moment))
    return np.array(gaps)


def _scattered_blocks(hessian, block_smoothness, p):
    """U_i U_iᵀ H / L_i for every agent i."""
    n = len(block_smoothness)
    blocks = np.zeros((n, *hessian.shape))
    for agent in range(n):
        rows = slice(agent * p, (agent + 1) * p)
        blocks[agent, rows] = hessian[rows] / block_smoothness[agent]
    return blocks


def descend(problem, rounds, *, noise_scales=None, clip=None, seed=0):
    """Eq. (6) for the logistic loss from zero models, in plain NumPy: every agent wakes once a round.

    noise_scales: one Laplace scale per agent; clip: the L1 norm to which each point's gradient is clipped.
    """
    random = np.random.default_rng(seed)
    neighbors = problem.neighbors.to_scipy().toarray() / problem.neighbors.degrees[:, None]
    models = np.zeros((problem.n_agents, problem.dimension))
    for agent in np.concatenate([random.permutation(problem.n_agents) for _ in range(rounds)]):
        (features, targets), model = problem.population.samples(agent), models[agent]
        gradients = (-targets / (1 + np.exp(targets * (features @ model))))[:, None] * features
        if clip is not None:
            gradients = clipped_in_l1(gradients, clip)
        gradient = gradients.mean(axis=0) + 2 * problem.l2_penalties[agent] * model
        if noise_scales is not None:
            gradient += random.laplace(0, noise_scales[agent], gradient.size)
        models[agent] = descent_update(
            model, neighbors[agent] @ models, gradient, problem.step_sizes[agent], problem.pulls[agent]
        )
    return models


def clipped_in_l1(points, bound):
    """Each row scaled down to an L1 norm of at most `bound`."""
    lengths = np.abs(points).sum(axis=1, keepdims=True)
    return points * np.minimum(1, bound / np.maximum(lengths, np.finfo(float).tiny))
