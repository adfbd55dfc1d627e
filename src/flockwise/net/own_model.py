"""An agent as its owner sees it: its own model, and new samples to learn from.

An own model uses the agent's data without noise, around what its neighbors released; it is never sent and
never logged. Without privacy the model that the agent sends is its own. With privacy it is the silent finish
of the simulator (flockwise.release.finish), computed whenever it is asked for, and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.agent import Agent, Neighbor
from flockwise.data import Population, Samples
from flockwise.data.samples import joined
from flockwise.errors import DataError
from flockwise.method.private import tail_noise_variances
from flockwise.net.store import Store
from flockwise.net.time import Time
from flockwise.objective import LocalUpdate, Objective, Problem
from flockwise.privacy.tracked import own_models
from flockwise.protocol.conversation import Direction
from flockwise.release.finish import finish_along_directions, finish_around_means
from flockwise.solve.local import solve_local_models


@dataclass(frozen=True, eq=False)
class OwnModel:
    """For the owner alone.

    batches: all its samples, as they came.
    guarantee: what holds for them, in plain words.
    is_private: whether the agent sends another model than its own.
    admit: told the place of a new batch before the store knows of it; may refuse it.
    noise_stds: of the noise in one coordinate of each of its releases; None for an agent without a budget.
    direction: what its neighbors told it, in a network where agents release once; None in all others.
    """

    objective: Objective
    agent: Agent
    batches: list[Samples]
    store: Store
    time: Time
    guarantee: str
    is_private: bool
    admit: Callable[[int], None] = lambda place: None
    noise_stds: Callable[[], NDArray[np.float64]] | None = None
    direction: Callable[[], Direction | None] | None = None

    @property
    def samples(self) -> Samples:
        """All that the agent learns from."""
        return joined(self.batches)

    def model(self) -> NDArray[np.float64]:
        """It remembers that it is private: a private run refuses to start from it."""
        if not self.is_private:
            return np.array(self.agent.model, np.float64)
        return own_models(self._finished())

    def predict(self, features: NDArray[Any]) -> NDArray[Any]:
        """By the own model, one label or value per row."""
        loss, n_features = self.objective.loss, self.samples.features.shape[1]
        rows = np.asarray(features, np.float64)
        if rows.ndim != 2 or rows.shape[1] != n_features:
            raise DataError(f"features must have the shape (samples, {n_features}), got {rows.shape}")
        blocks = np.asarray(self.model()).reshape(loss.outputs, n_features)
        return loss.predict(rows @ blocks.T)

    def add_data(self, features: ArrayLike, targets: ArrayLike) -> None:
        """Learn from these samples too; they are on disk when this returns, or refused whole."""
        batch = checked_samples(self.objective, features, targets, self.batches[0].features.shape[1])
        if not len(batch.targets):
            raise DataError("there is no sample in it; add one or more")
        self.admit(len(self.batches))
        self.store.add_batch(batch)
        self.batches.append(batch)
        self.agent.set_data(LocalUpdate.of(self.objective, self.samples), self.time.now())

    def _finished(self) -> NDArray[np.float64]:
        problem = problem_of_one(self.objective, self.samples)
        if self.direction is not None:
            return along(problem, self.direction())
        stds = None if self.noise_stds is None else self.noise_stds()
        return finished_model(problem, self.agent.neighbors.values(), stds)


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
    if direction is None:
        return solve_local_models(problem)[0]
    return finish_along_directions(problem, direction.vector[None], np.array([direction.quality]))[0]


def finished_model(
    problem: Problem, neighbors: Iterable[Neighbor], noise_stds: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """The minimum of the agent's block of Eq. (2), given the last messages of its neighbors.

    How far it trusts them follows from the noise in those messages. The agent knows no budgets but its
    own, nor how many samples others have, and takes their noise to be like that in its own messages;
    without a budget it takes it for none. A neighbor that has not updated its public start yet has
    told nothing, and is left out like one that was never heard.
    """
    heard = [(n.weight, n.number, n.model) for n in neighbors if n.model is not None and n.number > 0]
    mean, variance = np.zeros(problem.dimension), 0.0
    if heard:
        weights = np.array([weight for weight, _, _ in heard])
        shares = weights / weights.sum()
        mean = shares @ np.stack([model for _, _, model in heard])
        if noise_stds is not None:
            variances = [message_noise_variance(problem, noise_stds, number) for _, number, _ in heard]
            variance = float(shares**2 @ np.array(variances))
    return finish_around_means(problem, mean[None], np.array([bool(heard)]), variance)[0]


def message_noise_variance(problem: Problem, stds: NDArray[np.float64], number: int) -> float:
    """Variance per coordinate that noise leaves in a message: a release, or their mean after the last one.

    As in `tail_noise_variances`: an update takes (1 − α) of the model along and adds α·μc times its noise.
    """
    if number > len(stds):
        return float(tail_noise_variances(problem.step_sizes, problem.pulls, stds[None])[0])
    step_size, pull = float(problem.step_sizes[0]), float(problem.pulls[0])
    ages = np.arange(number)[::-1]
    return float(((step_size * pull * (1 - step_size) ** ages * stds[:number]) ** 2).sum())
