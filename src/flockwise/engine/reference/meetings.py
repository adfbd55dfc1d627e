"""Gossip ADMM, one tick after the other in order of time. The oracle."""

from __future__ import annotations

import heapq

from flockwise.engine.base import MeetingsRunBase, RunSettings, State, Status
from flockwise.engine.state import NOBODY, chosen_edge, reverse_edges
from flockwise.method.admm import COPY, OWN, agree, part_of
from flockwise.method.rules import Meetings
from flockwise.randomness.clocks import NEVER, tick_gap


class ReferenceMeetings(MeetingsRunBase):
    """A queue of ticks; of equal ones the lower agent number comes first."""

    def __init__(self, rule: Meetings, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings, state)
        self._reverse = reverse_edges(rule.edges.offsets, rule.edges.neighbors)
        self._parts = [part_of(rule, i) for i in range(rule.n_agents)]
        self._queue = [(int(tick), i) for i, tick in enumerate(self.next_ticks) if tick < NEVER]
        heapq.heapify(self._queue)

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do all ticks up to `until`."""
        while self._queue and self._queue[0][0] <= until:
            _, agent = heapq.heappop(self._queue)
            offsets, number = self._meetings.edges.offsets, self.ids[agent]
            self.meet(agent, chosen_edge(self.seed, number, self.updates[agent], offsets, agent))
            self._schedule(agent)
        return self.status(until)

    def meet(self, agent: int, edge: int) -> None:
        """The agent and the neighbor along `edge` minimize their parts, then update their edge."""
        self._minimize(agent)
        if edge == NOBODY:
            return
        partner = int(self._meetings.edges.neighbors[edge])
        self._minimize(partner)
        opposite = self._reverse[edge]
        self._agree_on(agent, edge, opposite)
        self._agree_on(partner, opposite, edge)

    def _minimize(self, agent: int) -> None:
        models, copies, auxiliary, duals = self._state[:4]
        edges = slice(*self._meetings.edges.offsets[agent : agent + 2])
        models[agent], copies[edges] = self._parts[agent].minimize(
            models[agent], auxiliary[edges], duals[edges]
        )

    def _agree_on(self, owner: int, edge: int, opposite: int) -> None:
        """z and λ of the owner's model, at the owner's end and at the other end of the edge."""
        models, copies, auxiliary, duals = self._state[:4]
        shared, duals[edge, OWN], duals[opposite, COPY] = agree(
            models[owner], copies[opposite], duals[edge, OWN], duals[opposite, COPY], self._meetings.penalty
        )
        auxiliary[edge, OWN] = auxiliary[opposite, COPY] = shared

    def _schedule(self, agent: int) -> None:
        self.updates[agent] += 1
        if self.updates[agent] >= self.settings.limit:
            self.next_ticks[agent] = NEVER
            return
        self.next_ticks[agent] += tick_gap(self.seed, self.ids[agent], self.updates[agent])
        heapq.heappush(self._queue, (int(self.next_ticks[agent]), agent))
