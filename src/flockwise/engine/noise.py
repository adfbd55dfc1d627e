"""The noise of Eq. (6) for the compiled sweeps: what the gate planned, drawn from the run's own streams."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from flockwise.method.private_updates import tail_start
from flockwise.privacy.noise_plan import NoisePlan
from flockwise.randomness.noise import KINDS, draw_noise


class Silence(NamedTuple):
    """No noise: Eq. (4)."""


class PlannedNoise(NamedTuple):
    """scale of agent i's update k = multipliers[schedules[i], k]·sensitivities[i].

    tail_sums: of each agent's released models from update `tail_start` on.
    """

    kind: int
    multipliers: NDArray[np.float64]
    n_before: int
    schedules: NDArray[np.int32]
    sensitivities: NDArray[np.float64]
    tail_start: int
    tail_sums: NDArray[np.float64]


def planned_noise(plan: NoisePlan | None, tail_sums: NDArray[np.float64] | None) -> Silence | PlannedNoise:
    """The plan as arrays."""
    if plan is None or tail_sums is None:
        return Silence()
    kind, start = KINDS[plan.mechanism.name], tail_start(plan.n_updates)
    return PlannedNoise(
        kind, plan.multipliers, plan.n_before, plan.schedules, plan.sensitivities, start, tail_sums
    )


def tail_averages(
    models: NDArray[Any], updates: NDArray[np.int64], start: int, tail_sums: NDArray[np.float64]
) -> NDArray[Any]:
    """The mean of each agent's releases from update `start` on; its present model before there is one."""
    counts = np.maximum(updates - start, 0)[:, None]
    return np.where(counts > 0, tail_sums / np.maximum(counts, 1), models).astype(models.dtype)


def add_noise(
    noise: Any, agent: int, clocks: Any, gradient: NDArray[Any], draws: NDArray[np.float64]
) -> None:
    """Add the noise of the agent's next update to its mean gradient; `draws` is scratch room."""
    raise NotImplementedError("compiled code only")


@overload(add_noise)
def _compile_noise(noise, agent, clocks, gradient, draws):  # noqa: ANN001, ANN202
    if noise.instance_class is Silence:
        return lambda noise, agent, clocks, gradient, draws: None

    def add_planned(noise, agent, clocks, gradient, draws):  # noqa: ANN001, ANN202
        update, size = clocks.updates[agent], gradient.shape[0]
        scale = noise.multipliers[noise.schedules[agent], update] * noise.sensitivities[agent]
        # Releases are numbered from 1; that of a start comes first.
        number = noise.n_before + update + 1
        draw_noise(noise.kind, clocks.seed, agent, number, size, draws)
        for d in range(size):
            gradient[d] += scale * draws[d]

    return add_planned


def keep_release(noise: Any, agent: int, clocks: Any, new_model: NDArray[Any]) -> None:
    """Count a model that is about to be released in the agent's tail average."""
    raise NotImplementedError("compiled code only")


@overload(keep_release)
def _compile_tail(noise, agent, clocks, new_model):  # noqa: ANN001, ANN202
    if noise.instance_class is Silence:
        return lambda noise, agent, clocks, new_model: None

    def add_to_tail(noise, agent, clocks, new_model):  # noqa: ANN001, ANN202
        if clocks.updates[agent] >= noise.tail_start:
            for d in range(new_model.shape[0]):
                noise.tail_sums[agent, d] += new_model[d]

    return add_to_tail
