"""Batches of points with a budget each: released from one after the other, never together.

A release uses the points of one batch alone: those of the first until their budget is spent, then those of
the next. It goes on from what was released before, which is public, so that learning is one descent over
all batches. What each of them pays is what its own gate charges to its own ledger.

Every gate counts its releases from 1. On the wire numbers go on where those of the batch before have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import isclose
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.agent import Message, Shelter
from flockwise.agent.agent import Clock
from flockwise.errors import BudgetSpent, LedgerError, PrivacyError
from flockwise.net.growth import Meter, checked_batch, joined
from flockwise.net.learner import LearningAgent, Protection, Settings, check_public_steps
from flockwise.net.outbox import Signer, release_in
from flockwise.net.store import Batch, Sent, Store
from flockwise.net.wire import open_signed
from flockwise.objective import LocalObjective, Problem
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import Book, Ledger
from flockwise.privacy.messages import decode, encode
from flockwise.privacy.plan import Plan
from flockwise.privacy.spending import policy_from

# The gate of a batch, counted from 0, over its own ledger, with a budget of its own and this public start.
OpenGate: TypeAlias = Callable[[int, Batch, NDArray[Any]], tuple[Gate, Book]]


class BatchLedgers:
    """The ledgers of an agent's batches: that of the first lies in its folder, the others below it.

    A ledger is made before its batch is known to the store. So one that is missing later has been lost, and
    the budget with it. One file is open at a time: batches may come for years.
    """

    def __init__(self, folder: Path, agent: str) -> None:
        self._folder = folder
        self._agent = agent
        self._opened: Ledger | None = None

    def make(self, place: int) -> None:
        try:
            Ledger.create(self._of(place), self._agent).close()
        except LedgerError:  # there is one, if a crash came between it and its batch
            Ledger.open(self._of(place), self._agent).close()

    def open(self, place: int) -> Ledger:
        """The one that is spent from now on; of the one before nothing but its entries is needed any more."""
        self.close()
        self._opened = Ledger.open(self._of(place), self._agent)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _of(self, place: int) -> Path:
        return self._folder / f"batch{place}" if place else self._folder


def plan_of_batch(meter: Meter, batch: Batch, ledger: Book) -> Plan:
    """What all releases from a batch spend: as its ledger says, or new if it has released nothing yet.

    A ledger that was granted a filter is one for all points that there are (flockwise.net.growth): they have
    been released from together, and have no budgets of their own any more.
    """
    planned = meter.plan(len(batch.targets))
    if ledger.policy is None:
        return planned
    granted = policy_from(ledger.policy)
    if (
        not isinstance(granted, Plan)
        or granted.budget != planned.budget
        or not isclose(granted.events[0].sensitivity, planned.events[0].sensitivity)
    ):
        raise LedgerError(
            f"agent {ledger.agent!r}: its ledger was granted for other settings; the budget, the clip, how "
            "growth is paid for and the points that it began with stay as they were at its first start"
        )
    return granted


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
        self._spent_before = 0.0
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
    def consumed(self) -> int:
        """How many events are spent, of all batches together."""
        return self.offset + self.gate.consumed

    @property
    def epsilon_spent(self) -> float:
        """What the point has paid that has paid most: points of different batches share no release."""
        return max(self._spent_before, self.gate.epsilon_spent)

    @property
    def last_number(self) -> int:
        """Under which number of the wire `released` was released; 0 for the public start."""
        for place in reversed(range(len(self._opened))):
            release = self._opened[place][0].last_release()
            if release is not None:
                return sum(ledger.consumed for _, ledger in self._opened[:place]) + release.number
        return 0

    @property
    def released(self) -> NDArray[np.float64]:
        assert self.gate.released is not None  # every gate has a start
        return self.gate.released

    @property
    def is_spent(self) -> bool:
        try:
            self.gate.next_event()
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
        self._spent_before = self.epsilon_spent
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
        check_public_steps(name, problem, protection)
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

    def prepare(self, now: int) -> None:
        if self._gates.is_spent and self._gates.go_on():
            self.relearn(*self._present(), now)
        else:
            super().prepare(now)

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


class ByBatches:
    """A program hands new points to this one: they are a batch, with a budget of its own."""

    def __init__(self, agent: BatchAgent, gates: BatchGates, store: Store) -> None:
        self._agent = agent
        self._gates = gates
        self._store = store

    @property
    def points(self) -> Batch:
        return joined(self._gates.batches)

    @property
    def released_from(self) -> Batch:
        return self._gates.batch

    @property
    def rounds(self) -> int:
        return len(self._gates.batches)

    def add(self, features: ArrayLike, targets: ArrayLike, now: int) -> None:
        self._agent.add(features, targets, self._store, now)


class BatchOutbox:
    """What the gates of all batches released, under numbers that go on."""

    spends = True

    def __init__(self, signer: Signer, gates: BatchGates) -> None:
        self._signer = signer
        self._gates = gates
        self._last = self._signed(gates.last_number, gates.released)

    @property
    def last(self) -> Sent:
        return self._last

    @property
    def updates(self) -> int:
        return self._gates.consumed

    @property
    def model(self) -> NDArray[Any]:
        return self._gates.released

    def conclude(self) -> None:
        """More batches may come, and with them more releases: there is no last word."""

    def ready(self, message: Message) -> Sent:
        self._last = self._signed(self._gates.last_number, release_in(message).vector)
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
