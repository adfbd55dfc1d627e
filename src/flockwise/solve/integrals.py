"""Agents' quadratic losses with their models integrated out: exp of them is normal in the common mean.

With θ_i ~ N(θ₀, Λ), Λ = RRᵀ, an agent's loss −bᵀθ + ½θᵀHθ turns into one of θ₀ with the Hessian
P = H − HR(I + RᵀHR)⁻¹RᵀH. An agent of few samples has an H of low rank, H = AAᵀ with few columns; then
P = A(I + AᵀΛA)⁻¹Aᵀ is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from flockwise.arrays import Floats
from flockwise.solve.whitening import whiten

# Bounds the memory.
_NUMBERS_AT_ONCE: Final = 4_000_000
_pivoted_cholesky: Any = get_lapack_funcs("pstrf", dtype=np.float64)
# In fewer dimensions a low rank saves nothing.
_LEAST_DIMENSION: Final = 16


@dataclass(frozen=True, eq=False)
class Integral:
    """Of some agents. total: Σ P. pulled: b − HR(I + RᵀHR)⁻¹Rᵀb of each.

    height: Σ ½ log det(I + RᵀHR). explained: Σ bᵀR(I + RᵀHR)⁻¹Rᵀb.
    """

    total: Floats
    pulled: Floats
    height: float
    explained: float

    def away(self, mean: Floats) -> Floats:
        """What pulls each agent's model away from this mean."""
        raise NotImplementedError

    def known(self, covariance: Floats) -> Floats:
        """Σ P C P."""
        raise NotImplementedError


class AgentsPart(Protocol):
    """Some agents, whose models can be integrated out."""

    def integrated(self, root: Floats) -> Integral:
        """For Λ = root·rootᵀ."""
        ...


def parts_of(hessians: Floats, linear: Floats) -> Iterator[AgentsPart]:
    """All agents, those of low rank together with their like."""
    n, p = linear.shape
    if p < _LEAST_DIMENSION:
        yield from _dense(hessians, linear, np.arange(n))
        return
    factors = [_factor(hessian) for hessian in hessians]
    ranks = np.array([factor.shape[1] for factor in factors])
    widths = 2 ** np.ceil(np.log2(np.maximum(ranks, 1))).astype(np.int64)
    low = 2 * ranks <= p
    yield from _dense(hessians, linear, np.flatnonzero(~low))
    for width in np.unique(widths[low]):
        members = np.flatnonzero(low & (widths == width))
        for some in _chunks(members, int(width) * p):
            padded = np.zeros((len(some), p, int(ranks[some].max())))
            for place, agent in enumerate(some):
                padded[place, :, : ranks[agent]] = factors[agent]
            yield _Thin(np.ascontiguousarray(padded.transpose(0, 2, 1)), linear[some])


def _dense(hessians: Floats, linear: Floats, agents: NDArray[np.intp]) -> Iterator[AgentsPart]:
    for some in _chunks(agents, linear.shape[1] ** 2):
        whole = len(some) == len(linear)
        yield _Dense(hessians if whole else hessians[some], linear if whole else linear[some])


def _chunks(agents: NDArray[np.intp], numbers_each: int) -> Iterator[NDArray[np.intp]]:
    size = max(_NUMBERS_AT_ONCE // numbers_each, 1)
    for first in range(0, len(agents), size):
        yield agents[first : first + size]


def _factor(hessian: Floats) -> Floats:
    """A with AAᵀ = hessian and as many columns as its rank, by a pivoted Cholesky decomposition."""
    lower, pivots, rank, _ = _pivoted_cholesky(hessian, lower=1)
    factor = np.empty((len(hessian), rank))
    factor[pivots - 1] = lower[:, :rank]
    factor[pivots[:rank] - 1] *= np.tri(rank)
    return factor


def _whitened(inner: Floats, rows: Floats, column: Floats) -> tuple[float, Floats, Floats]:
    """With inner = LLᵀ of each agent: Σ ½ log det inner, L⁻¹ rows and L⁻¹ column."""
    rank = inner.shape[1]
    systems = np.concatenate([inner, rows, column[..., None]], axis=2)
    height = whiten(systems)
    if math.isnan(height):
        raise np.linalg.LinAlgError("the Hessian of an agent's losses is not positive semidefinite")
    return height, np.ascontiguousarray(systems[..., rank:-1]), systems[..., -1]


@dataclass(frozen=True, eq=False)
class _Dense:
    hessians: Floats
    linear: Floats

    def integrated(self, root: Floats) -> Integral:
        images = self.hessians @ root
        inner = np.eye(root.shape[1]) + root.T @ images
        height, halves, left = _whitened(inner, images.transpose(0, 2, 1), self.linear @ root)
        precisions = self.hessians - halves.transpose(0, 2, 1) @ halves
        pulled = self.linear - np.einsum("nrp,nr->np", halves, left)
        explained = float((left**2).sum())
        return _DenseIntegral(precisions.sum(axis=0), pulled, height, explained, precisions)


@dataclass(frozen=True, eq=False)
class _DenseIntegral(Integral):
    precisions: Floats

    def away(self, mean: Floats) -> Floats:
        return self.pulled - self.precisions @ mean

    def known(self, covariance: Floats) -> Floats:
        root = np.linalg.cholesky(covariance + 1e-300 * np.eye(len(covariance)))
        images = (self.precisions @ root).transpose(1, 0, 2).reshape(len(root), -1)
        return images @ images.T


@dataclass(frozen=True, eq=False)
class _Thin:
    """factors: Aᵀ of every agent, with rows of 0 where it has a lower rank than others."""

    factors: Floats
    linear: Floats

    def integrated(self, root: Floats) -> Integral:
        n, rank, p = self.factors.shape
        images = (self.factors.reshape(-1, p) @ root).reshape(n, rank, -1)
        inner = np.eye(rank) + images @ images.transpose(0, 2, 1)
        pulls = self.linear @ root
        height, halves, left = _whitened(inner, self.factors, (images @ pulls[..., None])[..., 0])
        pulled = self.linear - np.einsum("nrp,nr->np", halves, left)
        explained = float((pulls**2).sum() - (left**2).sum())
        flat = halves.reshape(-1, p)
        return _ThinIntegral(flat.T @ flat, pulled, height, explained, halves)


@dataclass(frozen=True, eq=False)
class _ThinIntegral(Integral):
    """halves: B with BᵀB = P."""

    halves: Floats

    def away(self, mean: Floats) -> Floats:
        return self.pulled - np.einsum("nrp,nr->np", self.halves, self.halves @ mean)

    def known(self, covariance: Floats) -> Floats:
        p = len(covariance)
        flat = self.halves.reshape(-1, p)
        inner = (flat @ covariance).reshape(self.halves.shape) @ self.halves.transpose(0, 2, 1)
        return flat.T @ (inner @ self.halves).reshape(-1, p)
