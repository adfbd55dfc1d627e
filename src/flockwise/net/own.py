"""An agent's own model: its data without noise, around what its neighbors released; never sent, never logged.

Without privacy the model that the agent sends is its own. With privacy it is the silent finish of the
simulator (flockwise.method.finish), worked out anew whenever it is asked for, and kept nowhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.agent.agent import Neighbor
from flockwise.errors import DataError
from flockwise.method.finish import finish_around_means
from flockwise.method.private_updates import tail_noise_variances
from flockwise.net.growth import Growth, Meter
from flockwise.net.learner import LearningAgent, Settings
from flockwise.net.time import Time
from flockwise.objective import Problem
from flockwise.privacy.noise_plan import NoisePlan
from flockwise.results.own import OwnModels


@dataclass(frozen=True, eq=False)
class OwnSide:
    """What an agent does for its owner alone.

    guarantee: what holds for its points, in plain words.
    meter: of its releases; None for one that has no budget, since it is in a network without privacy or
    has no points.
    finish: makes its model of its points in a network where agents release once; None in all others.
    """

    settings: Settings
    agent: LearningAgent
    growth: Growth
    time: Time
    is_private: bool
    guarantee: str
    meter: Meter | None = None
    finish: Callable[[Problem], NDArray[np.float64]] | None = None

    def model(self) -> NDArray[np.float64]:
        """Of the agent's own type of array: a private run refuses to start from it."""
        if not self.is_private:
            return np.array(self.agent.model, np.float64)
        points = self.growth.points
        problem = self.settings.problem(points.features, points.targets)
        if self.finish is not None:
            return self.finish(problem).view(OwnModels)
        plan = None
        if self.meter is not None:
            plan = plan_of(self.meter, len(self.growth.released_from.targets), self.growth.rounds)
        return finished_model(problem, self.agent.neighbors.values(), plan).view(OwnModels)

    def predict(self, features: NDArray[Any]) -> NDArray[Any]:
        """By the own model, one label or value per row."""
        loss, n_features = self.settings.loss, self.growth.points.features.shape[1]
        rows = np.asarray(features, np.float64)
        if rows.ndim != 2 or rows.shape[1] != n_features:
            raise DataError(f"features must have the shape (samples, {n_features}), got {rows.shape}")
        blocks = np.asarray(self.model()).reshape(loss.outputs, n_features)
        return loss.predict(rows @ blocks.T)

    def add_data(self, features: NDArray[Any], targets: NDArray[Any]) -> None:
        self.growth.add(features, targets, self.time.now())


def plan_of(meter: Meter, samples: int, rounds: int = 1) -> NoisePlan:
    """The noise of all releases that an agent makes, each from so many points; public."""
    event = meter.event(samples)
    unit = dataclasses.replace(event, sensitivity=1.0, scale=event.multiplier, grid=None)
    return NoisePlan(
        meter.clip,
        meter.filter().name,
        (meter.budget,),
        ((unit,) * meter.updates * rounds,),
        np.zeros(1, np.int32),
        np.array([event.sensitivity]),
    )


def finished_model(
    problem: Problem, neighbors: Iterable[Neighbor], plan: NoisePlan | None
) -> NDArray[np.float64]:
    """The minimum of the agent's block of Eq. (2), given the last messages of its neighbors.

    How far it trusts them follows from the noise in those messages. The agent knows no budgets but its
    own, nor how many points others have, and takes their noise to be like that in its own messages
    (`plan`); without one it takes it for none. A neighbor that has not updated its public start yet has
    told nothing, and is left out like one that was never heard.
    """
    heard = [(n.weight, n.number, n.model) for n in neighbors if n.model is not None and n.number > 0]
    mean, variance = np.zeros(problem.dimension), 0.0
    if heard:
        weights = np.array([weight for weight, _, _ in heard])
        shares = weights / weights.sum()
        mean = shares @ np.stack([model for _, _, model in heard])
        if plan is not None:
            variances = [message_noise_variance(problem, plan, number) for _, number, _ in heard]
            variance = float(shares**2 @ np.array(variances))
    return finish_around_means(problem, mean[None], np.array([bool(heard)]), variance)[0]


def message_noise_variance(problem: Problem, plan: NoisePlan, number: int) -> float:
    """Variance per coordinate that noise leaves in a message: a release, or their mean after the last one.

    As in `tail_noise_variances`: an update takes (1 − α) of the model along and adds α·μc times its noise.
    """
    if number > plan.n_updates:
        return float(tail_noise_variances(problem, plan)[0])
    step_size, pull = float(problem.step_sizes[0]), float(problem.pulls[0])
    ages = np.arange(number)[::-1]
    return float(((step_size * pull * (1 - step_size) ** ages * plan.noise_stds()[0, :number]) ** 2).sum())
