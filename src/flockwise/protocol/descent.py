"""Eq. (4): what an agent does when it wakes, as a pure function of its state."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def descent_update(
    model: NDArray[Any],
    neighbor_mean: NDArray[Any],
    local_gradient: NDArray[Any],
    step_size: float,
    pull: float,
) -> NDArray[Any]:
    """Eq. (4): (1 − α)·Θ_i + α·(Σ_j W_ij/D_ii·Θ_j − μc_i·∇ℒ_i(Θ_i))."""
    return (1 - step_size) * model + step_size * (neighbor_mean - pull * local_gradient)
