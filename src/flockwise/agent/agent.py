"""One agent without I/O: it is told when it ticks and what arrives, and answers with messages.

It knows its own data, its own model, its own clock, and of each neighbor the weight of their edge and the
last model received. It knows nothing else: not how many agents there are, no global tick, nobody else's
degree. So the same class runs in the simulator and on a real network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import BudgetSpent, PrivacyError, SimulationError
from flockwise.objective.local import LocalObjective, LocalUpdate
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.messages import Release
from flockwise.protocol.aggregation import NeighborMean, weighted_mean
from flockwise.protocol.descent import descent_update

NEVER_HEARD = -1

Vector: TypeAlias = NDArray[np.float64]
# One descent update, from a model and the gradient of the agent's own term there.
Step: TypeAlias = Callable[[Vector, Vector], Vector]


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
    """Says when an agent wakes."""

    def next_tick(self, updates: int, now: int) -> int | None:
        """When the next update comes after `updates` of them, the last one now; None if never again."""
        ...


@dataclass(slots=True)
class Neighbor:
    """A neighbor, and its last model."""

    weight: float
    number: int = NEVER_HEARD
    model: NDArray[Any] | None = None


class Releases(Protocol):
    """Stands between an agent's samples and the network."""

    @property
    def released(self) -> Vector:
        """The agent's model as everyone knows it: its last release, or its public start."""
        ...

    def set_samples(self, local: Any) -> None:
        """From now on the agent has these samples."""
        ...

    def prepare(self) -> None:
        """Draw the noise of the next release now: the sampler's time must not show on the tick."""
        ...

    def release(self, step: Step) -> None:
        """Make the next release; BudgetSpent if there is none."""
        ...

    def last_release(self) -> Release | None: ...


@final
class GradientReleases:
    """Eq. (6): every update releases the mean of the samples' clipped gradients at the released model."""

    def __init__(self, gate: Gate, local: LocalObjective, clip: float) -> None:
        """clip: bound on the gradient of one sample, in the norm of the noise."""
        self.gate = gate
        self._local = local
        self._clip = clip
        _ = self.released

    @property
    def released(self) -> Vector:
        return released_by(self.gate)

    def set_samples(self, local: LocalObjective) -> None:
        self._local = local

    def prepare(self) -> None:
        with suppress(BudgetSpent):
            self.gate.prepare(self._rows)

    def release(self, step: Step) -> None:
        def post(noisy_mean: Vector, released: Vector) -> Vector:
            return step(released, noisy_mean + self._local.penalty_gradient(released))

        self.gate.release(self._rows, post)

    def last_release(self) -> Release | None:
        return self.gate.last_release()

    @property
    def _rows(self) -> Rows:
        local = self._local
        return Rows(local.sample_gradients, self._clip, local.samples, local.dimension)


def released_by(gate: Gate) -> Vector:
    """The last release of a gate, or its public start."""
    if gate.released is None:
        raise PrivacyError("the gate of an agent that sends models needs a public start")
    return gate.released


@final
class Agent:
    """Runs Eq. (4) on its own ticks with the last models that it received.

    With `releases` it runs Eq. (6): each update is a release of its gate, and `model` is the released
    one. When the budget is spent it falls silent, and still keeps what it receives.
    """

    def __init__(
        self,
        name: Any,
        local: LocalUpdate,
        model: NDArray[Any],
        weights: Mapping[Any, float],
        clock: Clock,
        releases: Releases | None = None,
        *,
        now: int = 0,
        neighbor_mean: NeighborMean = weighted_mean,
    ) -> None:
        self.name = name
        self.model = model if releases is None else releases.released.astype(model.dtype)
        self.updates = 0
        self.neighbors = {other: Neighbor(weight) for other, weight in weights.items()}
        self.next_tick = clock.next_tick(0, now)
        self._local = local
        self._clock = clock
        self._releases = releases
        self._mean_of = neighbor_mean
        self.prepare()

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
        self.wait(now)
        return [self.last_message()]

    def wait(self, now: int) -> None:
        """Until the clock ticks next."""
        self.next_tick = self._clock.next_tick(self.updates, now)

    def resume(self, model: NDArray[Any], updates: int, now: int) -> None:
        """Go on from this model, after so many updates."""
        self.model, self.updates = model.astype(self.model.dtype), updates
        self.wait(now)

    def prepare(self) -> None:
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
            self.prepare()
        if self.next_tick is None:
            self.wait(now)

    def on_message(self, message: Message, now: int) -> None:
        """Keep the highest-numbered model of each neighbor; drop what is not a model."""
        neighbor = self.neighbors.get(message.sender)
        if neighbor is None:
            raise SimulationError(
                f"agent {self.name!r} got a message from {message.sender!r}, not a neighbor"
            )
        # A message without a model must not cost an event of the plan: the update would come to nothing.
        if message.model.shape != self.model.shape or not np.isfinite(message.model).all():
            return
        if message.number > neighbor.number:
            neighbor.number = message.number
            neighbor.model = message.model

    def _updated(self) -> NDArray[Any]:
        mean = self._neighbor_mean()

        def step(model: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
            updated = descent_update(model, mean, gradient, self._local.step_size, self._local.pull)
            return updated.astype(self.model.dtype, copy=False)

        if self._releases is None:
            return step(self.model, self._local.objective.gradient(self.model))
        self._releases.release(step)
        return self._releases.released.astype(self.model.dtype)

    def _neighbor_mean(self) -> NDArray[Any]:
        """Σ_j W_ij/D_ii·Θ_j over the neighbors heard from, or another mean of them.

        One never heard from is left out and the weights renormalized, so a missing neighbor never shrinks
        the model; with none at all, the own model stands in.
        """
        heard = [(n.weight, n.model) for n in self.neighbors.values() if n.model is not None]
        if not heard:
            return self.model
        weights = np.array([weight for weight, _ in heard], self.model.dtype)
        return self._mean_of(np.stack([model for _, model in heard]), weights)
