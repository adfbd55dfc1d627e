"""A normal prior over the agents' models, and every agent's most probable model under it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.checks import Positive, check_fields
from flockwise.errors import ObjectiveError
from flockwise.objective.problem import Problem
from flockwise.solve.posterior import PosteriorObjectives, SummedLosses

Structure: TypeAlias = Literal["full", "low rank", "isotropic"]

# Numbers in the Hessians of agents that are solved together: bounds the memory.
_NUMBERS_AT_ONCE = 8_000_000
# Rounding of a covariance that was computed from others, in units of its variances.
_ROUNDING = 1e-8


@dataclass(frozen=True, eq=False)
class Prior:
    """θ_i ~ N(mean, covariance), and −log likelihood of a sample is ℓ/dispersion, up to a constant.

    dispersion: φ. 2s² for the quadratic loss and residuals of variance s²; 1 for logistic and softmax.
    structure: of the covariance.
    """

    mean: Floats
    covariance: Floats
    dispersion: Positive = 1.0
    structure: Structure = "full"

    def __post_init__(self) -> None:
        check_fields(self, ObjectiveError)
        mean, covariance = _frozen(self.mean, "mean"), _frozen(self.covariance, "covariance")
        if mean.ndim != 1 or covariance.shape != (mean.size, mean.size):
            raise ObjectiveError(
                "mean must be one vector and covariance a square matrix of its size, "
                f"got shapes {mean.shape} and {covariance.shape}"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)
        _ = self.root  # what is no covariance is refused here

    def __repr__(self) -> str:
        return (
            f"Prior({self.dimension} coordinates, {self.structure} covariance of rank {self.root.shape[1]}, "
            f"dispersion={self.dispersion:.3g})"
        )

    @property
    def dimension(self) -> int:
        return self.mean.size

    @property
    def spreads(self) -> Floats:
        """The standard deviation of each coordinate over agents: the variance components' square roots."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def correlations(self) -> Floats:
        """Of the coordinates over agents; 0 with those that do not differ."""
        spreads = np.where(self.spreads > 0, self.spreads, 1.0)
        return self.covariance / spreads / spreads[:, None]

    @property
    def residual_variance(self) -> float:
        """s², for a loss of residuals that is (s − y)² near 0."""
        return self.dispersion / 2

    @property
    def root(self) -> Floats:
        """R with RRᵀ = covariance, one column per direction in which models differ at all."""
        return covariance_root(self.covariance)


def posterior_models(problem: Problem, prior: Prior, *, start: Floats | None = None) -> Floats:
    """argmin_θ Σ_k ℓ(θ; x_k, y_k)/φ + ½(θ − θ₀)ᵀΣ⁻¹(θ − θ₀) for every agent, one row each.

    All samples count as they are, without public bounds: these models are for what stays at home. The l2 of
    the problem plays no part. Where Σ is singular a model differs from θ₀ only in the range of Σ. An agent
    without samples gets θ₀. start: models near the ones that are wanted, which saves steps.
    """
    if prior.dimension != problem.dimension:
        raise ObjectiveError(
            f"the prior has {prior.dimension} coordinates and the problem's models {problem.dimension}; "
            "use a prior that was learned with the same features and loss"
        )
    root = prior.root
    models = np.tile(prior.mean, (problem.n_agents, 1))
    if root.shape[1] == 0:
        return models
    for agents in _with_samples(problem):
        objectives = PosteriorObjectives(SummedLosses(problem, agents), prior.mean, root, prior.dispersion)
        away: NDArray[Any] = np.zeros((len(agents), root.shape[1]))
        if start is not None:
            away = np.linalg.lstsq(root, (start[agents] - prior.mean).T, rcond=None)[0].T.copy()
        objectives.minimize(away)
        models[agents] = objectives.models(away)
    return models


def _with_samples(problem: Problem) -> Iterator[NDArray[np.intp]]:
    """The agents that have samples, some at a time."""
    agents = np.flatnonzero(problem.population.sample_counts)
    at_once = max(_NUMBERS_AT_ONCE // problem.dimension**2, 1)
    return (agents[first : first + at_once] for first in range(0, len(agents), at_once))


def model_spreads(problem: Problem, prior: Prior) -> Floats:
    """Standard deviations of every agent's model given its samples and the prior, one row each.

    Normal for the quadratic loss, an approximation near the most probable model for others. The prior counts
    as known. They come from an agent's own samples: what holds for own models holds for them.
    """
    root, models = prior.root, posterior_models(problem, prior)
    spreads = np.tile(prior.spreads, (problem.n_agents, 1))
    for agents in _with_samples(problem):
        hessians = SummedLosses(problem, agents).hessians(models[agents]) / prior.dispersion
        inner = root.T @ hessians @ root + np.eye(root.shape[1])
        # Σ of what is left: R(I + RᵀHR)⁻¹Rᵀ.
        left = np.linalg.solve(inner, np.broadcast_to(root.T, (len(agents), *root.T.shape)))
        spreads[agents] = np.sqrt(np.einsum("jr,nrj->nj", root, left))
    return spreads


def model_intervals(problem: Problem, prior: Prior, *, level: float = 0.95) -> tuple[Floats, Floats]:
    """Between which values each coordinate of every agent's model lies with this probability."""
    if not 0 < level < 1:
        raise ObjectiveError(f"level must be between 0 and 1, got level={level!r}")
    width = NormalDist().inv_cdf((1 + level) / 2) * model_spreads(problem, prior)
    models = posterior_models(problem, prior)
    return models - width, models + width


def shrinkage(problem: Problem, prior: Prior) -> Floats:
    """How much each agent's model rests on the prior: the share of its variance that the samples left.

    1 for an agent without samples, near 0 for one with many; the mean over coordinates that differ at all.
    """
    differ = prior.spreads > 0
    if not differ.any():
        return np.ones(problem.n_agents)
    shares = (model_spreads(problem, prior)[:, differ] / prior.spreads[differ]) ** 2
    return shares.mean(axis=1)


def covariance_root(covariance: Floats) -> Floats:
    """R with RRᵀ = covariance and as many columns as its rank; other matrices are refused."""
    variances = np.diag(covariance)
    scales = np.sqrt(np.where(variances > 0, variances, 1.0))
    # Eigenvalues of correlations: small units of a feature do not make a matrix singular.
    correlations = covariance / scales / scales[:, None]
    if (variances < 0).any() or np.abs(correlations - correlations.T).max(initial=0.0) > _ROUNDING:
        raise ObjectiveError("covariance must be symmetric, with variances from 0 on")
    values, vectors = np.linalg.eigh((correlations + correlations.T) / 2)
    if values.size and values[0] < -_ROUNDING * values.size:
        raise ObjectiveError(
            "covariance must be positive semidefinite; "
            f"the smallest eigenvalue of its correlations is {values[0]:.3g}"
        )
    kept = values > values.size * np.finfo(np.float64).eps
    return scales[:, None] * vectors[:, kept] * np.sqrt(values[kept])


def _frozen(values: Any, name: str) -> Floats:
    """A read-only copy."""
    array = np.array(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ObjectiveError(f"{name} must hold finite numbers only")
    array.flags.writeable = False
    return array
