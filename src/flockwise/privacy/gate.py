"""The gate: the only maker of a Release, and so the only way out for anything computed from private data.

For every release it does this, in this order: take the next multiplier of the agent's plan, bound the
sensitivity (clip the rows, round onto the grid), add noise, hand the noisy value to public post-processing,
write charge, number and bytes in one transaction, and only then return the release.

Why a base is never passed in: the rows of a mean may depend on a model, and the sensitivity of their sum
is 2·clip/m only if that model is the same for neighboring data sets, which is so for a public start or for
what was released before. An agent's own (finished) model depends on all its samples without noise; rows
computed at it change all at once when one sample is replaced, and a release based on it carries it outside.
So the gate itself hands the last released model to the functions that need one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.errors import BudgetSpent, LedgerError, PrivacyError
from flockwise.privacy.grid import (
    clip_rows,
    finite,
    grid_for,
    positive,
    round_to_grid,
    rounded_sensitivity,
    sum_on_grid,
)
from flockwise.privacy.ledger import Entry, LedgerBase
from flockwise.privacy.mechanisms import MECHANISMS, Mechanism, Norm
from flockwise.privacy.messages import SEAL, Release, decode, encode
from flockwise.privacy.noise import Noise, SecureNoise
from flockwise.privacy.plan import Plan

Vector: TypeAlias = NDArray[np.float64]
# `Any` stands for the last released model: None only before the first release of a gate without a start.
# Public post-processing: (noisy value, last released model) → the new released model.
PostProcessing: TypeAlias = Callable[[Vector, Any], ArrayLike]

# Why a gate makes no release now.
IN_A_RELEASE: Final = "release() was called inside another release; return from that one first"
LEDGER_FAILED: Final = "its last charge could not be written; see to the disk and start the agent again"


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per sample: the gate clips each to `clip` and releases their mean.

    values: row k depends on sample k and on public values alone. Rows that depend on a model are given as a
    function, which gets the last released one. Replacing one sample moves the mean by at most 2·clip/m.
    """

    values: ArrayLike | Callable[[Any], ArrayLike]
    clip: float
    samples: int
    dimension: int

    @classmethod
    def of(cls, values: ArrayLike, clip: float) -> Rows:
        """Rows that are known."""
        rows = finite(values, 2, "rows")
        return cls(rows, clip, *rows.shape)

    def event(self, plan: Plan, number: int) -> Mechanism:
        sensitivity = 2 * positive(self.clip, "clip") / positive(self.samples, "samples")
        grid = grid_for(sensitivity, self.samples) if plan.on_grid else None
        return plan.event(number, sensitivity, int(self.dimension), grid)

    def bounded(self, event: Mechanism, released: Any) -> NDArray[Any]:
        """The mean of the clipped rows; on a grid their sum, in steps."""
        rows = self._at(released)
        if rows.shape != (self.samples, self.dimension):
            raise PrivacyError(f"rows must have shape {(self.samples, self.dimension)}, got {rows.shape}")
        # Never above what the event is accounted for, were it only by rounding.
        bound = min(self.clip, event.sensitivity * self.samples / 2)
        if event.grid is None:
            return clip_rows(rows, bound, event.norm).mean(axis=0)
        return sum_on_grid(rows, bound, event.norm, event.grid)

    def _at(self, released: Any) -> Vector:
        """All rows, finite.

        Rows that a function computed may overflow where a neighbor sent a huge model, and which ones do
        depends on the data: to refuse would leak it. A row of zeros is within every bound.
        """
        if not callable(self.values):
            return finite(self.values, 2, "rows")
        rows = np.asarray(self.values(released), np.float64)
        return finite(np.where(np.isfinite(rows).all(axis=-1, keepdims=True), rows, 0.0), 2, "rows")


@dataclass(frozen=True, eq=False)
class Bounded:
    """A vector that moves by at most `sensitivity` when one sample is replaced: output perturbation.

    The caller vouches for `sensitivity`, with the tolerance of its solver included: unlike a clipped mean, it
    cannot be enforced here.
    """

    vector: ArrayLike
    sensitivity: float

    @property
    def dimension(self) -> int:
        return len(np.asarray(self.vector))

    def event(self, plan: Plan, number: int) -> Mechanism:
        sensitivity = positive(self.sensitivity, "sensitivity")
        if not plan.on_grid:
            return plan.event(number, sensitivity, self.dimension)
        norm: Norm = MECHANISMS[plan.mechanism].norm
        grid = grid_for(sensitivity, positive(self.dimension, "dimension"))
        return plan.event(
            number, rounded_sensitivity(sensitivity, self.dimension, grid, norm), self.dimension, grid
        )

    def bounded(self, event: Mechanism, released: Any) -> NDArray[Any]:
        """The vector; on a grid rounded, in steps."""
        values = finite(self.vector, 1, "vector")
        return values if event.grid is None else round_to_grid(values, event.grid)


def unchanged(noisy: Vector, released: Vector | None) -> Vector:
    """Post-processing that releases the noisy value as it is."""
    return noisy


@final
class Gate:
    """One agent's gate, and the only one on its ledger.

    `start` is a public model that stands for the released one until there is one.
    """

    def __init__(
        self, plan: Plan, ledger: LedgerBase, noise: Noise, *, start: ArrayLike | None = None
    ) -> None:
        if ledger.is_durable and not isinstance(noise, SecureNoise):
            raise PrivacyError(
                f"agent {ledger.agent!r}: a real agent (one with a durable ledger) cannot use "
                f"{type(noise).__name__}: whoever knows its seed can subtract it; use SecureNoise"
            )
        noise.check(plan.event(1, 1.0, 1, 2.0**-20 if plan.on_grid else None))
        self.plan = plan
        self._ledger = ledger
        self._noise = noise
        self._start = None if start is None else _read_only(finite(start, 1, "start").copy())
        # Only now that nothing is left to be refused: what is granted is granted for ever.
        ledger.grant(plan.to_json())
        check_entries(plan, ledger.agent, ledger.entries)
        ledger.claim()
        self._last = _last_release(ledger)
        self._prepared: tuple[Mechanism, int, NDArray[Any]] | None = None
        self._obstacle: str | None = None

    @property
    def consumed(self) -> int:
        """How many releases are spent: what the ledger says, for the gate keeps no account of its own."""
        return self._ledger.consumed

    @property
    def is_spent(self) -> bool:
        """Whether the plan allows no release any more."""
        return self.consumed >= len(self.plan)

    @property
    def epsilon_spent(self) -> float:
        """What all consumed releases cost together, at the δ of the budget."""
        return self.plan.epsilon_after(self.consumed)

    @property
    def released(self) -> Vector | None:
        """The last released model; the public start before the first release."""
        return self._start if self._last is None else self._last.vector

    def last_release(self) -> Release | None:
        """The last release. Send it again after a restart: same number, same bytes, no cost."""
        return self._last

    def prepare(self, value: Rows | Bounded) -> None:
        """Draw the noise of the next release now: on the tick nobody can then time the sampler.

        For an agent to call when it starts and after each release, with a value of the size that it is going
        to release. BudgetSpent says that there is no next one: the agent falls silent. Noise that was drawn
        for another release is never used.
        """
        number = self._next_number()
        event = value.event(self.plan, number)
        self._noise.check(event)
        self._prepared = (event, number, self._noise.draw(event, number))

    def release(self, value: Rows | Bounded, post: PostProcessing = unchanged) -> Release:
        """Release the bounded value with noise, post-processed."""
        with self._next_release() as number:
            event = value.event(self.plan, number)
            self._noise.check(event)
            noise_free = value.bounded(event, self.released)
            return self._release(event, number, noise_free, post)

    @contextmanager
    def _next_release(self) -> Iterator[int]:
        """The number of a release, which nothing else can spend while the release is made.

        Rows and post-processing are code from outside: releasing again from there would spend the same
        multiplier twice, or show a second noisy value for the price of one.
        """
        number = self._next_number()
        self._obstacle = IN_A_RELEASE
        try:
            yield number
        finally:
            if self._obstacle == IN_A_RELEASE:
                self._obstacle = None

    def _next_number(self) -> int:
        if self._obstacle is not None:
            raise PrivacyError(f"agent {self._ledger.agent!r}: {self._obstacle}")
        if self.is_spent:
            raise BudgetSpent(
                f"agent {self._ledger.agent!r}: all {len(self.plan)} releases of its plan are spent; it "
                "stays silent from now on, but may go on learning from what it receives"
            )
        return self.consumed + 1

    def _release(self, event: Mechanism, number: int, value: NDArray[Any], post: PostProcessing) -> Release:
        """Noise, post-processing, one transaction, and then the release."""
        noisy = _read_only((value + self._take_noise(event, number)) * (event.grid or 1.0))
        try:
            payload = encode(number, self._public_model(post(noisy, self.released)))
        except BaseException:
            # Code outside the gate has seen the noisy value: the release is spent, whatever became of it.
            self._record(Entry.now(number, event, None))
            raise
        self._record(Entry.now(number, event, payload))
        self._last = _recorded(payload)
        return self._last

    def _record(self, entry: Entry) -> None:
        """Charge; if that fails, in whatever way, the noisy value that was seen has to be the last one."""
        self._obstacle = LEDGER_FAILED
        self._ledger.record(entry)
        self._obstacle = None

    def _take_noise(self, event: Mechanism, number: int) -> NDArray[Any]:
        """The noise that was drawn ahead, once, if it is for this release; else fresh noise."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[:2] == (event, number):
            return prepared[2]
        return self._noise.draw(event, number)

    def _public_model(self, values: ArrayLike) -> Vector:
        """What post-processing returned, if it can be released."""
        model = np.asarray(values, np.float64)
        if model.ndim != 1 or not model.size or not np.isfinite(model).all():
            raise PrivacyError(
                f"agent {self._ledger.agent!r}: post-processing must return a vector of finite numbers, got "
                f"shape {model.shape}; nothing was sent, and release {self.consumed + 1} is spent all the "
                "same"
            )
        return model


def check_entries(plan: Plan, agent: str, entries: Iterable[Entry]) -> None:
    """Refuse entries that are not the releases of this plan."""
    for entry in entries:
        event, number = entry.event, entry.number
        is_of_plan = number <= len(plan) and (event.grid is not None) == plan.on_grid
        if not is_of_plan or event != plan.event(number, event.sensitivity, event.dimension, event.grid):
            raise LedgerError(f"agent {agent!r}: entry {number} in its ledger is not a release of its plan")


def _last_release(ledger: LedgerBase) -> Release | None:
    for entry in reversed(ledger.entries):
        if entry.payload is not None:
            return _recorded(entry.payload)
    return None


def _recorded(payload: bytes) -> Release:
    """The release that the ledger holds; nothing else becomes one."""
    number, vector = decode(payload)
    return Release(number, vector, payload, SEAL)


def _read_only(vector: Vector) -> Vector:
    vector.flags.writeable = False
    return vector
