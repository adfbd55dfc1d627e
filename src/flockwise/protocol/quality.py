"""How good smoothed releases are, told from the releases themselves and public noise: no data, no cost.

Smoothing helps if neighbors resemble each other and harms if they do not. What an agent expects of
its smoothed vector a_i is its correlation with the truth t_i, of known power ‖t_i‖² = S:
ρ_i = ⟨E a_i, t_i⟩ / √(S·(‖E a_i‖² + p·N_i)), N_i being the variance of the noise left in a coordinate.
Both unknowns are means over agents, known up to noise of known size, so that each is averaged with a
guess made before, by inverse variance. If the releases do not bear each other out, ρ_i falls to
what the agent's own share in a_i is worth, and it learns alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# How much of t_i the others' part in a_i holds: the guess, and how sure it is. Measured: .6 to .75
# on the paper's graph, .13 when three of ten edges are random, 0 on a random graph.
RESEMBLANCE_GUESS = 0.5
RESEMBLANCE_SPREAD = 0.3
SMALLEST = 1e-12
# How many numbers an agent tallies before the columns.
SCALARS = 3


class Smoothed(NamedTuple):
    """Rows of one agent each, before and after smoothing."""

    before: NDArray[np.float64]
    after: NDArray[np.float64]

    def products(self) -> NDArray[np.float64]:
        """⟨before_i, after_i⟩."""
        return np.einsum("ij,ij->i", self.before, self.after)

    def squares(self) -> NDArray[np.float64]:
        """‖after_i‖²."""
        return np.einsum("ij,ij->i", self.after, self.after)


def expected_correlations(
    vectors: Smoothed,
    noise: Smoothed,
    variances: NDArray[np.float64],
    shares: NDArray[np.float64],
    signal: float,
) -> NDArray[np.float64]:
    """ρ_i for every agent.

    vectors: the releases. noise: columns of public noise with the releases' `variances` s_i².
    shares: each agent's weight in means over agents, its share of all precision. signal: S.
    """
    tallied = tallies(vectors, noise, variances)
    return correlations(tallied, shares @ tallied, vectors.before.shape[1], signal)


def tallies(vectors: Smoothed, noise: Smoothed, variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per agent, what is averaged over agents: product, own share and square, then columns of noise.

    a_i contains own_i·v_i; the covariance of noise before and after is own_i·s_i². The columns, of one
    coordinate each, tell how far product and square may be off.
    """
    dimension, columns = vectors.before.shape[1], noise.before.shape[1]
    covariances, left = noise.products() / columns, noise.squares() / columns
    own = np.clip(covariances / variances, 0.0, 1.0)
    scalars = [vectors.products() - dimension * covariances, own, vectors.squares() - dimension * left]
    return np.column_stack([*scalars, noise.before * noise.after, noise.after**2])


def correlations(
    tallied: NDArray[np.float64], means: NDArray[np.float64], dimension: int, signal: float
) -> NDArray[np.float64]:
    """ρ_i from what agents tallied, one row each, and the means of it over all agents by precision."""
    own, of_products, of_squares = tallied[:, 1], *np.split(means[SCALARS:], 2)
    left = np.split(tallied[:, SCALARS:], 2, axis=1)[1].mean(axis=1)
    product, mean_own, square = means[:SCALARS].tolist()
    others = max(1 - mean_own, SMALLEST)
    error = _error(of_products, dimension) / signal
    resemblance = _blended((product / signal - mean_own) / others, error / others, RESEMBLANCE_GUESS)
    squares = _blended(square / signal, _error(of_squares, dimension) / signal, RESEMBLANCE_GUESS**2)
    # In units of S; a length is at least its projection.
    projections = own + resemblance * (1 - own)
    lengths = np.maximum(squares, projections**2) + dimension * left / signal
    return projections / np.sqrt(np.maximum(lengths, SMALLEST))


def _error(columns: NDArray[np.float64], dimension: int) -> float:
    """Standard error of a mean over agents of sums over p coordinates, from columns of one each."""
    return float(columns.std()) * math.sqrt(dimension)


def _blended(measured: float, error: float, guess: float) -> float:
    """Measurement and guess by inverse variance, from 0 to 1."""
    weight = RESEMBLANCE_SPREAD**2 / (RESEMBLANCE_SPREAD**2 + error**2)
    return float(np.clip(weight * measured + (1 - weight) * guess, 0.0, 1.0))
