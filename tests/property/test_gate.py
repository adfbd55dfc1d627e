"""Whatever an agent goes through, in any order: it never overspends, and one number has one message."""

from __future__ import annotations

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
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Bounded, Gate, Rows
from flockwise.privacy.ledger import NAME, Ledger, read_statement
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, 1e-5)
DIMENSION, UPDATES = 2, 4
PLANS = [
    Plan.fitting(BUDGET, "gaussian", [1.0, 2.0, 3.0, 4.0], accountant="zcdp", on_grid=True),
    Plan.fitting(BUDGET, "laplace", [4.0, 3.0, 2.0, 1.0], accountant="basic", on_grid=True),
    Plan.fitting(BUDGET, "laplace", UPDATES, accountant="kov", on_grid=True),
]

bounds = st.floats(1e-3, 1e3)
# What an agent may release: more or fewer rows each time, under another bound, or a vector.
means = st.builds(
    lambda samples, clip: Rows.of(np.arange(2.0 * samples).reshape(samples, DIMENSION), clip),
    st.integers(1, 50),
    bounds,
)
vectors = st.builds(lambda bound: Bounded(np.ones(DIMENSION), bound), bounds)
values = means | vectors


class Crash(BaseException):
    """The process ends here."""


@contextmanager
def crash_around_commit(*, after: bool):
    """The transaction that charges a release is the last thing that happens, or is just not reached."""
    store = Ledger._store_entry

    def crashing(*arguments):
        if after:
            store(*arguments)
        raise Crash

    with mock.patch.object(Ledger, "_store_entry", crashing):
        yield


class AgentLife(RuleBasedStateMachine):
    """A real gate and ledger on disk, and what the world outside has seen of them."""

    def __init__(self):
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name)
        self.seen: dict[int, bytes] = {}

    @initialize(plan=st.sampled_from(PLANS))
    def begin(self, plan):
        self.plan = plan
        self.ledger = Ledger.create(self.folder, "anna")
        self.gate = self.new_gate()

    def new_gate(self):
        return Gate(self.plan, self.ledger, SecureNoise())

    def teardown(self):
        self.ledger.close()
        self.home.cleanup()

    def send(self, release):
        """Numbers grow, and none is ever seen with other bytes."""
        assert release.number >= max(self.seen, default=0)
        assert self.seen.setdefault(release.number, release.payload) == release.payload

    def restart(self):
        """A process that dies lets go of its files, and does nothing else."""
        self.ledger._resources.close()
        self.ledger = Ledger.open(self.folder, "anna")
        self.gate = self.new_gate()
        last = self.gate.last_release()
        if last is not None:
            self.send(last)

    @rule(value=values)
    def release_and_send(self, value):
        before = self.gate.consumed
        try:
            release = self.gate.release(value)
        except BudgetSpent:
            assert self.gate.consumed == before
        else:
            assert release.number == before + 1
            self.send(release)

    @rule(value=values)
    def crash_between_charge_and_sending(self, value):
        with suppress(BudgetSpent):
            self.gate.release(value)
        self.restart()

    @rule(value=values, after=st.booleans())
    def crash_around_the_commit(self, value, after):
        before = self.gate.consumed
        with crash_around_commit(after=after), pytest.raises((Crash, BudgetSpent)) as caught:
            self.gate.release(value)
        self.restart()
        charged = after and caught.type is Crash
        assert self.gate.consumed == before + charged

    @rule(value=values)
    def fail_in_post_processing(self, value):
        def fail(noisy, released):
            raise ZeroDivisionError

        before = self.gate.consumed
        with pytest.raises((ZeroDivisionError, BudgetSpent)) as caught:
            self.gate.release(value, fail)
        assert self.gate.consumed == before + (caught.type is ZeroDivisionError)

    @rule()
    def crash_at_rest(self):
        before = self.gate.consumed
        self.restart()
        assert self.gate.consumed == before

    @precondition(lambda self: not self.gate.is_spent)
    @rule(value=values)
    def draw_ahead(self, value):
        """For the release that comes, or for another one."""
        self.gate.prepare(value)

    @rule()
    def a_second_process_is_refused(self):
        with pytest.raises(LedgerError, match="in use"):
            Ledger.open(self.folder, "anna")

    @rule()
    def a_second_gate_is_refused(self):
        with pytest.raises(LedgerError, match="has a gate already"):
            self.new_gate()

    @rule(plan=st.sampled_from(PLANS))
    def another_plan_is_refused(self, plan):
        with pytest.raises(LedgerError, match=r"never replaced|has a gate already"):
            Gate(plan, self.ledger, SecureNoise())

    @rule(value=values)
    def release_in_post_processing(self, value):
        def again(noisy, released):
            return self.gate.release(value).vector

        before = self.gate.consumed
        with pytest.raises(PrivacyError) as caught:
            self.gate.release(value, again)
        assert self.gate.consumed == before + (caught.type is not BudgetSpent)

    @rule()
    def lose_the_log(self):
        """The process dies, and someone cleans up what it left beside the ledger."""
        before = self.gate.consumed
        kept = (self.folder / NAME).read_bytes()
        self.ledger._resources.close()
        for path in self.folder.iterdir():
            path.unlink()
        (self.folder / NAME).write_bytes(kept)
        self.restart()
        assert self.gate.consumed == before

    @invariant()
    def everything_is_paid_for(self):
        statement = read_statement(self.folder)
        assert statement.problems == ()
        assert len(statement.rows) == self.gate.consumed <= UPDATES
        on_disk = {row.number: row.payload for row in statement.rows}
        assert self.seen.items() <= on_disk.items()

    @invariant()
    def the_budget_is_kept(self):
        """By what the ledger says of each release, and not only by what was planned."""
        events = [row.entry().event for row in read_statement(self.folder).rows]
        spent = ACCOUNTANTS[self.plan.accountant].epsilon(events, BUDGET.delta)
        assert spent <= BUDGET.epsilon
        assert spent == pytest.approx(self.gate.epsilon_spent, rel=1e-12)
        assert self.gate.epsilon_spent <= BUDGET.epsilon


TestAgentLife = AgentLife.TestCase
TestAgentLife.settings = settings(max_examples=30, stateful_step_count=25)
