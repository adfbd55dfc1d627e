"""Growing data: whatever arrives and whenever, no point pays more than the budget."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.network.paying import costs, record

from flockwise.errors import DataError, LedgerError, ObjectiveError, PrivacyError
from flockwise.net.batches import BatchAgent, BatchGates, BatchLedgers, BatchOutbox
from flockwise.net.growth import MechanismName, Meter, MeteredGate, OneBudget, joined
from flockwise.net.learner import Protection, Settings, make_agent
from flockwise.net.outbox import Signer
from flockwise.net.signing import new_signing_key
from flockwise.net.store import Batch, FileStore, MemoryStore, Sent
from flockwise.net.wire import open_signed
from flockwise.objective import Logistic, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.messages import decode, encode
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.plan import Plan

SETTINGS = Settings(Quadratic(), tradeoff=1.0, max_samples=50, feature_bound=1.0)
BUDGET = Budget(1.0, 1e-4)
CLIP = 0.7


class Always:
    def next_tick(self, updates, now):
        return now + 1


class AnyNoise:
    """Real-valued noise of the right size, by number; what it is drawn from plays no part here."""

    def check(self, event):
        """Any event will do."""

    def draw(self, event, dimension, number):
        return event.scale * np.random.default_rng(number).standard_normal(dimension)


@pytest.fixture
def used(monkeypatch):
    """The points of every release since, in order."""
    return record(monkeypatch)


def new_points(count, first=0):
    marks = (1 + first + np.arange(count)) / 1000
    return Batch(np.stack([marks, np.full(count, 0.5)], axis=1), np.cos(marks * 5000))


def meter(updates, mechanism: MechanismName = "gaussian"):
    return Meter(BUDGET, updates, CLIP, mechanism, on_grid=False)


def one_budget(first, the_meter, ledger: Any = None, store: Any = None, noise: Any = None):
    store = MemoryStore() if store is None else store
    points = joined([first, *store.load().batches])
    gate = MeteredGate(
        the_meter,
        len(points.targets),
        MemoryLedger("me") if ledger is None else ledger,
        AnyNoise() if noise is None else noise,
        start=np.zeros(2),
    )
    protection = Protection(gate, CLIP)
    agent = make_agent(
        "me", SETTINGS.problem(points.features, points.targets), {"you": 1.0}, Always(), protection=protection
    )
    return agent, gate, OneBudget(SETTINGS, points, store, agent, protection, is_private=True)


def batch_gates(batches, updates, make_ledger=None):
    ledgers = []

    def open_gate(place, batch, start):
        event = meter(updates).event(len(batch.targets))
        ledger = MemoryLedger("me")
        ledgers.append(ledger)
        plan = Plan.fitting(BUDGET, event, accountant="zcdp", updates=updates)
        return Gate(plan, ledger, AnyNoise(), start=start), ledger

    return BatchGates(open_gate, batches, np.zeros(2), make_ledger), ledgers


# 0: a tick; above: so many points arrive.
histories = st.lists(st.one_of(st.just(0), st.integers(1, 9)), max_size=40)


@pytest.mark.parametrize(("mechanism", "accountant"), [("gaussian", "zcdp"), ("laplace", "basic")])
@settings(max_examples=60)
@given(history=histories, first=st.integers(1, 9), updates=st.integers(1, 8))
def test_one_budget_covers_every_point_whatever_arrives(mechanism, accountant, history, first, updates):
    with pytest.MonkeyPatch.context() as patch:
        used = record(patch)
        ledger = MemoryLedger("me")
        agent, _, growth = one_budget(new_points(first), meter(updates, mechanism), ledger)
        count = first
        for step in history:
            if step:
                batch = new_points(step, count)
                growth.add(batch.features, batch.targets, 0)
                count += step
            else:
                agent.on_tick(0)
        ticks = history.count(0)
        assert ledger.consumed == min(ticks, updates)  # growth never adds a release
        events = [entry.event for entry in ledger.entries]
        paid = costs(used, events, accountant, BUDGET, CLIP)
        if ticks >= updates:  # and the oldest points have paid for all of them: nothing is left unused
            assert paid[0.001] == pytest.approx(BUDGET.epsilon, rel=1e-6)


@settings(max_examples=60)
@given(history=histories, first=st.integers(1, 9), updates=st.integers(1, 5))
def test_batches_pay_for_themselves_alone(history, first, updates):
    with pytest.MonkeyPatch.context() as patch:
        used = record(patch)
        gates, ledgers = batch_gates([new_points(first)], updates)
        agent = BatchAgent("me", SETTINGS, gates, CLIP, {"you": 1.0}, Always())
        store, count, n_batches, released = MemoryStore(), first, 1, 0
        for step in history:
            if step:
                batch = new_points(step, count)
                agent.add(batch.features, batch.targets, store, 0)
                count, n_batches = count + step, n_batches + 1
            else:
                room = released < n_batches * updates
                assert len(agent.on_tick(0)) == room  # a new batch is a new budget, for its points alone
                agent.prepare(0)
                released += room
        events = [entry.event for ledger in ledgers for entry in ledger.entries]
        paid = costs(used, events, "zcdp", BUDGET, CLIP)
        spent = max(paid.values(), default=0.0)
        assert gates.epsilon_spent == pytest.approx(spent)
        assert gates.consumed == released


def test_more_points_mean_less_noise_at_the_same_price():
    few, many = meter(5).event(3), meter(5).event(30)
    assert many.scale == pytest.approx(few.scale / 10)
    assert many.multiplier == pytest.approx(few.multiplier)


def test_an_agent_that_gets_all_points_later_learns_as_if_it_had_them_all_along(used):
    """After the points have come, its update is that of an agent that began with them."""
    together = new_points(7)
    early, _, _ = one_budget(together, meter(4))
    late, _, growth = one_budget(new_points(3), meter(4))
    growth.add(together.features[3:], together.targets[3:], 0)
    for agent in (early, late):
        agent.on_tick(0)
    np.testing.assert_allclose(late.model, early.model)
    assert used[0] == used[1]


def test_a_restart_has_all_points_and_the_same_account(tmp_path):
    batch = new_points(4, 3)
    with FileStore(tmp_path, "me") as store:
        ledger = MemoryLedger("me")
        agent, gate, growth = one_budget(new_points(3), meter(6), ledger, store)
        agent.on_tick(0)
        growth.add(batch.features, batch.targets, 0)
        agent.on_tick(0)
        spent = gate.epsilon_spent
    again = MemoryLedger("me")
    assert ledger.policy is not None
    again.grant(ledger.policy)
    for entry in ledger.entries:
        again.record(entry)
    with FileStore(tmp_path, "me") as store:
        agent, gate, _ = one_budget(new_points(3), meter(6), again, store)
        assert gate.epsilon_spent == spent
        agent.on_tick(0)
        assert again.entries[-1].event.sensitivity == pytest.approx(2 * CLIP / 7)


def test_growing_data_with_secure_noise():
    secure = dataclasses.replace(meter(3), on_grid=True)
    agent, gate, growth = one_budget(new_points(3), secure, noise=SecureNoise())
    agent.on_tick(0)
    batch = new_points(6, 3)
    growth.add(batch.features, batch.targets, 0)
    while agent.on_tick(0):
        pass
    assert gate.consumed == 3
    assert gate.epsilon_spent == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert gate.epsilon_spent <= BUDGET.epsilon


def test_without_privacy_points_are_simply_added():
    store, first = MemoryStore(), new_points(3)
    agent = make_agent("me", SETTINGS.problem(first.features, first.targets), {}, Always())
    growth = OneBudget(SETTINGS, first, store, agent, is_private=False)
    batch = new_points(2, 3)
    growth.add(batch.features, batch.targets, 0)
    together = joined([first, *store.load().batches])
    expected = make_agent("me", SETTINGS.problem(together.features, together.targets), {}, Always())
    for _ in range(3):
        agent.on_tick(0)
        expected.on_tick(0)
    np.testing.assert_array_equal(agent.model, expected.model)


@pytest.mark.parametrize(
    ("features", "targets", "error"),
    [
        ([[0.1, np.nan]], [1.0], DataError),
        ([[0.1, 0.2]], [np.inf], DataError),
        ([[0.1, 0.2, 0.3]], [1.0], DataError),
        ([[0.1, 0.2]], [1.0, 2.0], DataError),
        (np.empty((0, 2)), [], DataError),
        ([[5.0, 5.0]], [1.0], ObjectiveError),
    ],
)
def test_points_that_do_not_fit_are_refused_whole(features, targets, error):
    store = MemoryStore()
    agent, gate, growth = one_budget(new_points(3), meter(4), store=store)
    with pytest.raises(error):
        growth.add(features, targets, 0)
    assert store.load().batches == []
    agent.on_tick(0)
    assert gate.consumed == 1


def test_an_agent_without_a_budget_gets_no_points_in_a_private_network():
    empty = Batch(np.empty((0, 2)), np.empty(0))
    agent = make_agent("me", SETTINGS.problem(empty.features, empty.targets), {}, Always())
    growth = OneBudget(SETTINGS, empty, MemoryStore(), agent, is_private=True)
    with pytest.raises(PrivacyError, match="has no budget"):
        growth.add([[0.1, 0.2]], [1.0], 0)


def test_a_plan_for_a_fixed_number_of_points_is_refused():
    plan = Plan.fitting(BUDGET, meter(2).event(3), accountant="zcdp", updates=2)
    gate = Gate(plan, MemoryLedger("me"), AnyNoise(), start=np.zeros(2))
    first = new_points(3)
    protection = Protection(gate, CLIP)
    agent = make_agent(
        "me", SETTINGS.problem(first.features, first.targets), {}, Always(), protection=protection
    )
    with pytest.raises(PrivacyError, match="MeteredGate"):
        OneBudget(SETTINGS, first, MemoryStore(), agent, protection, is_private=True)


def test_numbers_go_on_over_batches_and_bytes_stay_the_same():
    gates, ledgers = batch_gates([new_points(2), new_points(3, 2)], updates=2)
    agent = BatchAgent("me", SETTINGS, gates, CLIP, {"you": 1.0}, Always())
    signer = Signer("test", "me", "dp", new_signing_key())
    outbox = BatchOutbox(signer, gates)
    sent = [outbox.last]
    while messages := agent.on_tick(0):
        sent += [outbox.ready(message) for message in messages]
        assert BatchOutbox(signer, gates).last == sent[-1]
        agent.prepare(0)
    assert [one.number for one in sent] == [0, 1, 2, 3, 4]
    assert [ledger.consumed for ledger in ledgers] == [2, 2]
    for one in sent:
        assert decode(open_signed(one.data, len(one.data)).body.payload)[0] == one.number
        assert outbox.knows(one)
        assert not outbox.knows(dataclasses.replace(one, number=9))
    other = Signer("test", "me", "dp", new_signing_key()).signed(3, encode(3, np.ones(2)))
    assert not outbox.knows(Sent(3, other.data))
    with pytest.raises(PrivacyError):
        outbox.take_back(sent[-1])


def test_a_lost_ledger_of_a_batch_is_no_new_budget(tmp_path):
    ledgers = BatchLedgers(tmp_path, "me")
    ledgers.make(0)
    ledgers.make(1)
    ledgers.make(1)  # a crash came before the batch was stored
    ledgers.open(0)
    ledgers.open(1)
    with pytest.raises(LedgerError, match="no ledger"):
        ledgers.open(2)
    ledgers.close()


def test_a_ledger_that_a_crash_left_half_made_is_made_anew(tmp_path):
    ledgers = BatchLedgers(tmp_path, "me")
    (tmp_path / "batch1").mkdir()
    (tmp_path / "batch1" / "ledger.sqlite").touch()
    ledgers.make(1)
    assert ledgers.open(1).policy is None
    ledgers.close()


def test_step_sizes_of_batches_come_from_public_bounds_alone():
    gates, _ = batch_gates([new_points(3)], updates=2)
    with pytest.raises(PrivacyError, match="feature_bound"):
        BatchAgent(
            "me", dataclasses.replace(SETTINGS, feature_bound=None), gates, CLIP, {"you": 1.0}, Always()
        )


def test_a_release_that_came_to_nothing_leaves_no_number_that_is_not_known():
    """The last event of a batch is spent without a message; the next message says the number before."""
    gates, _ = batch_gates([new_points(2), new_points(3, 2)], updates=2)
    agent = BatchAgent("me", SETTINGS, gates, CLIP, {"you": 1.0}, Always())
    signer = Signer("test", "me", "dp", new_signing_key())
    outbox = BatchOutbox(signer, gates)
    (message,) = agent.on_tick(0)
    first = outbox.ready(message)
    with pytest.raises(PrivacyError, match="finite"):
        gates.gate.release_mean(np.zeros((2, 2)), CLIP, lambda noisy, released: np.full(2, np.inf))
    assert gates.is_spent
    assert gates.go_on()
    again = BatchOutbox(signer, gates)
    assert again.last == first
    agent.relearn(*agent._present(), 0)
    (message,) = agent.on_tick(0)
    assert again.ready(message).number == 3
    assert again.knows(first)


@pytest.mark.parametrize("points", [([[7.25, 0.5]], [1.0]), ([[0.1, 0.2]], [0.123456])])
def test_an_error_about_points_tells_nothing_of_them(points):
    """Its text ends in the agent's log; what a simulation says of the same points has their values."""
    settings = Settings(Logistic(), tradeoff=1.0, max_samples=10, feature_bound=1.0)
    with pytest.raises(ObjectiveError, match="do not fit the task") as refused:
        settings.problem(*points)
    assert not any(value in str(refused.value) for value in ("7.2", "0.12", "sample"))
    with pytest.raises(ObjectiveError, match="tradeoff"):
        Settings(Logistic(), tradeoff=-1.0, max_samples=10, feature_bound=1.0).problem(*points)
