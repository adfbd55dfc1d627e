"""The gate: the only maker of a Release, and so the only way out for anything computed from private data.

What it does for every release, in this order: take the next event of the agent's plan, bound the
sensitivity (clip the points, round onto the grid), add noise, hand the noisy value to public
post-processing, write charge, number and bytes in one transaction, and only then return the release.

Why a base is never passed in: the rows of a mean may depend on a model, and the sensitivity of their sum
is 2·clip/m only if that model is the same for neighboring data sets, which is so for a public start or for
what was released before. An agent's own (finished) model depends on all its points without noise; rows
computed at it change all at once when one point is replaced, and a release based on it carries it outside.
So the gate itself hands the last released model to the functions that need one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isclose
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.errors import LedgerError, PrivacyError
from flockwise.privacy.entries import Entry
from flockwise.privacy.grid import clip_rows, finite, positive, round_to_grid, rounded_sensitivity, sum_on_grid
from flockwise.privacy.ledger import Book
from flockwise.privacy.mechanisms import Mechanism
from flockwise.privacy.messages import SEAL, Release, decode, encode
from flockwise.privacy.noise import Noise, SecureNoise
from flockwise.privacy.spending import Policy, policy_from, spending_by

Vector: TypeAlias = NDArray[np.float64]
# `Any` stands for the last released model: None only before the first release of a gate without a start.
# Rows, or a function that computes them at the last released model.
Points: TypeAlias = ArrayLike | Callable[[Any], ArrayLike]
# Public post-processing: (noisy value, last released model) → the new released model.
PostProcessing: TypeAlias = Callable[[Vector, Any], ArrayLike]

ROUNDING: Final = 1e-12
# Why a gate makes no release now.
IN_A_RELEASE: Final = "a release is being made; points and post-processing cannot make another"
LEDGER_FAILED: Final = "its last charge could not be written; see to the disk and start the agent again"


def unchanged(noisy: Vector, released: Vector | None) -> Vector:
    """Post-processing that releases the noisy value as it is."""
    return noisy


class Gate:
    """One agent's gate, and the only one on its ledger.

    `policy` is a plan, fixed before the first release, or a filter for spending decided as one goes.
    `start` is a public model that stands for the released one until there is one.
    """

    def __init__(self, policy: Policy, ledger: Book, noise: Noise, *, start: ArrayLike | None = None) -> None:
        if ledger.is_durable and not isinstance(noise, SecureNoise):
            raise PrivacyError(
                f"agent {ledger.agent!r}: a real agent (one with a durable ledger) cannot use "
                f"{type(noise).__name__}: whoever knows its seed can subtract it; use SecureNoise"
            )
        self._spending = spending_by(policy, ledger.agent)
        for event in self._spending.planned():
            noise.check(event)
        self._ledger = ledger
        self._noise = noise
        self._start = None if start is None else _read_only(finite(start, 1, "start").copy())
        # Only now that nothing is left to be refused: what is granted is granted for ever.
        ledger.grant(self._spending.text)
        self._catch_up()
        ledger.claim()
        self._last = _last_release(ledger)
        self._prepared: tuple[Mechanism, int, int, NDArray[Any]] | None = None
        self._obstacle: str | None = None

    @classmethod
    def resume(cls, ledger: Book, noise: Noise, *, start: ArrayLike | None = None) -> Self:
        """The gate of an agent that starts again, with the plan or filter that its ledger holds."""
        if ledger.policy is None:
            raise LedgerError(f"agent {ledger.agent!r}: its ledger holds no plan yet; give Gate the plan")
        return cls(policy_from(ledger.policy), ledger, noise, start=start)

    @property
    def consumed(self) -> int:
        """How many events are spent."""
        return self._ledger.consumed

    @property
    def epsilon_spent(self) -> float:
        """What all consumed events cost together, at the δ of the budget."""
        self._catch_up()
        return self._spending.epsilon_spent(self.consumed)

    @property
    def released(self) -> Vector | None:
        """The last released model; the public start before the first release."""
        return self._start if self._last is None else self._last.vector

    def last_release(self) -> Release | None:
        """What was released last. Send it again after a restart: same number, same bytes, no cost."""
        return self._last

    def next_event(self) -> Mechanism:
        """What the next release spends; BudgetSpent if there is none."""
        return self._next_event(None)

    def prepare(self, dimension: int, *, event: Mechanism | None = None) -> None:
        """Draw the noise of the next release now, so that on the tick nobody can time the sampler.

        For an agent to call when it starts and after each release. BudgetSpent says that there is no next
        one: the agent falls silent. Noise that turns out to be for another release is never used.
        """
        event, number = self._next_event(event), self.consumed + 1
        self._prepared = (event, dimension, number, self._noise.draw(event, dimension, number))

    def release_mean(
        self, points: Points, clip: float, post: PostProcessing = unchanged, *, event: Mechanism | None = None
    ) -> Release:
        """Release (Σ clip(points) + noise)/m, post-processed.

        points: m rows; row k depends on point k and on public values alone. Rows that depend on a model
        are given as a function, which gets the last released one.
        clip: bound on a row in the event's norm, enforced here. Replacing one point moves the mean by at
        most 2·clip/m, which has to be the event's sensitivity.
        event: with a filter, what to spend; with a plan the next event is taken.
        """
        with self._next_release(event) as event:
            return self._release(event, self._mean(event, points, clip), post)

    def release_vector(
        self,
        vector: ArrayLike,
        sensitivity: float,
        post: PostProcessing = unchanged,
        *,
        event: Mechanism | None = None,
    ) -> Release:
        """Release vector + noise, post-processed: output perturbation.

        The caller vouches for `sensitivity`, how far the vector moves when one point is replaced, with the
        tolerance of its solver included: unlike a clipped mean, it cannot be enforced here. On a grid the
        event's sensitivity is that of the rounded vector (rounded_sensitivity).
        """
        with self._next_release(event) as event:
            return self._release(event, self._vector(event, vector, sensitivity), post)

    @contextmanager
    def _next_release(self, wanted: Mechanism | None) -> Iterator[Mechanism]:
        """The event of a release, which nothing else can spend while the release is made.

        Points and post-processing are code from outside: releasing again from there would spend the same
        event twice, or show a second noisy value for the price of one.
        """
        event = self._next_event(wanted)
        self._obstacle = IN_A_RELEASE
        try:
            yield event
        finally:
            if self._obstacle == IN_A_RELEASE:
                self._obstacle = None

    def _mean(self, event: Mechanism, points: Points, clip: float) -> NDArray[Any]:
        """The mean of the clipped points; on a grid their sum, in steps."""
        rows = self._rows(points)
        sensitivity = 2 * positive(clip, "clip") / len(rows)
        self._check_sensitivity(event, sensitivity, f"2·clip/m with clip={clip!r} and m={len(rows)}")
        # Never above what the event is accounted for, were it only by rounding.
        bound = min(clip, event.sensitivity * len(rows) / 2)
        if event.grid is None:
            return clip_rows(rows, bound, event.norm).mean(axis=0)
        return sum_on_grid(rows, bound, event.norm, event.grid)

    def _vector(self, event: Mechanism, vector: ArrayLike, sensitivity: float) -> NDArray[Any]:
        """The vector; on a grid rounded, in steps."""
        values = finite(vector, 1, "vector")
        positive(sensitivity, "sensitivity")
        if event.grid is None:
            self._check_sensitivity(event, sensitivity, f"sensitivity={sensitivity!r}")
            return values
        rounded = rounded_sensitivity(sensitivity, len(values), event.grid, event.norm)
        self._check_sensitivity(
            event, rounded, f"sensitivity={sensitivity!r}, rounded in {len(values)} coordinates"
        )
        return round_to_grid(values, event.grid)

    def _rows(self, points: Points) -> NDArray[np.float64]:
        """The rows of a mean, all finite.

        Rows that a function computed may overflow where a neighbor sent a huge model, and which ones do
        depends on the data: to refuse would tell. A row of zeros is within every bound.
        """
        if not callable(points):
            return finite(points, 2, "points")
        rows = np.asarray(points(self.released), np.float64)
        return finite(np.where(np.isfinite(rows).all(axis=-1, keepdims=True), rows, 0.0), 2, "points")

    def _next_event(self, wanted: Mechanism | None) -> Mechanism:
        if self._obstacle is not None:
            raise PrivacyError(f"agent {self._ledger.agent!r}: {self._obstacle}")
        self._catch_up()
        event = self._spending.next_event(wanted)
        self._noise.check(event)
        return event

    def _catch_up(self) -> None:
        """What is spent is what the ledger says: the gate keeps no account of its own."""
        self._spending.replay(self._ledger.events_after(self._spending.consumed))

    def _check_sensitivity(self, event: Mechanism, sensitivity: float, made_of: str) -> None:
        if not isclose(event.sensitivity, sensitivity, rel_tol=ROUNDING):
            raise PrivacyError(
                f"agent {self._ledger.agent!r}: event {self.consumed + 1} is accounted for "
                f"sensitivity={event.sensitivity!r}, but this release has {sensitivity!r} ({made_of}); "
                "plan for the release that is made"
            )

    def _release(self, event: Mechanism, value: NDArray[Any], post: PostProcessing) -> Release:
        """Noise, post-processing, one transaction, and then the release."""
        number = self.consumed + 1
        noisy = _read_only((value + self._take_noise(event, len(value), number)) * (event.grid or 1.0))
        try:
            payload = encode(number, self._public_model(post(noisy, self.released)))
        except BaseException:
            # Code outside the gate has seen the noisy value: the event is spent, whatever became of it.
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

    def _take_noise(self, event: Mechanism, dimension: int, number: int) -> NDArray[Any]:
        """The noise that was drawn ahead, once, if it is for this release; else fresh noise."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[:3] == (event, dimension, number):
            return prepared[3]
        return self._noise.draw(event, dimension, number)

    def _public_model(self, values: ArrayLike) -> Vector:
        """What post-processing returned, if it can be released."""
        model = np.asarray(values, np.float64)
        if model.ndim != 1 or not model.size or not np.isfinite(model).all():
            raise PrivacyError(
                f"agent {self._ledger.agent!r}: post-processing must return a vector of finite numbers, got "
                f"shape {model.shape}; nothing was sent, and event {self.consumed + 1} is spent all the same"
            )
        return model


def _last_release(ledger: Book) -> Release | None:
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
