"""The reference engine of gossip ADMM: one tick after the other in order of time. The oracle."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.conditions import ConditionTable
from flockwise.engine.gossip_state import NOBODY, GossipState, check_ideal, chosen_edge
from flockwise.engine.state import reverse_edges
from flockwise.engine.sweeps import Network
from flockwise.method.admm import COPY, OWN, Gossip, agree
from flockwise.randomness.clocks import NEVER, tick_gap


class GossipReferenceEngine:
    """A queue of ticks, ties to the lower agent index; slow, and plain to read."""

    def __init__(
        self,
        gossip: Gossip,
        table: ConditionTable,
        seed: int,
        limit: int,
        *,
        ideal: bool,
        state: Mapping[str, NDArray[Any]] | None = None,
        threads: int | None = None,
    ) -> None:
        check_ideal(ideal)
        graph = gossip.problem.graph
        self._gossip, self._seed, self._limit = gossip, np.uint64(seed), limit
        self._state = GossipState.from_arrays(state) if state else GossipState.begin(gossip, seed)
        self._network = Network(graph.offsets, graph.neighbors)
        self._reverse = reverse_edges(graph.offsets, graph.neighbors)
        self._parts = [gossip.part(i) for i in range(graph.n_agents)]
        self._queue = [(int(tick), i) for i, tick in enumerate(self.next_ticks) if tick < NEVER]
        heapq.heapify(self._queue)

    @property
    def models(self) -> NDArray[Any]:
        return self._state.models

    @property
    def results(self) -> NDArray[Any]:
        return self.models

    @property
    def updates(self) -> NDArray[np.int64]:
        """Ticks of the agent itself; being woken does not count."""
        return self._state.updates

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        return self._state.next_ticks

    def advance(self, until: int, max_sweeps: int = 2**62) -> bool:
        """Do all ticks up to `until`; there is never anything left to do."""
        while self._queue and self._queue[0][0] <= until:
            _, agent = heapq.heappop(self._queue)
            self.meet(agent, chosen_edge(self._seed, agent, self.updates[agent], self._network))
            self._schedule(agent)
        return True

    def vectors_sent(self, until: int) -> int:
        """Four per tick that has a neighbor to wake, and the first broadcasts."""
        return self._gossip.vectors_sent(self.updates)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, to be saved."""
        return self._state._asdict()

    def meet(self, agent: int, edge: int) -> None:
        """The agent and the neighbor along `edge` minimise their parts, then update their edge."""
        self._minimize(agent)
        if edge == NOBODY:
            return
        partner = int(self._network.neighbors[edge])
        self._minimize(partner)
        opposite = self._reverse[edge]
        self._agree_on(agent, edge, opposite)
        self._agree_on(partner, opposite, edge)

    def _minimize(self, agent: int) -> None:
        models, copies, auxiliary, duals = self._state[:4]
        edges = slice(*self._network.offsets[agent : agent + 2])
        models[agent], copies[edges] = self._parts[agent].minimize(
            models[agent], auxiliary[edges], duals[edges]
        )

    def _agree_on(self, owner: int, edge: int, opposite: int) -> None:
        """z and λ of the owner's model, at the owner's end and at the other end of the edge."""
        models, copies, auxiliary, duals = self._state[:4]
        shared, duals[edge, OWN], duals[opposite, COPY] = agree(
            models[owner], copies[opposite], duals[edge, OWN], duals[opposite, COPY], self._gossip.penalty
        )
        auxiliary[edge, OWN] = auxiliary[opposite, COPY] = shared

    def _schedule(self, agent: int) -> None:
        self.updates[agent] += 1
        if self.updates[agent] >= self._limit:
            self.next_ticks[agent] = NEVER
            return
        self.next_ticks[agent] += tick_gap(self._seed, agent, self.updates[agent])
        heapq.heappush(self._queue, (int(self.next_ticks[agent]), agent))
