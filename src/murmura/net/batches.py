"""Batches of points with a budget each: released from one after the other, never together.

A release uses the points of one batch alone: those of the first until their budget is spent, then those of
the next. It goes on from what was released before, which is public, so that learning is one descent over
all batches. What each of them pays is what its own gate charges to its own ledger.

Every gate counts its releases from 1. On the wire numbers go on where those of the batch before have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from murmura.agent import Message, Shelter
from murmura.agent.agent import Clock
from murmura.errors import BudgetSpent, PrivacyError
from murmura.net.growth import checked_batch, joined
from murmura.net.learner import LearningAgent, Protection, Settings
from murmura.net.outbox import Signer
from murmura.net.store import Batch, Sent, Store
from murmura.net.wire import open_signed
from murmura.objective import LocalObjective, Problem
from murmura.privacy.gate import Gate
from murmura.privacy.ledger import Book, Ledger
from murmura.privacy.ledger_file import NAME
from murmura.privacy.messages import decode, encode

# The gate of a batch, counted from 0, over its own ledger, with a budget of its own and this public start.
OpenGate: TypeAlias = Callable[[int, Batch, NDArray[Any]], tuple[Gate, Book]]


class BatchLedgers:
    """The ledgers of an agent's batches: that of the first lies in its folder, the others below it.

    A ledger is made before its batch is known to the store. So one that is missing later has been lost, and
    the budget with it.
    """

    def __init__(self, folder: Path, agent: str) -> None:
        self._folder = folder
        self._agent = agent

    def make(self, place: int) -> None:
        folder = self._of(place)
        if not (folder / NAME).is_file():  # a crash may have left an empty one
            Ledger.create(folder, self._agent).close()

    def open(self, place: int) -> Ledger:
        return Ledger.open(self._of(place), self._agent)

    def _of(self, place: int) -> Path:
        return self._folder / f"batch{place}" if place else self._folder


class BatchGates:
    """The gates of the batches that were released from, in their order; the last one is in use."""

    def __init__(
        self,
        open_gate: OpenGate,
        batches: list[Batch],
        start: NDArray[Any],
        make_ledger: Callable[[int], None] | None = None,
    ) -> None:
        """batches: all that there are, spent ones included. make_ledger: see BatchLedgers.make."""
        self.batches = batches
        self._open_gate = open_gate
        self._make_ledger = make_ledger
        self._opened = [open_gate(0, batches[0], start)]
        while self.is_spent and self.go_on():
            pass

    @property
    def gate(self) -> Gate:
        return self._opened[-1][0]

    @property
    def batch(self) -> Batch:
        """The one that is released from."""
        return self.batches[len(self._opened) - 1]

    @property
    def offset(self) -> int:
        """How many numbers the batches before it have used."""
        return sum(ledger.consumed for _, ledger in self._opened[:-1])

    @property
    def released(self) -> NDArray[np.float64]:
        assert self.gate.released is not None  # every gate has a start
        return self.gate.released

    @property
    def is_spent(self) -> bool:
        try:
            self.gate.prepare(len(self.released))
        except BudgetSpent:
            return True
        except PrivacyError:  # it cannot release now, for another reason
            return False
        return False

    def add(self, batch: Batch, store: Store) -> None:
        """Put a batch on disk, its empty ledger first."""
        if self._make_ledger is not None:
            self._make_ledger(len(self.batches))
        store.add_batch(batch)
        self.batches.append(batch)

    def go_on(self) -> bool:
        """Turn to the next batch; False if there is none."""
        place = len(self._opened)
        if place == len(self.batches):
            return False
        self._opened.append(self._open_gate(place, self.batches[place], self.released))
        return True

    def vector(self, number: int) -> NDArray[np.float64] | None:
        """What was released under a number of the wire."""
        for _, ledger in self._opened:
            if 0 < number <= ledger.consumed:
                payload = ledger.entries[number - 1].payload
                return None if payload is None else decode(payload)[1]
            number -= ledger.consumed
        return None


class BatchAgent(LearningAgent):
    """Releases from one batch after the other; falls silent when all are spent."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        gates: BatchGates,
        clip: float,
        weights: Mapping[Hashable, float],
        clock: Clock,
        *,
        now: int = 0,
    ) -> None:
        self._settings = settings
        self._gates = gates
        self._clip = clip
        problem, protection = self._present()
        super().__init__(
            name,
            LocalObjective.of_agent(problem, 0),
            gates.released,
            weights,
            step_size=float(problem.step_sizes[0]),
            pull=float(problem.pulls[0]),
            clock=clock,
            shelter=Shelter(gates.gate, _term_of(protection), clip),
            now=now,
        )

    def on_tick(self, now: int) -> list[Message]:
        messages = super().on_tick(now)
        if messages or not self._gates.go_on():
            return messages
        self.relearn(*self._present(), now)
        return super().on_tick(now)

    def add(self, features: ArrayLike, targets: ArrayLike, store: Store, now: int) -> None:
        """A new batch: its turn comes when those before it are spent."""
        batch = checked_batch(self._settings, self._gates.batch, features, targets)
        self._gates.add(batch, store)
        if self._gates.is_spent:
            self._gates.go_on()
        self.relearn(*self._present(), now)

    def _present(self) -> tuple[Problem, Protection]:
        """Confidence and step size by all points, whose number is public; the data of one batch."""
        points, batch = joined(self._gates.batches), self._gates.batch
        problem = self._settings.problem(points.features, points.targets)
        term = LocalObjective(
            self._settings.loss, batch.features, batch.targets, float(problem.l2_penalties[0])
        )
        return problem, Protection(self._gates.gate, self._clip, term)


class BatchOutbox:
    """What the gates of all batches released, under numbers that go on."""

    spends = True

    def __init__(self, signer: Signer, gates: BatchGates) -> None:
        self._signer = signer
        self._gates = gates
        release = gates.gate.last_release()
        self._last = self._signed(gates.offset + (0 if release is None else release.number), gates.released)

    @property
    def last(self) -> Sent:
        return self._last

    @property
    def updates(self) -> int:
        return self._gates.offset + self._gates.gate.consumed

    @property
    def model(self) -> NDArray[Any]:
        return self._gates.released

    def conclude(self) -> None:
        """More batches may come, and with them more releases: there is no last word."""

    def ready(self, message: Message) -> Sent:
        if message.release is None:
            raise PrivacyError(
                f"agent {message.sender!r}: message {message.number} did not come from its gate; an agent "
                "with a budget sends nothing else"
            )
        self._last = self._signed(self._gates.offset + message.release.number, message.release.vector)
        return self._last

    def knows(self, echo: Sent) -> bool:
        if echo.number in (0, self._last.number):
            return echo.number == 0 or echo.data == self._last.data
        vector = self._gates.vector(echo.number)
        payload = open_signed(echo.data, len(echo.data)).body.payload
        return vector is not None and encode(echo.number, vector) == payload

    def take_back(self, later: Sent) -> None:
        raise PrivacyError("an agent with a budget goes on from its ledgers alone")

    def _signed(self, number: int, vector: NDArray[np.float64]) -> Sent:
        return self._signer.signed(number, encode(number, vector))


def _term_of(protection: Protection) -> LocalObjective:
    assert protection.term is not None
    return protection.term
