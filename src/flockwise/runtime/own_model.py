"""What an agent's own model is computed from: its samples, and the last messages of its neighbors.

Solvers are compiled code, which takes more memory than all else of an agent: they are imported with the first
own model.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.agent import Neighbor
from flockwise.data import Population, Samples
from flockwise.errors import DataError
from flockwise.objective import Objective, Problem
from flockwise.protocol.aggregation import NeighborMean, weighted_mean
from flockwise.protocol.conversation import Direction


def checked_samples(
    objective: Objective, features: ArrayLike, targets: ArrayLike, n_features: int
) -> Samples:
    """Samples that fit the network and its loss. Errors name no value of them: they end in logs."""
    rows, values = np.array(features, np.float64), np.array(targets, np.float64)
    if rows.ndim != 2 or values.shape != rows.shape[:1]:
        raise DataError(
            "samples must have features of shape (samples, features) and targets of shape (samples,), got "
            f"{rows.shape} and {values.shape}"
        )
    if rows.shape[1] != n_features:
        raise DataError(f"a sample has {n_features} features, got {rows.shape[1]}")
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise DataError("a sample has a value that is infinite or not a number; clean the data first")
    if not objective.loss.valid_targets(values).all():
        raise DataError(f"every target must be {objective.loss.expects}; look at the data")
    return Samples(rows, values)


def problem_of_one(objective: Objective, samples: Samples) -> Problem:
    """The problem that an agent with these samples is alone in."""
    features, targets = (np.ascontiguousarray(part, np.float64) for part in samples)
    return Problem(Population.packed(features, targets, np.array([0, len(targets)])), None, objective)


def along(problem: Problem, direction: Direction | None) -> NDArray[np.float64]:
    """The model of an agent's samples alone, or along a direction that it was told."""
    from flockwise.release.finish import finish_along_directions
    from flockwise.solve.local import solve_local_models

    if direction is None:
        return solve_local_models(problem)[0]
    return finish_along_directions(problem, direction.vector[None], np.array([direction.quality]))[0]


def finished_model(
    problem: Problem,
    neighbors: Iterable[Neighbor],
    noise_stds: NDArray[np.float64] | None,
    neighbor_mean: NeighborMean = weighted_mean,
) -> NDArray[np.float64]:
    """The minimum of the agent's block of Eq. (2), given the last messages of its neighbors.

    How far it trusts them follows from the noise in those messages. The agent knows no budgets but its
    own, nor how many samples others have, and takes their noise to be like that in its own messages;
    without a budget it takes it for none. A neighbor that has not updated its public start yet has
    told nothing, and is left out like one that was never heard.
    """
    from flockwise.release.finish import finish_around_means

    heard = [(n.weight, n.number, n.model) for n in neighbors if n.model is not None and n.number > 0]
    mean, variance = np.zeros(problem.dimension), 0.0
    if heard:
        weights = np.array([weight for weight, _, _ in heard])
        shares = weights / weights.sum()
        mean = neighbor_mean(np.stack([model for _, _, model in heard]), weights)
        if noise_stds is not None:
            variances = [message_noise_variance(problem, noise_stds, number) for _, number, _ in heard]
            variance = float(shares**2 @ np.array(variances))
    return finish_around_means(problem, mean[None], np.array([bool(heard)]), variance)[0]


def message_noise_variance(problem: Problem, stds: NDArray[np.float64], number: int) -> float:
    """Variance per coordinate that noise leaves in a message: a release, or their mean after the last one.

    As in `tail_noise_variances`: an update takes (1 − α) of the model along and adds α·μc times its noise.
    """
    from flockwise.method.private import tail_noise_variances

    if number > len(stds):
        return float(tail_noise_variances(problem.step_sizes, problem.pulls, stds[None])[0])
    step_size, pull = float(problem.step_sizes[0]), float(problem.pulls[0])
    ages = np.arange(number)[::-1]
    return float(((step_size * pull * (1 - step_size) ** ages * stds[:number]) ** 2).sum())
