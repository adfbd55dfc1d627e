"""An agent with a gate: what leaves it is what the gate released, and nobody can make it waste its budget."""

import numpy as np
import pytest

from flockwise.agent import Agent, GradientReleases, Message
from flockwise.errors import PrivacyError
from flockwise.objective import LocalObjective, LocalUpdate, Logistic
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.plan import Plan

UPDATES, CLIP, SAMPLES = 3, 1.0, 4
PLAN = Plan.fitting(Budget(1.0, 1e-3), "gaussian", UPDATES, accountant="gdp")


class EverySecond:
    def next_tick(self, updates, now):
        return now + 1


class CountedNoise(SimulatedNoise):
    """Remembers for which releases noise was drawn."""

    def __init__(self):
        super().__init__(0, 0)
        self.drawn = []

    def draw(self, event, number):
        self.drawn.append(number)
        return super().draw(event, number)


def local_objective(count=SAMPLES, seed=0):
    random = np.random.default_rng(seed)
    targets = np.where(np.arange(count) == 1, -1.0, 1.0)
    return LocalObjective(Logistic(), random.normal(size=(count, 2)), targets, 0.1)


def private_agent(noise=None, start=(0.0, 0.0), ledger=None):
    local = local_objective()
    gate = Gate(PLAN, ledger or MemoryLedger("anna"), noise or SimulatedNoise(0, 0), start=start)
    return Agent(
        "anna",
        LocalUpdate(local, 0.5, 0.3),
        np.full(2, 42.0),
        {"ben": 1.0},
        EverySecond(),
        GradientReleases(gate, local, CLIP),
    )


def test_what_leaves_is_what_the_gate_released():
    agent = private_agent()
    assert agent.last_message().model.tolist() == [0.0, 0.0]  # the gate's start, not the 42 it was handed
    for number in range(1, UPDATES + 1):
        [message] = agent.on_tick(number)
        assert message.release is not None
        assert message.release.number == number
        np.testing.assert_array_equal(message.model, message.release.vector)


def test_every_message_is_charged_at_what_its_samples_need():
    """Their number and their bound set the sensitivity, the plan sets the ratio of noise to it."""
    ledger = MemoryLedger("anna")
    agent = private_agent(ledger=ledger)
    for now in range(UPDATES):
        agent.on_tick(now)
    events = [PLAN.event(number, 2 * CLIP / SAMPLES, 2) for number in range(1, UPDATES + 1)]
    assert [entry.event for entry in ledger.entries] == events


def test_it_falls_silent_when_the_budget_is_spent_and_still_listens():
    agent = private_agent()
    for now in range(UPDATES):
        agent.on_tick(now)
    model = agent.model
    assert agent.on_tick(UPDATES) == []
    assert agent.next_tick is None
    agent.on_message(Message("ben", 1, np.ones(2)), 9)
    assert agent.neighbors["ben"].number == 1
    np.testing.assert_array_equal(agent.model, model)


def test_noise_is_drawn_before_the_tick():
    noise = CountedNoise()
    agent = private_agent(noise)
    for now in range(UPDATES):
        assert noise.drawn == list(range(1, now + 2))
        agent.on_tick(now)
        assert noise.drawn == list(range(1, now + 2))  # nothing of the next one before the message has left
        agent.prepare()
    assert noise.drawn == list(range(1, UPDATES + 1))


def test_an_update_is_equation_6():
    """A clipped mean with the gate's noise, the penalty without any, from the released model."""
    agent = private_agent()
    agent.on_message(Message("ben", 1, np.array([1.0, -2.0])), 0)
    for number in range(1, UPDATES + 1):
        before = agent.model
        rows = local_objective().sample_gradients(before)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / CLIP, 1)
        event = PLAN.event(number, 2 * CLIP / SAMPLES, 2)
        noisy = rows.mean(axis=0) + SimulatedNoise(0, 0).draw(event, number)
        gradient = noisy + local_objective().penalty_gradient(before)
        agent.on_tick(number)
        expected = 0.5 * before + 0.5 * (np.array([1.0, -2.0]) - 0.3 * gradient)
        np.testing.assert_allclose(agent.model, expected, rtol=1e-12)


def test_more_samples_mean_less_noise_at_the_same_price():
    ledger = MemoryLedger("anna")
    agent = private_agent(ledger=ledger)
    agent.on_tick(1)
    agent.prepare()
    more = local_objective(10 * SAMPLES, seed=1)
    agent.set_data(LocalUpdate(more, 0.5, 0.3), 2)
    agent.on_tick(2)
    few, many = (entry.event for entry in ledger.entries)
    assert many.scale == pytest.approx(few.scale / 10)
    assert many.multiplier == pytest.approx(few.multiplier)
    assert ledger.consumed == 2


def test_noise_that_was_drawn_for_fewer_samples_is_not_used():
    """It would be too much noise here, and too little where there are fewer samples."""
    noise = CountedNoise()
    agent = private_agent(noise)
    assert noise.drawn == [1]
    agent.set_data(LocalUpdate(local_objective(2 * SAMPLES, seed=1), 0.5, 0.3), 0)
    assert noise.drawn == [1, 1]
    agent.on_tick(1)
    assert noise.drawn == [1, 1]


def test_new_samples_give_no_new_budget():
    agent = private_agent()
    for now in range(UPDATES + 1):
        agent.on_tick(now)
    agent.set_data(LocalUpdate(local_objective(2 * SAMPLES, seed=1), 0.5, 0.3), UPDATES)
    assert agent.next_tick is not None  # it tries again, in vain
    assert agent.on_tick(UPDATES + 1) == []
    assert agent.updates == UPDATES


@pytest.mark.parametrize("model", [[np.inf, 0.0], [np.nan, 1.0], [1.0], [[1.0, 2.0]]])
def test_what_is_no_model_is_dropped_and_costs_nothing(model):
    agent = private_agent()
    agent.on_message(Message("ben", 5, np.array(model)), 0)
    assert agent.neighbors["ben"].model is None
    assert len(agent.on_tick(1)) == 1


def test_huge_models_make_no_difference_to_what_is_sent_when():
    agent = private_agent()
    agent.on_message(Message("ben", 1, np.array([1e308, -1e308])), 0)
    with np.errstate(over="ignore", invalid="ignore"):
        assert [len(agent.on_tick(now)) for now in range(UPDATES)] == [1] * UPDATES


def test_a_gate_without_a_start_is_refused():
    with pytest.raises(PrivacyError, match="needs a public start"):
        private_agent(start=None)
