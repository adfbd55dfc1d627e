"""One agent of a real network, made of its own points and of what everyone knows.

The agent is that of the simulator, with the same update: step size and pull come from a `Problem` that has
this one agent in it, with public bounds in place of everything that would be computed from data.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.agent import Agent, Shelter
from flockwise.agent.agent import Clock
from flockwise.data import Population
from flockwise.errors import DataError, ObjectiveError, PrivacyError
from flockwise.graph import SimilarityGraph
from flockwise.objective import LocalObjective, Problem
from flockwise.objective.losses import Loss
from flockwise.privacy.gate import Gate


@dataclass(frozen=True)
class Settings:
    """The public side of a learning task, the same for all agents; see `Problem`.

    max_samples: the cap on an agent's points that confidences are measured against.
    feature_bound: on every ‖x‖₂; step sizes come from it and from no data. Without it, which is for networks
    without privacy, they come from the agent's points.
    """

    loss: Loss
    tradeoff: float
    max_samples: int
    feature_bound: float | None
    l2: float | None = None

    def problem(self, features: ArrayLike, targets: ArrayLike) -> Problem:
        """The problem of an agent with these points; who its neighbors are plays no part in its settings.

        A simulation names the value that does not fit. Here the text of an error ends in logs, so that it
        tells what is asked for and nothing of the points.
        """
        rows, values = np.asarray(features, np.float64), np.asarray(targets, np.float64)
        try:
            return self._problem(rows, values)
        except (DataError, ObjectiveError) as error:
            self._problem(rows[:0], values[:0])  # says what is wrong if it is the settings
            bound = "" if self.feature_bound is None else f", every ‖x‖₂ at most {self.feature_bound!r}"
            raise type(error)(
                f"the agent's points do not fit the task: values must be finite{bound}, and every target "
                f"{self.loss.expects}; look at its data"
            ) from None

    def _problem(self, rows: NDArray[np.float64], values: NDArray[np.float64]) -> Problem:
        return Problem(
            Population.packed(rows, values, np.array([0, len(values)])),
            _alone(),
            self.loss,
            tradeoff=self.tradeoff,
            l2=self.l2,
            max_samples=self.max_samples,
            smoothness="exact" if self.feature_bound is None else "public",
            feature_bound=self.feature_bound,
        )


@lru_cache(maxsize=1)
def _alone() -> SimilarityGraph:
    """A graph of one agent, the same for all: a gateway starts many."""
    return SimilarityGraph.from_edges(1, np.empty((0, 2), np.int64), np.empty(0))


@dataclass(frozen=True)
class Protection:
    """An agent's gate, and the bound on the gradient of one point in the norm of its noise.

    term: what the gate releases from, if that is not all that the agent has.
    """

    gate: Gate
    clip: float
    term: LocalObjective | None = None

    def shelter(self, term: LocalObjective) -> Shelter:
        return Shelter(self.gate, term if self.term is None else self.term, self.clip)


class LearningAgent(Agent):
    """An agent that can be given more points."""

    def relearn(self, problem: Problem, protection: Protection | None, now: int) -> None:
        """Go on with the points of this problem; one that had fallen silent tries again."""
        check_public_steps(self.name, problem, protection)
        term = LocalObjective.of_agent(problem, 0)
        self._term = term
        self._step_size = float(problem.step_sizes[0])
        self._pull = float(problem.pulls[0])
        self._shelter = None if protection is None else protection.shelter(term)
        # Only drawn ahead; a gate that cannot release any more says so on the tick.
        with suppress(PrivacyError):
            super().prepare(now)
        if self.next_tick is None:
            self.next_tick = self._clock.next_tick(self.updates, now)


def make_agent(
    name: str,
    problem: Problem,
    weights: Mapping[Hashable, float],
    clock: Clock,
    *,
    start: NDArray[Any] | None = None,
    protection: Protection | None = None,
    now: int = 0,
) -> LearningAgent:
    """The agent with the points of a one-agent problem, and these ties; it starts from zeros."""
    check_public_steps(name, problem, protection)
    term = LocalObjective.of_agent(problem, 0)
    return LearningAgent(
        name,
        term,
        np.zeros(problem.dimension) if start is None else start,
        weights,
        step_size=float(problem.step_sizes[0]),
        pull=float(problem.pulls[0]),
        clock=clock,
        shelter=None if protection is None else protection.shelter(term),
        now=now,
    )


def check_public_steps(name: Hashable, problem: Problem, protection: Protection | None) -> None:
    if protection is not None and problem.smoothness != "public":
        raise PrivacyError(
            f"agent {name!r}: without feature_bound its step size comes from its points, and every release "
            "would tell of them; give the network a feature_bound"
        )
