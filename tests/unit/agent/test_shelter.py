"""An agent with a gate: what leaves it is what the gate released, and nobody can make it waste its budget."""

import numpy as np
import pytest

from flockwise.agent import Agent, Message, Shelter
from flockwise.errors import PrivacyError
from flockwise.objective import LocalObjective, Logistic
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import Gaussian
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.plan import Plan

UPDATES, CLIP = 3, 1.0


class EverySecond:
    def next_tick(self, updates, now):
        return now + 1


class CountedNoise(SimulatedNoise):
    """Remembers for which releases noise was drawn."""

    def __init__(self):
        super().__init__(0, 0)
        self.drawn = []

    def draw(self, event, dimension, number):
        self.drawn.append(number)
        return super().draw(event, dimension, number)


def sheltered(noise=None, start=(0.0, 0.0)):
    random = np.random.default_rng(0)
    term = LocalObjective(Logistic(), random.normal(size=(4, 2)), np.array([1.0, -1, 1, 1]), 0.1)
    event = Gaussian(2 * CLIP / 4, 1.0)
    plan = Plan.fitting(Budget(1.0, 1e-3), event, accountant="gdp", updates=UPDATES)
    gate = Gate(plan, MemoryLedger("anna"), noise or SimulatedNoise(0, 0), start=start)
    return Agent(
        "anna",
        term,
        np.full(2, 42.0),
        {"ben": 1.0},
        step_size=0.5,
        pull=0.3,
        clock=EverySecond(),
        shelter=Shelter(gate, term, CLIP),
    )


def test_what_leaves_is_what_the_gate_released():
    agent = sheltered()
    assert agent.last_message().model.tolist() == [0.0, 0.0]  # the gate's start, not the 42 it was handed
    for number in range(1, UPDATES + 1):
        [message] = agent.on_tick(number)
        assert message.release is not None
        assert message.release.number == number
        np.testing.assert_array_equal(message.model, message.release.vector)


def test_it_falls_silent_when_the_budget_is_spent_and_still_listens():
    agent = sheltered()
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
    agent = sheltered(noise)
    for now in range(UPDATES):
        assert noise.drawn == list(range(1, now + 2))
        agent.on_tick(now)
        assert noise.drawn == list(range(1, now + 2))  # nothing of the next one before the message has left
        agent.prepare(now)
    assert noise.drawn == list(range(1, UPDATES + 1))


@pytest.mark.parametrize("model", [[np.inf, 0.0], [np.nan, 1.0], [1.0], [[1.0, 2.0]]])
def test_what_is_no_model_is_dropped_and_costs_nothing(model):
    agent = sheltered()
    agent.on_message(Message("ben", 5, np.array(model)), 0)
    assert agent.neighbors["ben"].model is None
    assert len(agent.on_tick(1)) == 1


def test_huge_models_make_no_difference_to_what_is_sent_when():
    agent = sheltered()
    agent.on_message(Message("ben", 1, np.array([1e308, -1e308])), 0)
    with np.errstate(over="ignore", invalid="ignore"):
        assert [len(agent.on_tick(now)) for now in range(UPDATES)] == [1] * UPDATES


def test_a_gate_without_a_start_is_refused():
    with pytest.raises(PrivacyError, match="needs a public start"):
        sheltered(start=None)
