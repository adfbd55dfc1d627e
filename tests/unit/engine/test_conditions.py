"""Delays, losses and absences behave as they are described."""

import numpy as np
import pytest

from flockwise.engine.conditions import (
    Conditions,
    advance_clock,
    appearance,
    arrival,
    catches_up,
    is_online,
    next_return,
)
from flockwise.errors import SimulationError
from flockwise.randomness.clocks import NEVER, TIME_UNIT

SEED = np.uint64(4)
UNIT = TIME_UNIT


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delay": -1}, "delay must be a number from 0 to below 1e6, got delay=-1"),
        ({"delay_kind": "gamma"}, "delay_kind must be 'fixed' or 'exponential', got delay_kind='gamma'"),
        ({"loss": 1.0}, "loss must be a number from 0 to below 1, got loss=1.0"),
        ({"offline_share": float("nan")}, "offline_share must be a number from 0 to below 1"),
        ({"offline_length": 0}, "offline_length must be a number from 1e-6"),
    ],
)
def test_bad_conditions_are_refused(wrong, message):
    with pytest.raises(SimulationError, match=message):
        Conditions(**wrong)


def test_agents_that_do_not_exist_cannot_join():
    with pytest.raises(SimulationError, match="joins names agent 9, but agents are 0 to 3"):
        Conditions(joins={9: 1.0}).check_agents(4)


def test_a_share_of_all_messages_is_lost():
    # 40,000 coins: within five standard errors of 30 %.
    table = Conditions(loss=0.3).table(np.arange(200))
    lost = [arrival(table, SEED, i, 1, j, 0) == NEVER for i in range(200) for j in range(200)]
    assert np.mean(lost) == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 40_000))


def test_a_message_travels_for_a_fixed_or_a_random_time():
    fixed = Conditions(delay=0.75).table(np.arange(3))
    assert arrival(fixed, SEED, 0, 1, 1, 5 * UNIT) == 5 * UNIT + 3 * UNIT // 4
    random = Conditions(delay=2.0, delay_kind="exponential").table(np.arange(20_000))
    times = np.array([arrival(random, SEED, 0, 1, j, 0) for j in range(20_000)]) / UNIT
    # Mean and standard deviation of an exponential of mean 2, five standard errors.
    assert times.mean() == pytest.approx(2.0, abs=5 * 2 / np.sqrt(20_000))
    assert times.std() == pytest.approx(2.0, abs=5 * 2 * np.sqrt(2 / 20_000))


def test_agents_are_offline_for_a_share_of_the_time():
    table = Conditions(offline_share=0.25, offline_length=2.0).table(np.arange(100))
    online = [is_online(table, SEED, i, slot * 2 * UNIT + 5) for i in range(100) for slot in range(200)]
    assert np.mean(online) == pytest.approx(0.75, abs=5 * np.sqrt(0.1875 / 20_000))


def test_the_clock_stands_still_while_offline():
    table = Conditions(offline_share=0.5, offline_length=1.0).table(np.arange(1))
    start, gap = 0, 5 * UNIT + 123
    end = advance_clock(table, SEED, 0, start, gap)
    assert is_online(table, SEED, 0, end)
    slots = [is_online(table, SEED, 0, slot * UNIT) for slot in range(end // UNIT)]
    # Whole slots online before the last one, and what went by in the last one.
    assert sum(slots) * UNIT + (end - end // UNIT * UNIT) == gap


def test_messages_to_an_offline_agent_are_lost():
    table = Conditions(leaves={1: 3.0}, joins={2: 4.0}).table(np.arange(3))
    assert arrival(table, SEED, 0, 1, 1, 2 * UNIT) == 2 * UNIT
    assert arrival(table, SEED, 0, 1, 1, 3 * UNIT) == NEVER
    assert arrival(table, SEED, 0, 1, 2, 3 * UNIT) == NEVER
    assert arrival(table, SEED, 0, 1, 2, 4 * UNIT) == 4 * UNIT


def test_returns_are_the_moments_after_an_absence():
    table = Conditions(offline_share=0.5, offline_length=1.0, joins={0: 2.5}).table(np.arange(2))
    returns, time = [], next_return(table, SEED, 0, -1, 60 * UNIT)
    while time < NEVER:
        returns.append(time)
        time = next_return(table, SEED, 0, time, 60 * UNIT)
    moments = [m for m in range(121) if is_online(table, SEED, 0, m * UNIT // 2)]
    expected = [m * UNIT // 2 for m in moments if m > 0 and not is_online(table, SEED, 0, m * UNIT // 2 - 1)]
    assert returns == expected
    assert returns[0] == appearance(table, SEED, 0)


def test_catching_up_needs_a_neighbor_online():
    table = Conditions(joins={0: 5.0}, leaves={1: 4.0}).table(np.arange(3))
    assert not catches_up(table, SEED, 0, 1, -1, 10 * UNIT)
    assert catches_up(table, SEED, 0, 2, -1, 10 * UNIT)
    assert not catches_up(table, SEED, 0, 2, 5 * UNIT, 10 * UNIT)
