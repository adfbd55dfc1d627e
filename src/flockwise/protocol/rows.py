"""What each agent computes of its own row, alike in the central computation and in the protocol.

An agent's row holds its released vector and columns of public noise as large as that of the release:
whatever is done to the first is done to the others, and so everyone sees how much noise is left.
Nothing here can receive a population.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats

# Columns of public noise: they tell a variance to about 10 %.
NOISE_COLUMNS: Final = 200
# Everyone knows it, so everyone could draw anyone's noise.
PUBLIC_SEED: Final = 0
# How many numbers an agent tallies for a degree.
TALLIES: Final = 4


class AgentRows(NamedTuple):
    """One row per agent, of an agent alone or of many: vectors of p coordinates, then public noise."""

    vectors: Floats
    noise: Floats

    @classmethod
    def of_columns(cls, columns: Floats) -> AgentRows:
        return cls(columns[:, :-NOISE_COLUMNS], columns[:, -NOISE_COLUMNS:])

    def columns(self) -> Floats:
        return np.hstack([self.vectors, self.noise])

    def less(self, mean: AgentRows) -> AgentRows:
        """With a mean over all agents subtracted."""
        return AgentRows(self.vectors - mean.vectors, self.noise - mean.noise)


def public_noise(agents: NDArray[np.integer], variances: Floats) -> Floats:
    """Each agent's noise columns, a function of its number alone; none for an agent that released nothing."""
    scales = np.sqrt(np.where(np.isfinite(variances), variances, 0.0))
    rows = np.empty((len(agents), NOISE_COLUMNS))
    for row, agent in zip(rows, agents.tolist(), strict=True):
        row[:] = np.random.Generator(np.random.Philox(key=[PUBLIC_SEED, agent])).standard_normal(
            NOISE_COLUMNS
        )
    return scales[:, None] * rows


def weighted(rows: AgentRows, variances: Floats) -> Floats:
    """[row/s², 1/s²]: what is filtered and gossiped."""
    precisions = (1 / variances)[:, None]
    return np.hstack([precisions * rows.columns(), precisions])


def quotients(sums: Floats, mean: AgentRows) -> AgentRows:
    """AgentRows less the mean, from filtered [row/s², 1/s²]; 0 where the filter left no precision.

    The quotient of a filtered constant is that constant, so the mean can be subtracted afterwards.
    """
    precisions = sums[:, -1:]
    has_precision = precisions > 0
    rows = sums[:, :-1] / np.where(has_precision, precisions, 1.0) - mean.columns()
    return AgentRows.of_columns(np.where(has_precision, rows, 0.0))


def tallies(before: AgentRows, after: AgentRows, variances: Floats) -> Floats:
    """Per agent: agreement, power, noise left per coordinate, and its own share in its smoothed vector.

    The own share F_ii is the covariance of noise before and after over s_i². Agreement is
    ⟨v_i, a_i − F_ii·v_i⟩: the noise in v_i is in none of the others' vectors, so on average it is
    what the others say of the truth of i. Power is ‖a_i‖² less the noise in it.
    """
    dimension = before.vectors.shape[1]
    left = products(after.noise, after.noise) / NOISE_COLUMNS
    own = np.clip(products(before.noise, after.noise) / NOISE_COLUMNS / variances, 0.0, 1.0)
    agreement = products(before.vectors, after.vectors) - own * products(before.vectors, before.vectors)
    power = products(after.vectors, after.vectors) - dimension * left
    return np.column_stack([agreement, power, left, own])


def released_powers(before: AgentRows, variances: Floats, noise_variances: Floats) -> Floats:
    """Per agent: ‖v_i‖² less the noise in it, and s_i²; both 0 for an agent that released nothing."""
    dimension = before.vectors.shape[1]
    squares = products(before.vectors, before.vectors) - dimension * noise_variances
    return np.where(np.isfinite(variances)[:, None], np.column_stack([squares, variances]), 0.0)


def products(left: Floats, right: Floats) -> Floats:
    """⟨left_i, right_i⟩ of each row."""
    return np.einsum("ij,ij->i", left, right)
