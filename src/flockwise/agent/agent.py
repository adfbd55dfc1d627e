"""One agent without I/O: it is told when it ticks and what arrives, and answers with messages.

It knows its own data, its own model, its own clock, and of each neighbor the weight of their edge
and the last model received. It knows nothing else: not how many agents there are, no global
tick, nobody else's degree. So the same class runs in the simulator and on a real network.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from flockwise.agent.releases import Releases
from flockwise.errors import BudgetSpent, PrivacyError, SimulationError
from flockwise.method.descent import descent_update
from flockwise.objective.local import LocalUpdate
from flockwise.privacy.messages import Release

NEVER_HEARD = -1


@dataclass(frozen=True, slots=True)
class Message:
    """A model on its way from an agent to all its neighbors, numbered by the sender's updates.

    release: where the sender has a gate, what the gate released; its bytes are what a network sends.
    """

    sender: Hashable
    number: int
    model: NDArray[Any]
    release: Release | None = None


class Clock(Protocol):
    """Tells when an agent wakes."""

    def next_tick(self, updates: int, now: int) -> int | None:
        """When the next update comes after `updates` of them, the last one now; None if never again."""
        ...


@dataclass(slots=True)
class Neighbor:
    """What an agent holds of a neighbor."""

    weight: float
    number: int = NEVER_HEARD
    model: NDArray[Any] | None = None


@final
class Agent:
    """Runs Eq. (4) on its own ticks with the last models that it received.

    With `releases` it runs Eq. (6): each update is a release of its gate, and `model` is the released
    one. When the budget is spent it falls silent, and still keeps what it receives.
    """

    def __init__(
        self,
        name: Hashable,
        local: LocalUpdate,
        model: NDArray[Any],
        weights: Mapping[Any, float],
        clock: Clock,
        releases: Releases | None = None,
        *,
        now: int = 0,
    ) -> None:
        self.name = name
        self.model = model if releases is None else releases.released.astype(model.dtype)
        self.updates = 0
        self.neighbors = {other: Neighbor(weight) for other, weight in weights.items()}
        self.next_tick = clock.next_tick(0, now)
        self._local = local
        self._clock = clock
        self._releases = releases
        self.prepare(now)

    def last_message(self) -> Message:
        """The present model, numbered by the updates done; number 0 is the model it started from."""
        release = None if self._releases is None else self._releases.last_release()
        return Message(self.name, self.updates, self.model, release)

    def on_tick(self, now: int) -> list[Message]:
        """Wake up: one update, then broadcast the new model; nothing more once the budget is spent."""
        try:
            self.model = self._updated()
        except BudgetSpent:
            self.next_tick = None
            return []
        self.updates += 1
        self.next_tick = self._clock.next_tick(self.updates, now)
        return [self.last_message()]

    def prepare(self, now: int) -> None:
        """Get ready for the next tick, when nobody waits: the time that noise takes must not show."""
        if self._releases is not None:
            self._releases.prepare()

    def set_data(self, local: LocalUpdate, now: int) -> None:
        """Go on with these samples; an agent that had fallen silent tries again."""
        self._local = local
        if self._releases is not None:
            self._releases.set_samples(local.objective)
        # Only drawn ahead; a gate that cannot release any more says so on the tick.
        with suppress(PrivacyError):
            self.prepare(now)
        if self.next_tick is None:
            self.next_tick = self._clock.next_tick(self.updates, now)

    def _updated(self) -> NDArray[Any]:
        mean = self._neighbor_mean()

        def step(model: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
            updated = descent_update(model, mean, gradient, self._local.step_size, self._local.pull)
            return updated.astype(self.model.dtype, copy=False)

        if self._releases is None:
            return step(self.model, self._local.objective.gradient(self.model))
        self._releases.release(step)
        return self._releases.released.astype(self.model.dtype)

    def on_message(self, message: Message, now: int) -> None:
        """Keep the highest-numbered model of each neighbor; drop what is no model."""
        neighbor = self.neighbors.get(message.sender)
        if neighbor is None:
            raise SimulationError(
                f"agent {self.name!r} got a message from {message.sender!r}, not a neighbor"
            )
        # What is not a model must not cost an event of the plan: the update would come to nothing.
        if message.model.shape != self.model.shape or not np.isfinite(message.model).all():
            return
        if message.number > neighbor.number:
            neighbor.number = message.number
            neighbor.model = message.model

    def _neighbor_mean(self) -> NDArray[Any]:
        """Σ_j W_ij/D_ii·Θ_j over the neighbors heard from.

        One never heard from is left out and the weights renormalized, so that a missing neighbor
        never shrinks the model; with none at all, the own model stands in.
        """
        heard = [(n.weight, n.model) for n in self.neighbors.values() if n.model is not None]
        if not heard:
            return self.model
        weights = np.array([weight for weight, _ in heard], self.model.dtype)
        return weights @ np.stack([model for _, model in heard]) / weights.sum()
