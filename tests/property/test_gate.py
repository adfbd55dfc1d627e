"""Whatever an agent goes through, in any order: it never overspends, and one number has one message."""

from __future__ import annotations

import dataclasses
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flockwise.errors import BudgetSpent, LedgerError, PrivacyError
from flockwise.privacy.budget import Budget
from flockwise.privacy.filters import ZcdpFilter
from flockwise.privacy.gate import Gate
from flockwise.privacy.grid import grid_for_mean
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.ledger_file import NAME, LedgerFile, read_statement
from flockwise.privacy.mechanisms import Gaussian
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, 1e-5)
SAMPLES, DIMENSION, CLIP = 4, 2, 1.0
SENSITIVITY = 2 * CLIP / SAMPLES
UNIT = Gaussian(SENSITIVITY, 1.0, grid_for_mean(SENSITIVITY, SAMPLES))
POINTS = np.arange(8.0).reshape(SAMPLES, DIMENSION)
UPDATES = 4
PLAN = Plan.fitting(BUDGET, UNIT, accountant="zcdp", costs=[1.0, 2.0, 3.0, 4.0])


class Crash(BaseException):
    """The process ends here."""


@contextmanager
def crash_around_commit(*, after: bool):
    """The transaction that charges a release is the last thing that happens, or is just not reached."""
    append = LedgerFile.append

    def crashing(*arguments):
        if after:
            append(*arguments)
        raise Crash

    with mock.patch.object(LedgerFile, "append", crashing):
        yield


class AgentLife(RuleBasedStateMachine):
    """A real gate and ledger on disk, and what the world outside has seen of them."""

    def __init__(self):
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name)
        self.seen: dict[int, bytes] = {}

    @initialize(has_plan=st.booleans())
    def begin(self, has_plan):
        self.has_plan = has_plan
        self.ledger = Ledger.create(self.folder, "anna")
        self.gate = self.new_gate()

    def new_gate(self):
        return Gate(PLAN if self.has_plan else ZcdpFilter(BUDGET), self.ledger, SecureNoise())

    def teardown(self):
        self.ledger.close()
        self.home.cleanup()

    def send(self, release):
        """Numbers grow, and none is ever seen with other bytes."""
        assert release.number >= max(self.seen, default=0)
        assert self.seen.setdefault(release.number, release.payload) == release.payload

    def release(self, share, post=lambda noisy, released: noisy):
        event = None if self.has_plan else dataclasses.replace(UNIT, scale=PLAN.events[-1].scale / share)
        return self.gate.release_mean(POINTS, CLIP, post, event=event)

    def restart(self):
        """A process that dies lets go of its files, and does nothing else."""
        self.ledger._file._resources.close()
        self.ledger = Ledger.open(self.folder, "anna")
        self.gate = Gate.resume(self.ledger, SecureNoise())
        last = self.gate.last_release()
        if last is not None:
            self.send(last)

    @rule(share=st.floats(0.2, 1.0))
    def release_and_send(self, share):
        before = self.gate.consumed
        try:
            release = self.release(share)
        except BudgetSpent:
            assert self.gate.consumed == before
        else:
            assert release.number == before + 1
            self.send(release)

    @rule(share=st.floats(0.2, 1.0))
    def crash_between_charge_and_sending(self, share):
        with suppress(BudgetSpent):
            self.release(share)
        self.restart()

    @rule(share=st.floats(0.2, 1.0), after=st.booleans())
    def crash_around_the_commit(self, share, after):
        before = self.gate.consumed
        with crash_around_commit(after=after), pytest.raises((Crash, BudgetSpent)) as caught:
            self.release(share)
        self.restart()
        charged = after and caught.type is Crash
        assert self.gate.consumed == before + charged

    @rule(share=st.floats(0.2, 1.0))
    def fail_in_post_processing(self, share):
        def fail(noisy, released):
            raise ZeroDivisionError

        before = self.gate.consumed
        with pytest.raises((ZeroDivisionError, BudgetSpent)) as caught:
            self.release(share, fail)
        assert self.gate.consumed == before + (caught.type is ZeroDivisionError)

    @rule()
    def crash_at_rest(self):
        before = self.gate.consumed
        self.restart()
        assert self.gate.consumed == before

    @precondition(lambda self: self.has_plan and self.gate.consumed < UPDATES)
    @rule(dimension=st.integers(1, 3))
    def draw_ahead(self, dimension):
        self.gate.prepare(dimension)

    @rule()
    def a_second_process_is_refused(self):
        with pytest.raises(LedgerError, match="in use"):
            Ledger.open(self.folder, "anna")

    @rule(resumed=st.booleans())
    def a_second_gate_is_refused(self, resumed):
        with pytest.raises(LedgerError, match="has a gate already"):
            Gate.resume(self.ledger, SecureNoise()) if resumed else self.new_gate()

    @rule(share=st.floats(0.2, 1.0))
    def release_in_post_processing(self, share):
        def again(noisy, released):
            return self.release(share).vector

        before = self.gate.consumed
        with pytest.raises(PrivacyError) as caught:
            self.release(share, again)
        assert self.gate.consumed == before + (caught.type is not BudgetSpent)

    @rule()
    def lose_the_log(self):
        """The process dies, and someone cleans up what it left beside the ledger."""
        before = self.gate.consumed
        kept = (self.folder / NAME).read_bytes()
        self.ledger._file._resources.close()
        for path in self.folder.iterdir():
            path.unlink()
        (self.folder / NAME).write_bytes(kept)
        self.restart()
        assert self.gate.consumed == before

    @invariant()
    def everything_is_paid_for(self):
        statement = read_statement(self.folder)
        assert statement.problems == ()
        assert len(statement.rows) == self.gate.consumed
        assert self.gate.epsilon_spent <= BUDGET.epsilon
        on_disk = {row.number: row.payload for row in statement.rows}
        assert self.seen.items() <= on_disk.items()
        if self.has_plan:
            assert self.gate.consumed <= UPDATES


TestAgentLife = AgentLife.TestCase
TestAgentLife.settings = settings(max_examples=30, stateful_step_count=25)
