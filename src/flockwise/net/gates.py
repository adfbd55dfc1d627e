"""The gates that one real agent releases from, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from flockwise.agent.agent import released_by
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import LedgerBase
from flockwise.privacy.messages import decode

# The gate of a batch, counted from 0, over its own ledger, with this public start.
OpenGate: TypeAlias = Callable[[int, NDArray[Any]], tuple[Gate, LedgerBase]]


@final
class GateQueue:
    """The gates that were released from, in their order; the last one is in use.

    Every gate counts its releases from 1. On the wire numbers go on where those of the gate before end.
    """

    def __init__(self, open_gate: OpenGate, batches: Callable[[], int], start: NDArray[Any]) -> None:
        """batches: how many there are now, spent ones included."""
        self._open_gate = open_gate
        self._batches = batches
        self._opened = [open_gate(0, start)]
        self._spent_before = 0.0
        while self.gate.is_spent and self.go_on():
            pass

    @property
    def gate(self) -> Gate:
        return self._opened[-1][0]

    @property
    def ledgers(self) -> list[LedgerBase]:
        return [ledger for _, ledger in self._opened]

    @property
    def place(self) -> int:
        """Which batch is released from."""
        return len(self._opened) - 1

    @property
    def consumed(self) -> int:
        """How many releases are spent, of all batches together."""
        return sum(ledger.consumed for ledger in self.ledgers)

    @property
    def epsilon_spent(self) -> float:
        """By the sample that has paid most: samples of different batches share no release."""
        return max(self._spent_before, self.gate.epsilon_spent)

    @property
    def released(self) -> NDArray[np.float64]:
        return released_by(self.gate)

    @property
    def last_number(self) -> int:
        """Under which number of the wire `released` was released; 0 for the public start."""
        for place in reversed(range(len(self._opened))):
            release = self._opened[place][0].last_release()
            if release is not None:
                return sum(ledger.consumed for ledger in self.ledgers[:place]) + release.number
        return 0

    def vectors(self, after: int = 0) -> list[NDArray[np.float64] | None]:
        """The releases with numbers above `after`; None where a release was lost."""
        payloads = [entry.payload for ledger in self.ledgers for entry in ledger.entries]
        return [None if payload is None else decode(payload)[1] for payload in payloads[after:]]

    def go_on(self) -> bool:
        """Turn to the next batch; False if there is none."""
        place = len(self._opened)
        if place == self._batches():
            return False
        self._spent_before = self.epsilon_spent
        self._opened.append(self._open_gate(place, self.released))
        return True
