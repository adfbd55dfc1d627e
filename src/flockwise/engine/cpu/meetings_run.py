"""Gossip ADMM in compiled sweeps over all agents, on one thread or many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import ClockedRun, RunSettings, State, Status
from flockwise.engine.cpu.kernels import data_term
from flockwise.engine.cpu.meetings_rule import MeetingsRule, draw_edges
from flockwise.engine.cpu.sweeps import Clocks, Network, Team
from flockwise.engine.meetings_state import MeetingsState, check_ideal
from flockwise.engine.state import reverse_edges
from flockwise.method.admm import vectors_sent
from flockwise.method.rules import Meetings


class MeetingsRun(ClockedRun):
    """Exact parallel gossip in numba; the same run for every number of threads."""

    def __init__(self, rule: Meetings, settings: RunSettings, state: State | None = None) -> None:
        check_ideal(settings.conditions)
        super().__init__(rule, settings)
        self._meetings = rule
        self._state = MeetingsState.from_arrays(state) if state else MeetingsState.begin(rule, settings.seed)
        self._clocks = Clocks(self.seed, settings.limit, rule.ids, self.next_ticks, self.updates)
        self._rule = _compiled(rule, self._state)
        draw_edges(self._rule, self._clocks)
        self._team = Team(settings.threads, self._rule.network, rule.start.shape[1], rule.start.dtype)

    @property
    def models(self) -> NDArray[Any]:
        return self._state.models

    @property
    def updates(self) -> NDArray[np.int64]:
        """Ticks of the agent itself; being woken does not count."""
        return self._state.updates

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        return self._state.next_ticks

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        self._team.sweep(max_sweeps, until, self._rule, self._clocks)
        return self.status(until)

    def vectors_sent(self, until: int) -> int:
        return vectors_sent(self._meetings, self.updates)

    def state(self) -> dict[str, NDArray[Any]]:
        return self._state._asdict()


def _compiled(rule: Meetings, state: MeetingsState) -> MeetingsRule:
    edges, dtype = rule.edges, rule.start.dtype
    return MeetingsRule(
        data_term(rule.local),
        dtype.type(rule.penalty),
        rule.gradient_steps,
        rule.data_weights.astype(dtype),
        rule.step_sizes.astype(dtype),
        rule.stiffness.astype(dtype),
        rule.copy_shares.astype(dtype),
        Network(edges.offsets, edges.neighbors),
        reverse_edges(edges.offsets, edges.neighbors),
        np.empty(rule.n_agents, np.int64),
        state,
    )
