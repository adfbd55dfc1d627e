"""How well a normal prior explains what agents' samples say about their models, and the prior that does best.

Each agent's summed loss is quadratic here: c − bᵀθ + ½θᵀHθ. Models are θ_i ~ N(θ₀, φΛ), the common mean is
itself θ₀ ~ N(0, φW), and a loss ℓ stands for a density exp(−ℓ/φ). All means and models are integrated out, so
variances are estimated as by restricted maximum likelihood. Nothing divides by Λ, which may be singular.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from flockwise.arrays import Floats
from flockwise.solve.integrals import AgentsPart, parts_of

# Of the sum of losses at 0: what is left of losses that are explained down to rounding.
_EXPLAINED = 1e-12


class Explained(NamedTuple):
    """The evidence of a prior as −log, up to a constant: lower is better; and the mean under that prior."""

    value: float
    mean: Floats
    mean_covariance: Floats
    """Of θ₀ given all samples, in units of φ."""
    dispersion: float
    covariance_slope: Floats
    """Of the value in Λ."""
    width_slopes: Floats
    """Of the value in the diagonal of W."""


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Every agent's summed loss: hessians (n, p, p), linear terms (n, p), and the sum of all constants.

    n_samples: of all agents together, if φ is to be estimated; 0 where it is 1.
    """

    hessians: Floats
    linear: Floats
    constant: float
    n_samples: int = 0

    @cached_property
    def parts(self) -> list[AgentsPart]:
        """Agents that are worked on together: bounds the memory."""
        return list(parts_of(self.hessians, self.linear))

    def mixed(self, other: Quadratics, share: float) -> Quadratics:
        """With this share of another one's."""
        if share == 0:
            return self
        return Quadratics(
            (1 - share) * self.hessians + share * other.hessians,
            (1 - share) * self.linear + share * other.linear,
            (1 - share) * self.constant + share * other.constant,
            self.n_samples,
        )

    def explained(self, root: Floats, widths: Floats) -> Explained:
        """For Λ = root·rootᵀ and W = diag(widths)."""
        p = self.linear.shape[1]
        integrals = [part.integrated(root) for part in self.parts]
        total: Floats = sum((one.total for one in integrals), np.zeros((p, p)))
        pull: Floats = sum((one.pulled.sum(axis=0) for one in integrals), np.zeros(p))
        height = sum(one.height for one in integrals)
        explained = sum(one.explained for one in integrals)
        scales = np.sqrt(widths)
        inner = np.eye(p) + scales[:, None] * total * scales
        height += 0.5 * float(np.linalg.slogdet(inner)[1])
        mean_covariance: Any = scales[:, None] * np.linalg.inv(inner) * scales
        mean = mean_covariance @ pull
        left = self.constant - 0.5 * explained - 0.5 * float(pull @ mean)
        value, weight, dispersion = self._of_losses(left)
        slope = 0.5 * total
        for one in integrals:
            away = one.away(mean)
            slope = slope - 0.5 * one.known(mean_covariance) - 0.5 * weight * away.T @ away
        misfit = pull - total @ mean
        width_slopes = 0.5 * (np.diag(total - total @ mean_covariance @ total) - weight * misfit**2)
        return Explained(value + height, mean, mean_covariance, dispersion, slope, width_slopes)

    def _of_losses(self, left: float) -> tuple[float, float, float]:
        """The value of what is left of the losses, its slope in it, and φ."""
        if self.n_samples == 0:
            return left, 1.0, 1.0
        least = max(_EXPLAINED * self.constant, np.finfo(np.float64).tiny / _EXPLAINED)
        half = 0.5 * self.n_samples
        weight = half / left if left > least else 0.0
        left = max(left, least)
        return half * math.log(left), weight, left / half


class Shape(NamedTuple):
    """Λ as a function of free numbers: RRᵀ + τ²I with `rank` columns in R, or all of a triangular root.

    rank: p stands for the full covariance.
    """

    dimension: int
    rank: int

    @property
    def is_full(self) -> bool:
        return self.rank == self.dimension

    @property
    def is_unrestricted(self) -> bool:
        """Whether every covariance has this form, as with all columns in R but one, and τ² for the least."""
        return self.rank >= max(self.dimension - 1, 1)

    @property
    def size(self) -> int:
        return len(self._triangle[0]) if self.is_full else 1 + self.dimension * self.rank

    @property
    def n_parameters(self) -> int:
        """Without the rotations of R, which change nothing."""
        return self.size - (0 if self.is_full else self.rank * (self.rank - 1) // 2)

    @property
    def _triangle(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.tril_indices(self.dimension)

    def root(self, numbers: Floats) -> Floats:
        """With Λ = root·rootᵀ."""
        if self.is_full:
            root = np.zeros((self.dimension, self.dimension))
            root[self._triangle] = numbers
            return root
        factors, spread = self._parts(numbers)
        return psd_root(factors @ factors.T + spread**2 * np.eye(self.dimension))

    def slopes(self, numbers: Floats, slope: Floats) -> Floats:
        """Of a value with this slope in Λ."""
        if self.is_full:
            return 2 * (slope @ self.root(numbers))[self._triangle]
        factors, spread = self._parts(numbers)
        return np.append((2 * slope @ factors).ravel(), 2 * spread * np.trace(slope))

    def _parts(self, numbers: Floats) -> tuple[Floats, float]:
        return numbers[:-1].reshape(self.dimension, self.rank), float(numbers[-1])


def psd_root(matrix: NDArray[Any]) -> Floats:
    """A square root that rounding cannot break."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0))


class Widths(NamedTuple):
    """W: one width for all features and, if there is one, another for the intercept."""

    groups: NDArray[np.intp]

    @property
    def size(self) -> int:
        return int(self.groups.max()) + 1

    def widths(self, numbers: Floats) -> Floats:
        return np.exp(numbers)[self.groups]

    def slopes(self, numbers: Floats, slopes: Floats) -> NDArray[Any]:
        return np.bincount(self.groups, self.widths(numbers) * slopes, self.size)


class Bounds(NamedTuple):
    """Of the entries of Λ's root, and of the logarithms of the widths."""

    root: float
    width: tuple[float, float]


def best_prior(
    quadratics: Quadratics,
    shape: Shape,
    widths: Widths,
    start: Floats,
    bounds: Bounds,
    tolerance: float = 1e-12,
) -> tuple[Floats, Explained]:
    """The numbers of Λ and W, one after the other, with the least value, and what they explain.

    tolerance: a relative change of the value that ends the search.
    """

    def explained(numbers: Floats) -> Explained:
        return quadratics.explained(shape.root(numbers[: shape.size]), widths.widths(numbers[shape.size :]))

    def value_and_slopes(numbers: Floats) -> tuple[float, Floats]:
        found = explained(numbers)
        own = shape.slopes(numbers[: shape.size], found.covariance_slope)
        return found.value, np.append(own, widths.slopes(numbers[shape.size :], found.width_slopes))

    limits = [(-bounds.root, bounds.root)] * shape.size + [bounds.width] * widths.size
    low, high = np.array(limits).T
    options: Any = {"maxiter": 500, "maxfun": 1000, "maxcor": 30, "ftol": tolerance, "gtol": 1e-6}
    result = minimize(
        value_and_slopes,
        np.clip(start, low, high),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options=options,
    )
    return result.x, explained(result.x)
