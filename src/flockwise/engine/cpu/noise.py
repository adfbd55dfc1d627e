"""The noise of Eq. (6) for the compiled sweeps: what the gate planned, drawn from the run's own streams."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from flockwise.method.rules import DescentNoise
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.randomness.noise import draw_noise


class NoNoise(NamedTuple):
    """No noise: Eq. (4)."""


class PlannedNoise(NamedTuple):
    """scale of agent i's update k = multipliers[schedules[i], k]·sensitivities[i].

    tail_sums: of each agent's released models from update `tail_start` on.
    """

    sampler: Any
    multipliers: NDArray[np.float64]
    n_before: int
    schedules: NDArray[np.int32]
    sensitivities: NDArray[np.float64]
    tail_start: int
    tail_sums: NDArray[np.float64]


def planned_noise(
    noise: DescentNoise | None, tail_sums: NDArray[np.float64] | None
) -> NoNoise | PlannedNoise:
    """The plan as arrays."""
    if noise is None or tail_sums is None:
        return NoNoise()
    return PlannedNoise(
        MECHANISMS[noise.schedule.mechanism].sampler(),
        noise.multipliers,
        noise.n_before,
        noise.schedule.rows,
        noise.sensitivities,
        noise.tail_start,
        tail_sums,
    )


def add_noise(
    noise: Any, agent: int, clocks: Any, gradient: NDArray[Any], draws: NDArray[np.float64]
) -> None:
    """Add the noise of the agent's next update to its mean gradient; `draws` is scratch room."""
    raise NotImplementedError("compiled code only")


@overload(add_noise)
def _compile_noise(noise, agent, clocks, gradient, draws):
    if noise.instance_class is NoNoise:
        return lambda noise, agent, clocks, gradient, draws: None

    def add_planned(noise, agent, clocks, gradient, draws):
        update, size = clocks.updates[agent], gradient.shape[0]
        scale = noise.multipliers[noise.schedules[agent], update] * noise.sensitivities[agent]
        # Releases are numbered from 1; that of a start comes first.
        number = noise.n_before + update + 1
        draw_noise(noise.sampler, clocks.seed, clocks.ids[agent], number, size, draws)
        for d in range(size):
            gradient[d] += scale * draws[d]

    return add_planned


def keep_release(noise: Any, agent: int, clocks: Any, new_model: NDArray[Any]) -> None:
    """Count a model that is about to be released in the agent's tail average."""
    raise NotImplementedError("compiled code only")


@overload(keep_release)
def _compile_tail(noise, agent, clocks, new_model):
    if noise.instance_class is NoNoise:
        return lambda noise, agent, clocks, new_model: None

    def add_to_tail(noise, agent, clocks, new_model):
        if clocks.updates[agent] >= noise.tail_start:
            for d in range(new_model.shape[0]):
                noise.tail_sums[agent, d] += new_model[d]

    return add_to_tail
