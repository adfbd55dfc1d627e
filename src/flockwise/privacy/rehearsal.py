"""Restore an in-memory ledger when a simulation resumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from flockwise.privacy.entries import Entry
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import Mechanism
from flockwise.privacy.messages import encode
from flockwise.privacy.plan import Plan


def replay(ledger: MemoryLedger, plan: Plan, events: Sequence[Mechanism], released: NDArray[Any]) -> None:
    """Charge the first events of a plan again, the last one with the model that it released."""
    ledger.grant(plan.to_json())
    for number, event in enumerate(events, start=1):
        payload = encode(number, released) if number == len(events) else None
        ledger.record(Entry.now(number, event, payload))
