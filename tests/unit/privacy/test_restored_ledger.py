"""A simulation that resumes finds its gates as it left them."""

from __future__ import annotations

import numpy as np
import pytest

from flockwise.errors import LedgerError
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.plan import Plan

PLAN = Plan.fitting(Budget(1.0, 1e-5), "gaussian", [1.0, 2.0, 3.0])
ROWS = Rows.of(np.random.default_rng(0).normal(size=(5, 2)), 1.0)
EVENTS = [ROWS.event(PLAN, number) for number in (1, 2, 3)]


def new_gate(ledger):
    return Gate(PLAN, ledger, SimulatedNoise(3, 4), start=np.zeros(2))


def test_a_restored_gate_goes_on_as_the_first_one_would_have():
    whole = new_gate(MemoryLedger("anna"))
    releases = [whole.release(ROWS) for _ in EVENTS]
    ledger = MemoryLedger("anna")
    ledger.restore(PLAN.to_json(), EVENTS[:2], releases[1].vector)
    gate = new_gate(ledger)
    assert (gate.consumed, gate.epsilon_spent) == (2, PLAN.epsilon_after(2))
    np.testing.assert_array_equal(gate.released, releases[1].vector)
    assert gate.release(ROWS).payload == releases[2].payload


def test_before_the_first_release_only_the_plan_is_granted():
    ledger = MemoryLedger("anna")
    ledger.restore(PLAN.to_json(), [], np.zeros(2))
    assert (ledger.plan, ledger.consumed) == (PLAN.to_json(), 0)


def test_releases_that_the_plan_does_not_hold_are_refused():
    ledger = MemoryLedger("anna")
    ledger.restore(PLAN.to_json(), EVENTS[::-1], np.zeros(2))
    with pytest.raises(LedgerError, match="not a release of its plan"):
        new_gate(ledger)
