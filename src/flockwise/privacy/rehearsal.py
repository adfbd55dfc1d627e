"""Simulations that stop and go on: a ledger in memory as it was after some releases."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from flockwise.privacy.entries import Entry
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.messages import encode
from flockwise.privacy.plan import Plan


def replay(ledger: MemoryLedger, plan: Plan, consumed: int, released: NDArray[Any]) -> None:
    """Charge the first events of a plan again, the last one with the model that it released."""
    ledger.grant(plan.to_json())
    for number in range(1, consumed + 1):
        payload = encode(number, released) if number == consumed else None
        ledger.record(Entry.now(number, plan.events[number - 1], payload))
