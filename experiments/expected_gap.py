"""Eq. (6) on a quadratic problem with the expectation taken exactly, over who wakes and over the noise.

Every agent's features are orthonormal, so that the p coordinates evolve alike and apart from each other: the
sum over coordinates of E[e eᵀ], e being the agents' distances from the optimum in one coordinate, is one
matrix with a row and a column per agent, and it obeys a linear recursion.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.objective import Objective, Problem, Quadratic

Matrix = NDArray[np.float64]


def ring_problem(n_agents: int, dimension: int, *, tradeoff: float = 1.0, l2: float = 0.1) -> Problem:
    """Agents in a ring with orthonormal features, a point per coordinate, and random targets."""
    random = np.random.default_rng(0)
    population = Population.packed(
        np.tile(np.sqrt(dimension) * np.eye(dimension), (n_agents, 1)),
        random.normal(size=n_agents * dimension),
        np.arange(n_agents + 1) * dimension,
    )
    edges = [(agent, (agent + 1) % n_agents) for agent in range(n_agents)]
    graph = SimilarityGraph.from_edges(n_agents, edges)
    return Problem(population, graph, Objective(Quadratic(), tradeoff=tradeoff, l2=l2))


def hessian(problem: Problem) -> Matrix:
    """∇²Q of one coordinate: D − W + diag(μ D_ii c_i (2 + 2λ_i))."""
    curvatures = 2 + 2 * problem.l2_penalties
    data = problem.neighbors.degrees * problem.pulls * curvatures
    return problem.neighbors.laplacian().toarray() + np.diag(data)


def optimum(problem: Problem) -> Matrix:
    """The models at the minimum of Q."""
    population = problem.population
    terms = population.features * population.targets[:, None]
    correlations = np.add.reduceat(terms, population.offsets[:-1]).astype(np.float64)
    pulls = (problem.neighbors.degrees * problem.pulls / population.sample_counts)[:, None]
    return np.linalg.solve(hessian(problem), 2 * pulls * correlations).astype(np.float64)


def expected_gaps(problem: Problem, noise_stds: Matrix, *, from_optimum: bool = False) -> Matrix:
    """E[Q(Θ(t))] − Q* after 0, 1, …, T ticks, from zero models or from the optimum.

    noise_stds: (agents, T), the standard deviation of a coordinate of η_i(t) if agent i wakes at tick t. An
    agent that wakes moves to Θ_i − (∇_i Q + μ D_ii c_i η_i)/L_i.
    """
    curvature, n_agents = hessian(problem), problem.n_agents
    best = np.zeros((n_agents, 1)) if from_optimum else optimum(problem)
    moments = best @ best.T
    moves = curvature / np.diag(curvature)[:, None]
    noise_factors = problem.neighbors.degrees * problem.pulls / np.diag(curvature)
    gaps = [0.5 * np.sum(curvature * moments)]
    for stds in noise_stds.T:
        # The mean over i of (I − e_i e_iᵀ B) M (I − e_i e_iᵀ B)ᵀ with B = diag(1/L) ∇²Q.
        moved = moves @ moments
        squares = np.einsum("ij,ij->i", moved, moves) + problem.dimension * (noise_factors * stds) ** 2
        moments = moments + (np.diag(squares) - moved - moved.T) / n_agents
        gaps.append(0.5 * np.sum(curvature * moments))
    return np.array(gaps)
