"""Network conditions: delay, loss, agents offline for periods, joining and leaving.

Everything here is a pure function of the seed: whether agent 7 is online at a time, whether its
update number 12 reaches agent 3 and when. So every engine sees the same network. Time is an
integer (flockwise.randomness.clocks) inside and a number of mean intervals between ticks outside.

Absences come in slots of one length: in each slot an agent is offline with a given probability.
An agent's clock stands still while it is offline. Messages that arrive at an offline agent are
lost; on its return it gets the last model of every neighbor that is online then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from flockwise.checks import Allowed, Delay, ShareBelowOne, check_fields
from flockwise.code_cache import compiled
from flockwise.errors import SimulationError
from flockwise.randomness.clocks import (
    CHURN,
    DELAY,
    LOSS,
    NEVER,
    TIME_UNIT,
    UNIT_BITS,
    exponential,
    tick_gap,
    uniform_word,
)

HALF_UNIT_BITS = UNIT_BITS // 2

OfflineLength: TypeAlias = Annotated[float, Ge(1e-6), Lt(1e6), Allowed("a number from 1e-6 to below 1e6")]


@dataclass(frozen=True)
class Conditions:
    """How the simulated network behaves; times in mean intervals between two ticks of an agent.

    delay: how long a message travels, always or, with delay_kind="exponential", on average.
    loss: the probability that a message never arrives (each receiver on its own).
    offline_share, offline_length: in each slot of that length an agent is offline with that probability.
    joins, leaves: the time at which an agent (by index) joins or leaves for good.
    """

    delay: Delay = 0.0
    delay_kind: Literal["fixed", "exponential"] = "fixed"
    loss: ShareBelowOne = 0.0
    offline_share: ShareBelowOne = 0.0
    offline_length: OfflineLength = 5.0
    joins: Mapping[int, float] = field(default_factory=dict)
    leaves: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, SimulationError)
        for name, times in (("joins", self.joins), ("leaves", self.leaves)):
            for agent, time in times.items():
                if not 0 <= time < 1e6:
                    raise SimulationError(f"{name} of agent {agent} must be in [0, 1e6), got {time}")

    @property
    def are_ideal(self) -> bool:
        """The paper's network: everyone is there, and a broadcast arrives at once."""
        return not (self.delay or self.loss or self.offline_share or self.joins or self.leaves)

    def check_agents(self, n_agents: int) -> None:
        """Refuse agents that are not there."""
        for name, times in (("joins", self.joins), ("leaves", self.leaves)):
            for agent in times:
                if not 0 <= agent < n_agents:
                    raise SimulationError(f"{name} names agent {agent}, but agents are 0 to {n_agents - 1}")

    def table(self, ids: NDArray[np.int64]) -> ConditionTable:
        """The same in integers, for the functions below and agents with these numbers."""
        size = int(ids.max(initial=-1)) + 1
        return ConditionTable(
            delay=_units(self.delay),
            delay_is_random=self.delay_kind == "exponential" and self.delay > 0,
            loss_threshold=_threshold(self.loss),
            offline_threshold=_threshold(self.offline_share),
            slot_length=_units(self.offline_length),
            joins=_per_agent(self.joins, size, 0),
            leaves=_per_agent(self.leaves, size, NEVER),
        )


class ConditionTable(NamedTuple):
    """Conditions in integers: times in units, by an agent's number; probabilities as 64-bit thresholds."""

    delay: int
    delay_is_random: bool
    loss_threshold: np.uint64
    offline_threshold: np.uint64
    slot_length: int
    joins: NDArray[np.int64]
    leaves: NDArray[np.int64]


def _units(time: float) -> int:
    return int(time * TIME_UNIT)


def _threshold(probability: float) -> np.uint64:
    return np.uint64(int(probability * 2**64))


def _per_agent(times: Mapping[int, float], size: int, default: int) -> NDArray[np.int64]:
    """By an agent's number; agents that run elsewhere are left out."""
    table = np.full(size, default, np.int64)
    for agent, time in times.items():
        if agent < size:
            table[agent] = _units(time)
    return table


@compiled()
def slot_is_offline(table, seed, agent, slot):
    """Whether the agent is away for the whole of this slot."""
    if table.offline_threshold == 0:
        return False
    return uniform_word(seed, agent, slot, CHURN, 0) < table.offline_threshold


@compiled()
def is_online(table, seed, agent, time):
    """Whether the agent is there at this time."""
    if time < table.joins[agent] or time >= table.leaves[agent]:
        return False
    return not slot_is_offline(table, seed, agent, time // table.slot_length)


@compiled()
def advance_clock(table, seed, agent, now, gap):
    """The time at which a clock that stands still while its agent is offline has gone on by `gap`."""
    time = max(now, table.joins[agent])
    if table.offline_threshold > 0:
        while True:
            slot = time // table.slot_length
            slot_end = (slot + 1) * table.slot_length
            if slot_is_offline(table, seed, agent, slot):
                time = slot_end
            elif time + gap < slot_end:
                break
            else:
                gap -= slot_end - time
                time = slot_end
    time += gap
    return time if time < table.leaves[agent] else NEVER


@compiled()
def appearance(table, seed, agent):
    """When the agent is online for the first time, and sends the model that it starts from."""
    return advance_clock(table, seed, agent, 0, 0)


@compiled()
def scheduled_tick(table, seed, agent, update, now):
    """When the agent does its update number `update`, if the one before was `now`."""
    return advance_clock(table, seed, agent, now, tick_gap(seed, agent, update))


@compiled()
def travel_time(table, seed, sender, number, receiver):
    """How long this message is under way."""
    if not table.delay_is_random:
        return table.delay
    unit_mean = exponential(seed, sender, number, DELAY, receiver)
    return (unit_mean >> HALF_UNIT_BITS) * (table.delay >> HALF_UNIT_BITS)


@compiled()
def arrival(table, seed, sender, number, receiver, sent):
    """When this message arrives, or NEVER if it is lost or its receiver is away."""
    loss = table.loss_threshold
    if loss > 0 and uniform_word(seed, sender, number, LOSS, receiver) < loss:
        return NEVER
    time = sent + travel_time(table, seed, sender, number, receiver)
    return time if is_online(table, seed, receiver, time) else NEVER


@compiled()
def next_return(table, seed, agent, after, until):
    """The first time in (after, until] at which the agent comes (back) online, or NEVER."""
    if after >= until:
        return NEVER
    time = after
    joins = table.joins[agent]
    if time < joins:
        if joins > until:
            return NEVER
        if is_online(table, seed, agent, joins):
            return joins
        time = joins
    if table.offline_threshold == 0:
        return NEVER
    while True:
        slot = time // table.slot_length
        time = (slot + 1) * table.slot_length
        if time > until:
            return NEVER
        if slot_is_offline(table, seed, agent, slot) and is_online(table, seed, agent, time):
            return time


@compiled()
def catches_up(table, seed, receiver, sender, after, until):
    """Whether the receiver returns in (after, until] while the sender is online to hand over its model."""
    time = next_return(table, seed, receiver, after, until)
    while time <= until:
        if is_online(table, seed, sender, time):
            return True
        time = next_return(table, seed, receiver, time, until)
    return False


@compiled()
def count_extra_models(table, seed, ids, offsets, neighbors, start_is_public, until):
    """Models sent up to `until` besides those of updates: first broadcasts, and to agents that return."""
    count = 0
    for position in range(offsets.shape[0] - 1):
        agent = ids[position]
        if not start_is_public and appearance(table, seed, agent) <= until:
            count += offsets[position + 1] - offsets[position]
        # Nobody has appeared before time 0, so whoever is there by then is handed nothing.
        time = next_return(table, seed, agent, 0, until)
        while time <= until:
            for e in range(offsets[position], offsets[position + 1]):
                sender = ids[neighbors[e]]
                if appearance(table, seed, sender) < time and is_online(table, seed, sender, time):
                    count += 1
            time = next_return(table, seed, agent, time, until)
    return count
