"""Descent by an event queue that drives plain agents one at a time. The oracle.

Three things happen in time, in this order where times are equal: an agent comes back online, a
message arrives, an agent ticks. Ties between ticks go to the lower agent number.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.agent import Agent, GradientReleases, Message
from flockwise.engine.base import ClockedRun, RunSettings, State, Status
from flockwise.engine.conditions import (
    ConditionTable,
    appearance,
    arrival,
    count_extra_models,
    is_online,
    next_return,
    scheduled_tick,
)
from flockwise.engine.state import DescentState, MailState, tail_averages
from flockwise.method.rules import ClippedDescent, Descent, StoredData
from flockwise.objective import LocalUpdate
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import SimulatedNoise
from flockwise.protocol.aggregation import clipped_mean, weighted_mean
from flockwise.randomness.clocks import NEVER

RETURN, ARRIVAL, TICK = range(3)


@dataclass(frozen=True)
class SimulatedClock:
    """An agent's Poisson clock, which stands still while the agent is offline."""

    table: ConditionTable
    seed: np.uint64
    agent: int
    limit: int

    def next_tick(self, updates: int, now: int) -> int | None:
        if updates >= self.limit:
            return None
        time = scheduled_tick(self.table, self.seed, self.agent, updates, now)
        return None if time == NEVER else time


class ReferenceDescent(ClockedRun):
    """Drives n agents by events."""

    def __init__(self, rule: Descent, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings)
        self._descent, self._ids = rule, rule.ids.tolist()
        self._now = -1
        self._events: list[tuple[int, int, int, int, Any]] = []
        self._n_events = 0
        self._vectors = 0
        self._restored = None if state is None else DescentState.from_arrays(state)
        self._agents = [self._make_agent(i) for i in range(rule.n_agents)]
        self._sent = [appearance(self.table, self.seed, number) for number in self._ids]
        noise = rule.noise
        self._tail_start = 0 if noise is None else noise.tail_start
        self._tail_sums = None if noise is None else np.zeros(rule.start.shape)
        if state is None or self._restored is None:
            self._send_starts()
        else:
            self._restore(self._restored)
            self._tail_sums = self._restored.tail_sums
            self._now = int(state["now"])
            # Of each update and neighbor, and those handed over to agents that came back.
            edges, starts_are_counted = rule.edges, True
            self._vectors = int(self._restored.updates @ edges.counts) + count_extra_models(
                self.table, self.seed, rule.ids, edges.offsets, edges.neighbors, starts_are_counted, self._now
            )
        for i, agent in enumerate(self._agents):
            self._schedule_tick(i, agent)

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do everything that happens up to `until`; there is never anything left to do."""
        for i in range(len(self._agents)):
            self._schedule_returns(i, self._now, until)
        while self._events and self._events[0][0] <= until:
            time, kind, index, _, message = heapq.heappop(self._events)
            if kind == RETURN:
                self._come_back(index, time)
            elif kind == ARRIVAL:
                self._agents[index].on_message(message, time)
            else:
                self._tick(index, time)
        self._now = max(self._now, until)
        return self.status(until)

    @property
    def models(self) -> NDArray[Any]:
        return np.stack([agent.model for agent in self._agents])

    def shown_models(self) -> NDArray[Any]:
        """In a private run, the averages of the agents' later releases."""
        if self._tail_sums is None:
            return self.models
        return tail_averages(self.models, self.updates, self._tail_start, self._tail_sums)

    @property
    def updates(self) -> NDArray[np.int64]:
        return np.array([agent.updates for agent in self._agents], np.int64)

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        ticks = [NEVER if agent.next_tick is None else agent.next_tick for agent in self._agents]
        return np.array(ticks, np.int64)

    def vectors_sent(self, until: int) -> int:
        """Counted one by one, with the start of every agent that has appeared."""
        count = self._vectors
        if not self._descent.start_is_public:
            starts = [appearance(self.table, self.seed, number) for number in self._ids]
            count += sum(
                len(agent.neighbors)
                for agent, time in zip(self._agents, starts, strict=True)
                if time <= until
            )
        return count

    def state(self) -> dict[str, NDArray[Any]]:
        mail = None if self.settings.conditions.are_ideal else self._mail_state()
        state = DescentState(self.models, self.next_ticks, self.updates, mail, self._tail_sums)
        return state.to_arrays()

    def _make_agent(self, i: int) -> Agent:
        descent, local = self._descent, self._descent.local
        assert not isinstance(local, StoredData)
        objective = local.at(i)
        return Agent(
            i,
            LocalUpdate(objective, float(descent.step_sizes[i]), float(descent.pulls[i])),
            descent.start[i],
            descent.edges.around(i),
            SimulatedClock(self.table, self.seed, self._ids[i], self.settings.limit),
            self._make_releases(i, objective),
            neighbor_mean=clipped_mean if isinstance(descent, ClippedDescent) else weighted_mean,
        )

    def _make_releases(self, i: int, objective: Any) -> GradientReleases | None:
        """The agent's gate as it was after its updates; none without privacy, and none without samples."""
        noise = self._descent.noise
        plan = None if noise is None else noise.plan_of(i)
        if noise is None or plan is None:
            return None
        ledger, state = MemoryLedger(str(self._ids[i])), self._restored
        done = 0 if state is None else int(state.updates[i])
        released = self._descent.start[i] if state is None else state.models[i]
        ledger.restore(plan.to_json(), noise.events_of(i, noise.n_before + done), released)
        gate = Gate(plan, ledger, SimulatedNoise(int(self.seed), self._ids[i]), start=self._descent.start[i])
        return GradientReleases(gate, objective, noise.clip)

    def _neighbors_of(self, i: int) -> list[int]:
        return list(self._descent.edges.around(i))

    def _push(self, time: int, kind: int, index: int, message: Message | None = None) -> None:
        self._n_events += 1
        heapq.heappush(self._events, (int(time), kind, index, self._n_events, message))

    def _schedule_tick(self, i: int, agent: Agent) -> None:
        if agent.next_tick is not None:
            self._push(agent.next_tick, TICK, i)

    def _schedule_returns(self, i: int, after: int, until: int) -> None:
        time = next_return(self.table, self.seed, self._ids[i], after, until)
        while time < NEVER:
            self._push(time, RETURN, i)
            time = next_return(self.table, self.seed, self._ids[i], time, until)

    def _send_starts(self) -> None:
        """Message 0: known without a message if it is public, else broadcast when the agent appears."""
        for i, agent in enumerate(self._agents):
            if self._sent[i] == NEVER:
                continue
            if self._descent.start_is_public:
                for j in self._neighbors_of(i):
                    self._push(self._sent[i], ARRIVAL, j, agent.last_message())
            else:
                self._post(i, agent.last_message(), self._sent[i])

    def _post(self, i: int, message: Message, now: int) -> None:
        for j in self._neighbors_of(i):
            time = arrival(self.table, self.seed, self._ids[i], message.number, self._ids[j], now)
            if time < NEVER:
                self._push(time, ARRIVAL, j, message)

    def _tick(self, i: int, now: int) -> None:
        agent = self._agents[i]
        for message in agent.on_tick(now):
            if self._tail_sums is not None and message.number > self._tail_start:
                self._tail_sums[i] += message.model
            self._sent[i] = now
            self._vectors += len(agent.neighbors)
            self._post(i, message, now)
        self._schedule_tick(i, agent)

    def _come_back(self, i: int, now: int) -> None:
        """Every neighbor that is online hands over its last model at once."""
        for j in self._neighbors_of(i):
            if self._sent[j] < now and is_online(self.table, self.seed, self._ids[j], now):
                self._vectors += 1
                self._agents[i].on_message(self._agents[j].last_message(), now)

    def _restore(self, state: DescentState) -> None:
        offsets, neighbors = self._descent.edges.offsets, self._descent.edges.neighbors
        edges = np.repeat(np.arange(len(self._agents)), np.diff(offsets))
        for i, agent in enumerate(self._agents):
            agent.model = state.models[i]
            agent.updates = int(state.updates[i])
            agent.next_tick = None if state.next_ticks[i] == NEVER else int(state.next_ticks[i])
        if state.mail is None:
            for i, j in zip(edges.tolist(), neighbors.tolist(), strict=True):
                self._agents[i].on_message(self._agents[j].last_message(), 0)
            return
        mail = state.mail
        self._sent = mail.sent.tolist()
        for e, (i, j) in enumerate(zip(edges.tolist(), neighbors.tolist(), strict=True)):
            if mail.numbers[e] >= 0:
                self._agents[i].on_message(Message(j, int(mail.numbers[e]), mail.inbox[e]), 0)
        for e, time, number, model in zip(
            mail.pending_edges, mail.pending_arrivals, mail.pending_numbers, mail.pending_models, strict=True
        ):
            self._push(time, ARRIVAL, int(edges[e]), Message(int(neighbors[e]), int(number), model))

    def _mail_state(self) -> MailState:
        offsets, neighbors = self._descent.edges.offsets, self._descent.edges.neighbors
        size, dtype = self._descent.start.shape[1], self._descent.start.dtype
        position = {}
        numbers = np.full(neighbors.size, -1, np.int64)
        inbox = np.zeros((neighbors.size, size), dtype)
        for i, agent in enumerate(self._agents):
            for e in range(offsets[i], offsets[i + 1]):
                held = agent.neighbors[int(neighbors[e])]
                position[i, int(neighbors[e])] = e
                if held.model is not None:
                    numbers[e], inbox[e] = held.number, held.model
        pending = sorted(event for event in self._events if event[1] == ARRIVAL)
        return MailState(
            np.array(self._sent, np.int64),
            numbers,
            inbox,
            np.array([position[index, m.sender] for _, _, index, _, m in pending], np.int64),
            np.array([time for time, *_ in pending], np.int64),
            np.array([m.number for *_, m in pending], np.int64),
            np.array([m.model for *_, m in pending], dtype).reshape(len(pending), size),
        )
