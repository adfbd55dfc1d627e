"""Gossip ADMM by agents that meet one at a time, in order of time. The oracle."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import MeetingsRunBase, RunSettings, State, Status
from flockwise.engine.state import NOBODY, MeetingsState, chosen_edge
from flockwise.method.admm import COPY, OWN, AgentPart, agree, offer, part_of
from flockwise.method.rules import Meetings
from flockwise.randomness.clocks import NEVER, tick_gap


@dataclass
class EdgeEnd:
    """State that an agent holds for one neighbor: a copy of its model, and z and λ for either model."""

    copy: NDArray[Any]
    auxiliary: NDArray[Any]
    duals: NDArray[Any]


@dataclass
class GossipAgent:
    """One agent: its part of Eq. (2), its model, its end of every edge, and its clock."""

    part: AgentPart
    model: NDArray[Any]
    next_tick: int
    updates: int
    ends: dict[int, EdgeEnd] = field(default_factory=dict)

    def minimize(self) -> None:
        ends = list(self.ends.values())
        shape = len(ends), 2, self.model.size
        auxiliary, duals = (
            np.array([getattr(end, name) for end in ends], self.model.dtype).reshape(shape)
            for name in ("auxiliary", "duals")
        )
        self.model[:], copies = self.part.minimize(self.model, auxiliary, duals)
        for end, copy in zip(ends, copies, strict=True):
            end.copy[:] = copy

    def offers(self, neighbor: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Its message to a neighbor: about its own model, and about its copy of the neighbor's."""
        end = self.ends[neighbor]
        return (
            offer(self.model, end.duals[OWN], self.part.penalty),
            offer(end.copy, end.duals[COPY], self.part.penalty),
        )

    def hear(self, neighbor: int, offers: tuple[NDArray[Any], NDArray[Any]]) -> None:
        """Takes in what the neighbor offered about its own model, and about its copy of this agent's."""
        end, penalty = self.ends[neighbor], self.part.penalty
        of_theirs, of_mine = offers
        end.auxiliary[OWN], end.duals[OWN] = agree(self.model, end.duals[OWN], of_mine, penalty)
        end.auxiliary[COPY], end.duals[COPY] = agree(end.copy, end.duals[COPY], of_theirs, penalty)


class ReferenceMeetings(MeetingsRunBase):
    """A queue of ticks; of equal ones the lower agent number comes first."""

    def __init__(self, rule: Meetings, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings, state)
        self._agents = [self._make_agent(i) for i in range(rule.n_agents)]
        self._queue: list[tuple[int, int, int]] = []
        for i in range(rule.n_agents):
            self._schedule(i)

    @property
    def held(self) -> MeetingsState:
        ends = [end for agent in self._agents for end in agent.ends.values()]
        begun = self._begun
        return MeetingsState(
            np.stack([agent.model for agent in self._agents]),
            np.array([end.copy for end in ends], begun.copies.dtype).reshape(begun.copies.shape),
            np.array([end.auxiliary for end in ends], begun.duals.dtype).reshape(begun.duals.shape),
            np.array([end.duals for end in ends], begun.duals.dtype).reshape(begun.duals.shape),
            np.array([agent.next_tick for agent in self._agents], np.int64),
            np.array([agent.updates for agent in self._agents], np.int64),
        )

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do all ticks up to `until`."""
        edges = self._meetings.edges
        while self._queue and self._queue[0][0] <= until:
            _, number, i = heapq.heappop(self._queue)
            edge = chosen_edge(self.seed, number, self._agents[i].updates, edges.offsets, i)
            self.meet(i, None if edge == NOBODY else int(edges.neighbors[edge]))
            self._count_tick(i)
        return self.status(until)

    def meet(self, waking: int, woken: int | None) -> None:
        """The agent and the neighbor that it wakes minimize their parts, then both update their edge."""
        agent = self._agents[waking]
        agent.minimize()
        if woken is None:
            return
        partner = self._agents[woken]
        partner.minimize()
        sent, answered = agent.offers(woken), partner.offers(waking)
        agent.hear(woken, answered)
        partner.hear(waking, sent)

    def _make_agent(self, i: int) -> GossipAgent:
        rule, begun = self._meetings, self._begun
        agent = GossipAgent(
            part_of(rule, i), begun.models[i].copy(), int(begun.next_ticks[i]), int(begun.updates[i])
        )
        for e in range(rule.edges.offsets[i], rule.edges.offsets[i + 1]):
            end = EdgeEnd(begun.copies[e].copy(), begun.auxiliary[e].copy(), begun.duals[e].copy())
            agent.ends[int(rule.edges.neighbors[e])] = end
        return agent

    def _count_tick(self, i: int) -> None:
        agent = self._agents[i]
        agent.updates += 1
        if agent.updates >= self.settings.limit:
            agent.next_tick = NEVER
            return
        agent.next_tick += int(tick_gap(self.seed, self.ids[i], agent.updates))
        self._schedule(i)

    def _schedule(self, i: int) -> None:
        if self._agents[i].next_tick < NEVER:
            heapq.heappush(self._queue, (self._agents[i].next_tick, int(self.ids[i]), i))
