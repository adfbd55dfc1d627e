"""Mixed models by other means than ours: EM to convergence, and MixedLM of statsmodels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from flockwise.objective import Problem
from flockwise.solve import Prior

# Steps of EM, and the relative change of the covariance at which it has converged.
STEPS = 20_000
TOLERANCE = 1e-6
# After so many steps of EM MixedLM takes over. From its own start it ends elsewhere on InstEval, and says
# that it has converged.
FIRST_STEPS = 300


def by_em(problem: Problem, steps: int = STEPS) -> Prior:
    """Maximum likelihood of mean, covariance and residual variance, from a wide start."""
    population = problem.population
    p, n_samples = problem.dimension, population.n_samples
    agents = np.flatnonzero(population.sample_counts).tolist()
    samples = [population.samples(agent) for agent in agents]
    grams = np.array([rows.T @ rows for rows, _ in samples])
    pulls = np.array([rows.T @ targets for rows, targets in samples])
    squares = float(population.targets @ population.targets)
    mean = np.linalg.lstsq(grams.sum(axis=0), pulls.sum(axis=0), rcond=None)[0]
    residual = float(np.mean((population.targets - population.features @ mean) ** 2))
    covariance = residual * np.eye(p)
    for _ in range(steps):
        precision = np.linalg.inv(covariance)
        spread = np.linalg.inv(grams / residual + precision)
        models = (spread @ (pulls / residual + precision @ mean)[:, :, None])[:, :, 0]
        mean = models.mean(axis=0)
        away = models - mean
        before, covariance = covariance, spread.mean(axis=0) + away.T @ away / len(agents)
        images = (grams @ models[:, :, None])[:, :, 0]
        residual = (squares + np.vdot(grams, spread) + np.vdot(images - 2 * pulls, models)) / n_samples
        if np.abs(covariance - before).max() <= TOLERANCE * np.abs(covariance).max():
            break
    return Prior(mean, covariance, 2 * float(residual))


def by_statsmodels(problem: Problem) -> Prior | None:
    """MixedLM with everything free, by restricted maximum likelihood; None if it does not converge."""
    from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams

    population, first = problem.population, by_em(problem, FIRST_STEPS)
    owners = np.repeat(np.arange(population.n_agents), population.sample_counts)
    params: Any = MixedLMParams
    start = params.from_components(first.mean, 2 * first.covariance / first.dispersion)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = MixedLM(population.targets, population.features, owners, population.features)
        try:
            fitted = model.fit(start_params=start)
        except np.linalg.LinAlgError:
            return None
    return Prior(fitted.fe_params, fitted.cov_re, 2 * fitted.scale) if fitted.converged else None
