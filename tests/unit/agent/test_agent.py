"""An agent is a pure function of its own data and of what its neighbors sent."""

import importlib
import pkgutil

import numpy as np
import pytest

import flockwise
from flockwise.agent import Agent, Message
from flockwise.errors import SimulationError
from flockwise.objective import LocalObjective, LocalUpdate, Logistic
from flockwise.privacy.gate import Gate


class FixedClock:
    """Ticks every 10 units, three times."""

    def next_tick(self, updates, now):
        return now + 10 if updates < 3 else None


def local_objective(seed=1):
    random = np.random.default_rng(seed)
    return LocalObjective(Logistic(), random.normal(size=(5, 2)), np.array([1.0, -1, 1, 1, -1]), 0.1)


def make_agent(weights, model=(0.0, 0.0)):
    return Agent("me", LocalUpdate(local_objective(), 0.5, 0.8), np.array(model), weights, FixedClock())


def test_update_is_equation_4():
    agent = make_agent({"anna": 1.0, "bo": 3.0}, model=(0.3, -0.2))
    agent.on_message(Message("anna", 1, np.array([1.0, 2.0])), 0)
    agent.on_message(Message("bo", 1, np.array([-1.0, 0.5])), 0)
    before, gradient = agent.model, local_objective().gradient(agent.model)
    [message] = agent.on_tick(10)
    mean = (np.array([1.0, 2.0]) + 3 * np.array([-1.0, 0.5])) / 4
    expected = 0.5 * before + 0.5 * (mean - 0.8 * gradient)
    np.testing.assert_allclose(agent.model, expected, rtol=1e-14)
    assert message.sender == "me"
    assert message.number == 1
    assert np.array_equal(message.model, agent.model)


def test_clock_runs_until_it_ends():
    agent = make_agent({})
    ticks = []
    while agent.next_tick is not None:
        ticks.append(agent.next_tick)
        agent.on_tick(agent.next_tick)
    assert ticks == [10, 20, 30]
    assert agent.updates == 3


def test_the_highest_number_wins_whatever_the_order_of_arrival():
    agent = make_agent({"anna": 1.0})
    for number in (2, 5, 3):
        agent.on_message(Message("anna", number, np.full(2, float(number))), 0)
    assert agent.neighbors["anna"].number == 5
    assert agent.neighbors["anna"].model is not None
    assert np.array_equal(agent.neighbors["anna"].model, [5.0, 5.0])


def test_a_neighbor_never_heard_from_does_not_shrink_the_model():
    """Its weight is left out: the mean is that of the neighbors heard from."""
    heard = make_agent({"anna": 2.0}, model=(1.0, 1.0))
    partly = make_agent({"anna": 2.0, "silent": 50.0}, model=(1.0, 1.0))
    for agent in (heard, partly):
        agent.on_message(Message("anna", 1, np.array([4.0, 4.0])), 0)
        agent.on_tick(10)
    assert np.array_equal(heard.model, partly.model)


def test_without_any_neighbor_heard_the_agent_learns_alone():
    agent = make_agent({"silent": 1.0}, model=(0.4, 0.1))
    before, gradient = agent.model, local_objective().gradient(agent.model)
    agent.on_tick(10)
    np.testing.assert_allclose(agent.model, before - 0.5 * 0.8 * gradient, rtol=1e-14)


def test_a_stranger_is_refused():
    with pytest.raises(SimulationError, match="from 'eve', not a neighbor"):
        make_agent({"anna": 1.0}).on_message(Message("eve", 1, np.zeros(2)), 0)


def test_new_data_count_from_the_next_update_on():
    """Its objective, step size and pull are those of the new samples; model and neighbors stay."""
    agent = make_agent({"anna": 1.0}, model=(0.3, -0.2))
    agent.on_message(Message("anna", 1, np.array([1.0, 2.0])), 0)
    other = local_objective(seed=2)
    agent.set_data(LocalUpdate(other, 0.25, 0.4), 5)
    agent.on_tick(10)
    before = np.array([0.3, -0.2])
    expected = 0.75 * before + 0.25 * (np.array([1.0, 2.0]) - 0.4 * other.gradient(before))
    np.testing.assert_allclose(agent.model, expected, rtol=1e-14)


def test_new_data_wake_an_agent_that_had_stopped_if_its_clock_allows_it():
    class Renewed:
        limit = 1

        def next_tick(self, updates, now):
            return now + 10 if updates < self.limit else None

    clock = Renewed()
    agent = Agent("me", LocalUpdate(local_objective(), 0.5, 0.8), np.zeros(2), {}, clock)
    agent.on_tick(10)
    agent.set_data(LocalUpdate(local_objective(seed=2), 0.5, 0.8), 20)
    assert agent.next_tick is None
    clock.limit = 2
    agent.set_data(LocalUpdate(local_objective(seed=3), 0.5, 0.8), 30)
    assert agent.next_tick == 40


@pytest.mark.parametrize("kind", [Agent, Gate])
def test_nothing_is_made_by_a_subclass_of_an_agent_or_a_gate(kind):
    """What may leave an agent is said in one place each, which no subclass can change."""
    assert kind.__final__
    for module in pkgutil.walk_packages(flockwise.__path__, "flockwise."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name not in ("torch", "triton"):  # which other environments have
                    raise
    assert not [one for one in kind.__subclasses__() if one.__module__.startswith("flockwise.")]
