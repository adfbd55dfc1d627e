"""The cpu engine of gossip ADMM: the compiled sweeps over all agents, on one thread or many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.conditions import ConditionTable
from flockwise.engine.gossip_rule import GossipRule, draw_edges
from flockwise.engine.gossip_state import GossipState, check_ideal
from flockwise.engine.state import reverse_edges
from flockwise.engine.sweeps import Clocks, Network, Team
from flockwise.method.admm import Gossip


class GossipCpuEngine:
    """Exact parallel gossip in numba; the same run for every number of threads."""

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
        self._gossip = gossip
        self._state = GossipState.from_arrays(state) if state else GossipState.begin(gossip, seed)
        self._clocks = Clocks(np.uint64(seed), limit, self._state.next_ticks, self._state.updates)
        self._rule = _rule(gossip, self._state)
        draw_edges(self._rule, self._clocks)
        self._team = Team(threads, self._rule.network, gossip.start.shape[1], gossip.start.dtype)

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
        """Do all ticks up to `until`, or `max_sweeps` sweeps; says whether all are done."""
        self._team.sweep(max_sweeps, until, self._rule, self._clocks)
        return not (self.next_ticks <= until).any()

    def vectors_sent(self, until: int) -> int:
        """Four per tick that has a neighbor to wake, and the first broadcasts."""
        return self._gossip.vectors_sent(self.updates)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, to be saved."""
        return self._state._asdict()


def _rule(gossip: Gossip, state: GossipState) -> GossipRule:
    graph, dtype = gossip.problem.graph, gossip.start.dtype
    return GossipRule(
        gossip.kernel_term(),
        dtype.type(gossip.penalty),
        gossip.gradient_steps,
        gossip.data_weights.astype(dtype),
        gossip.step_sizes.astype(dtype),
        gossip.stiffness.astype(dtype),
        gossip.copy_shares.astype(dtype),
        Network(graph.offsets, graph.neighbors),
        reverse_edges(graph.offsets, graph.neighbors),
        np.empty(graph.n_agents, np.int64),
        state,
    )
