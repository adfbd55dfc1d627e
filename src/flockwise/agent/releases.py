"""What an agent may release of its samples, and how its model follows from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import BudgetSpent, PrivacyError
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.messages import Release

Vector: TypeAlias = NDArray[np.float64]
# One descent update, from a model and the gradient of the agent's own term there.
Step: TypeAlias = Callable[[Vector, Vector], Vector]


class SampleTerm(Protocol):
    """A local objective that is made of samples: the mean of their gradients, plus that of the penalty."""

    @property
    def samples(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    def gradient(self, model: NDArray[Any]) -> NDArray[Any]: ...

    def sample_gradients(self, model: NDArray[Any]) -> NDArray[Any]: ...

    def penalty_gradient(self, model: NDArray[Any]) -> NDArray[Any]: ...


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

    def __init__(self, gate: Gate, local: SampleTerm, clip: float) -> None:
        """clip: bound on the gradient of one sample, in the norm of the noise."""
        self.gate = gate
        self._local = local
        self._clip = clip
        _ = self.released

    @property
    def released(self) -> Vector:
        return released_by(self.gate)

    def set_samples(self, local: SampleTerm) -> None:
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
