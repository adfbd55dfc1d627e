"""Growing data: whatever arrives and whenever, no sample pays more than the budget."""

import dataclasses
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.network.paying import costs, record
from tests.network.signers import NETWORK, Signer
from tests.network.world import MemoryWorld

from flockwise.data import Samples
from flockwise.data.samples import joined
from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import DataError, LedgerError, PrivacyError
from flockwise.graph import complete_graph
from flockwise.net.outbox import Outbox
from flockwise.net.store import FileStore, Sent
from flockwise.net.wire import open_signed
from flockwise.objective import Logistic, Objective, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Rows
from flockwise.privacy.messages import decode
from flockwise.privacy.noise import SecureNoise
from flockwise.runtime.durable import BatchLedgers
from flockwise.runtime.own_model import checked_samples
from flockwise.runtime.testing import AgentMemory, define_agents

BUDGET = Budget(1.0, 1e-4)
CLIP = 0.7
NONE = Samples(np.empty((0, 2)), np.empty(0))


@pytest.fixture
def used(monkeypatch):
    """The samples of every release since, in order."""
    return record(monkeypatch)


def new_samples(count, first=0):
    marks = (1 + first + np.arange(count)) / 1000
    return Samples(np.stack([marks, np.full(count, 0.5)], axis=1), np.cos(marks * 5000))


def budget(updates, growth: Literal["one_budget", "batches"] = "one_budget", mechanism="gaussian"):
    return OwnBudget(
        epsilon=BUDGET.epsilon,
        delta=BUDGET.delta,
        updates=updates,
        clip=CLIP,
        growth=growth,
        mechanism=mechanism,
    )


class GrowingAgent(MemoryWorld):
    """One agent that is given samples. Its neighbor never runs, and the test itself ticks it."""

    def __init__(self, first, privacy=None, *, noise=None, memory=None):
        objective = Objective(Quadratic(), max_samples=50, feature_bound=1.0)
        shared = NetworkSettings(objective, "none" if privacy is None else "dp")
        samples = {"me": first, "you": NONE}
        definitions = define_agents(shared, complete_graph(2), samples, privacy, network=NETWORK)
        super().__init__(definitions, noise=noise)
        if memory is not None:
            self.memories["me"] = memory
        self.start("me")
        self.agent: Any = self["me"].node.agent
        self.gates: Any = self["me"].gates
        self.outbox: Any = self["me"].node._outbox

    @property
    def mine(self):
        """What would be on its disk."""
        return self.memory("me")

    def add(self, batch):
        self["me"].add_data(batch.features, batch.targets)

    def tick(self):
        return self.agent.on_tick(0)


# 0: a tick; above: so many samples arrive.
histories = st.lists(st.one_of(st.just(0), st.integers(1, 9)), max_size=40)


@pytest.mark.parametrize(("mechanism", "accountant"), [("gaussian", "gdp"), ("laplace", "pld")])
@settings(max_examples=60)
@given(history=histories, first=st.integers(1, 9), updates=st.integers(1, 8))
def test_one_budget_covers_every_sample_whatever_arrives(mechanism, accountant, history, first, updates):
    with pytest.MonkeyPatch.context() as patch:
        used = record(patch)
        me = GrowingAgent(new_samples(first), budget(updates, mechanism=mechanism))
        count = first
        for step in history:
            if step:
                me.add(new_samples(step, count))
                count += step
            else:
                me.tick()
        ticks, ledger = history.count(0), me.mine.ledger
        assert ledger.consumed == min(ticks, updates)  # growth never adds a release
        events = [entry.event for entry in ledger.entries]
        paid = costs(used, events, accountant, BUDGET, CLIP)
        if ticks >= updates:  # and the oldest samples have paid for all of them: nothing is left unused
            assert paid[0.001] == pytest.approx(BUDGET.epsilon, rel=1e-6)


@settings(max_examples=60)
@given(history=histories, first=st.integers(1, 9), updates=st.integers(1, 5))
def test_batches_pay_for_themselves_alone(history, first, updates):
    with pytest.MonkeyPatch.context() as patch:
        used = record(patch)
        me = GrowingAgent(new_samples(first), budget(updates, "batches"))
        count, n_batches, released = first, 1, 0
        for step in history:
            if step:
                me.add(new_samples(step, count))
                count, n_batches = count + step, n_batches + 1
            else:
                room = released < n_batches * updates
                assert len(me.tick()) == room  # a new batch is a new budget, for its samples alone
                me.agent.prepare()
                released += room
        events = [entry.event for ledger in me.mine.ledgers for entry in ledger.entries]
        paid = costs(used, events, "gdp", BUDGET, CLIP)
        spent = max(paid.values(), default=0.0)
        assert me.gates.epsilon_spent == pytest.approx(spent)
        assert me.gates.consumed == released


@pytest.mark.parametrize("noise", [None, lambda number: SecureNoise()], ids=["simulated", "secure"])
def test_more_samples_mean_less_noise_at_the_same_price(noise):
    me = GrowingAgent(new_samples(3), budget(5), noise=noise)
    me.tick()
    me.add(new_samples(27, 3))
    me.tick()
    few, many = (entry.event for entry in me.mine.ledger.entries)
    assert many.scale == pytest.approx(few.scale / 10)
    assert many.multiplier == pytest.approx(few.multiplier)


def test_an_agent_that_gets_samples_later_learns_as_if_it_had_them_all_along(used):
    """After the samples have come, its update is that of an agent that began with them."""
    together = new_samples(7)
    early, late = GrowingAgent(together, budget(4)), GrowingAgent(new_samples(3), budget(4))
    late.add(Samples(together.features[3:], together.targets[3:]))
    for one in (early, late):
        one.tick()
    np.testing.assert_allclose(late.agent.model, early.agent.model)
    assert used[0] == used[1]


def test_a_restart_has_all_samples_and_the_same_account(tmp_path):
    memory = AgentMemory("me")
    with FileStore(tmp_path, "me") as memory.store:
        me = GrowingAgent(new_samples(3), budget(6), memory=memory)
        me.tick()
        me.add(new_samples(4, 3))
        me.tick()
        spent = me.gates.epsilon_spent
    with FileStore(tmp_path, "me") as memory.store:
        again = GrowingAgent(new_samples(3), budget(6), memory=memory)
        assert again.gates.epsilon_spent == spent
        again.tick()
        assert memory.ledger.entries[-1].event.sensitivity == pytest.approx(2 * CLIP / 7)


def test_growing_data_with_secure_noise():
    me = GrowingAgent(new_samples(3), budget(3), noise=lambda number: SecureNoise())
    me.tick()
    me.add(new_samples(6, 3))
    while me.tick():
        pass
    assert me.gates.consumed == 3
    assert me.gates.epsilon_spent == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert me.gates.epsilon_spent <= BUDGET.epsilon


def test_without_privacy_samples_are_simply_added():
    first, second = new_samples(3), new_samples(2, 3)
    grown = GrowingAgent(first)
    grown.add(second)
    expected = GrowingAgent(joined([first, *grown.mine.store.load().batches]))
    for _ in range(3):
        grown.tick()
        expected.tick()
    np.testing.assert_array_equal(grown.agent.model, expected.agent.model)


@pytest.mark.parametrize(
    ("features", "targets"),
    [
        ([[0.1, np.nan]], [1.0]),
        ([[0.1, 0.2]], [np.inf]),
        ([[0.1, 0.2, 0.3]], [1.0]),
        ([[0.1, 0.2]], [1.0, 2.0]),
        (np.empty((0, 2)), []),
    ],
)
@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_samples_that_do_not_fit_are_refused_whole(growth, features, targets):
    me = GrowingAgent(new_samples(3), budget(4, growth))
    with pytest.raises(DataError):
        me.add(Samples(features, targets))
    assert len(me.mine.ledgers) == 1
    assert me.mine.store.load().batches == []
    me.tick()
    assert me.gates.consumed == 1


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_samples_longer_than_the_bound_are_scaled_in_what_is_released_and_kept_as_they_are(used, growth):
    """Refused, they would be missing in the own model, where the bound plays no part."""
    me = GrowingAgent(new_samples(3), budget(1, growth))
    me.add(Samples(np.array([[30.0, 40.0]]), np.ones(1)))
    while me.tick():
        me.agent.prepare()
    assert used[-1][-1] == pytest.approx(0.6)
    assert me["me"].samples.features[-1].tolist() == [30.0, 40.0]


def test_an_agent_without_a_budget_gets_no_samples_in_a_private_network():
    with pytest.raises(PrivacyError, match="has no budget"):
        GrowingAgent(NONE, budget(4)).add(new_samples(1))


def test_numbers_go_on_over_batches_and_bytes_stay_the_same():
    me = GrowingAgent(new_samples(2), budget(2, "batches"))
    me.add(new_samples(3, 2))
    outbox, sent = me.outbox, [me.outbox.last]
    while messages := me.tick():
        sent += [outbox.ready(message) for message in messages]
        assert Outbox(outbox._signer, me.mine.store, np.zeros(2), me.gates).last == sent[-1]
        me.agent.prepare()
    assert [one.number for one in sent] == [0, 1, 2, 3, 4]
    assert [ledger.consumed for ledger in me.mine.ledgers] == [2, 2]
    for one in sent:
        assert decode(open_signed(one.data, len(one.data)).body.payload)[0] == one.number
        assert outbox.knows(one)
        assert not outbox.knows(dataclasses.replace(one, number=9))
    assert not outbox.knows(Sent(3, Signer("me").model(3, np.ones(2), privacy="dp")))
    with pytest.raises(PrivacyError):
        outbox.take_back(sent[-1])


def test_a_batch_whose_ledger_is_lost_gets_no_new_budget(tmp_path):
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
    assert ledgers.open(1).plan is None
    ledgers.close()


def test_after_a_release_that_failed_the_next_message_has_a_number_that_is_known():
    """The last event of a batch is spent without a message; the next message says the number before."""
    me = GrowingAgent(new_samples(2), budget(2, "batches"))
    me.add(new_samples(3, 2))
    (message,) = me.tick()
    first = me.outbox.ready(message)
    with pytest.raises(PrivacyError, match="finite"):
        me.gates.gate.release(Rows.of(np.zeros((2, 2)), CLIP), lambda noisy, released: np.full(2, np.inf))
    assert me.gates.gate.is_spent
    me.agent.prepare()
    assert me.gates.place == 1
    again = Outbox(me.outbox._signer, me.mine.store, np.zeros(2), me.gates)
    assert again.last == first
    (message,) = me.tick()
    assert again.ready(message).number == 3
    assert again.knows(first)


@pytest.mark.parametrize(
    "samples",
    [
        ([[7.25, 0.5]], [0.123456]),
        ([[0.1, 7.25]], [np.nan]),
        ([[7.25, np.inf]], [1.0]),
        ([[7.25, 0.1, 0.123]], [1.0]),
    ],
    ids=["a target that is no label", "no number", "no finite number", "another dimension"],
)
def test_an_error_about_samples_tells_nothing_of_them(samples):
    """Its text ends in the agent's log."""
    features, targets = samples
    with pytest.raises(DataError) as refused:
        checked_samples(Objective(Logistic(), max_samples=10), features, targets, 2)
    assert not any(value in str(refused.value) for value in ("7.2", "0.12"))


# Gates in a queue


def test_a_queue_of_gates_goes_through_all_batches_in_their_order():
    """Each begins where the one before ended, and what is spent is that of the one that spent most."""
    me = GrowingAgent(new_samples(2), budget(2, "batches"))
    gates = me.gates
    for count in (3, 4):
        me.add(new_samples(count, 10 * count))
    released, spent = [np.zeros(2)], []
    while messages := me.tick():
        (message,) = messages
        assert gates.last_number == gates.consumed == len(released)
        np.testing.assert_array_equal(gates.released, message.model)
        released.append(message.model)
        spent.append(gates.epsilon_spent)
        me.agent.prepare()
    assert [ledger.consumed for ledger in gates.ledgers] == [2, 2, 2]
    assert [2 * CLIP / ledger.entries[0].event.sensitivity for ledger in gates.ledgers] == pytest.approx(
        [2, 3, 4]
    )
    assert gates.place == 2
    assert not gates.go_on()
    np.testing.assert_array_equal(gates.vectors(), released[1:])
    np.testing.assert_array_equal(gates.vectors(4), released[5:])
    # No sample is in the releases of two batches, so a second batch that is spent costs no more than one.
    assert spent == sorted(spent)
    assert spent[1:] == [spent[1]] * 5
    assert spent[1] == pytest.approx(BUDGET.epsilon)


def test_a_queue_of_gates_is_the_same_after_a_restart_at_any_release():
    memory, first = AgentMemory("me"), new_samples(2)
    me = GrowingAgent(first, budget(2, "batches"), memory=memory)
    for count in (3, 4):
        me.add(new_samples(count, 10 * count))
    for done in range(1, 7):
        me.tick()
        before = (me.gates.last_number, me.gates.epsilon_spent, me.gates.released.tolist(), me.outbox.last)
        last = me.outbox._signer.model(me.gates.last_number, me.gates.released)
        me = GrowingAgent(first, budget(2, "batches"), memory=memory)
        after = (me.gates.last_number, me.gates.epsilon_spent, me.gates.released.tolist())
        assert after == before[:3]
        assert me.outbox.last == last
        assert (me.gates.consumed, me.gates.place) == (done, min(done // 2, 2))
    assert me.tick() == []


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_how_samples_are_paid_for_cannot_change_once_some_were_added(growth):
    """Else samples that all paid from one budget would get another one each, or the other way round."""
    memory, first = AgentMemory("me"), new_samples(2)
    GrowingAgent(first, budget(2, growth), memory=memory).add(new_samples(3, 2))
    other = "batches" if growth == "one_budget" else "one_budget"
    with pytest.raises(LedgerError, match="stays as it was when samples were added"):
        GrowingAgent(first, budget(2, other), memory=memory)
    assert GrowingAgent(first, budget(2, growth), memory=memory).gates.consumed == 0
