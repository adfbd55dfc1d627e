"""Gossip ADMM in compiled sweeps: fire every tick that no earlier one can touch.

The tick of agent i that wakes agent j reads and writes what these two hold, nothing else. An
earlier tick can matter only if it is of i or j, or of a neighbor of either, which might wake them.
So the tick may fire as soon as it comes before the next ticks of all of these; two ticks that may
fire at once share no agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from flockwise.code_cache import compiled
from flockwise.engine.base import MeetingsRunBase, RunSettings, State, Status
from flockwise.engine.cpu.kernels import REORDER, Ahead, DataTerm, add_local_gradient, data_term
from flockwise.engine.cpu.sweeps import Clocks, Network, Team, fire, fires_again, may_fire, ticks_before
from flockwise.engine.state import NOBODY, MeetingsState, chosen_edge, reverse_edges
from flockwise.method.admm import COPY, OWN
from flockwise.method.rules import Meetings
from flockwise.randomness.clocks import NEVER, tick_gap


class MeetingsRule(NamedTuple):
    """The numbers of flockwise.method.admm, by agent or by directed edge, and what the agents hold.

    edges[i] is the one along which i wakes a neighbor at its next tick; reverse[e] is the opposite of e.
    """

    term: DataTerm
    penalty: Any
    gradient_steps: int
    data_weights: NDArray[Any]
    step_sizes: NDArray[Any]
    stiffness: NDArray[Any]
    copy_shares: NDArray[Any]
    network: Network
    reverse: NDArray[np.int64]
    edges: NDArray[np.int64]
    state: MeetingsState


@compiled()
def draw_edges(rule, clocks):
    """Everyone's choice for its next tick."""
    for agent in range(clocks.updates.shape[0]):
        rule.edges[agent] = chosen_edge(
            clocks.seed, clocks.ids[agent], clocks.updates[agent], rule.network.offsets, agent
        )


@overload(may_fire)
def _meetings_may_fire(rule, agent, clocks):
    if rule.instance_class is not MeetingsRule:
        return None

    def before_neighbors_of_partner(rule, agent, clocks):
        network, edge = rule.network, rule.edges[agent]
        if edge == NOBODY:
            return True
        partner = np.int64(network.neighbors[edge])
        for e in range(network.offsets[partner], network.offsets[partner + 1]):
            if ticks_before(np.int64(network.neighbors[e]), agent, clocks):
                return False
        return True

    return before_neighbors_of_partner


@overload(fires_again)
def _meetings_fires_again(rule, agent, clocks):
    if rule.instance_class is MeetingsRule:
        # It may wake another neighbor now, whose own neighbors may be firing.
        return lambda rule, agent, clocks: False
    return None


@overload(fire)
def _meetings_fire(rule, agent, following, later, clocks, vectors, draws):
    if rule.instance_class is MeetingsRule:
        return lambda rule, agent, following, later, clocks, vectors, draws: meet(
            rule, agent, following, clocks, vectors
        )
    return None


@njit(fastmath=REORDER)
def minimize_part(agent, following, rule, vectors):
    """`AgentPart.minimize`: gradient steps on the own model, then the copies in closed form."""
    network, state, penalty = rule.network, rule.state, rule.penalty
    model, step = state.models[agent], rule.step_sizes[agent]
    weight, stiffness = rule.data_weights[agent], rule.stiffness[agent]
    size = model.shape[0]
    pull, gradient = vectors[0, :size], vectors[1, :size]
    first, last = network.offsets[agent], network.offsets[agent + 1]
    pull[:] = 0
    for e in range(first, last):
        share, auxiliary, duals = rule.copy_shares[e], state.auxiliary[e], state.duals[e]
        for d in range(size):
            pull[d] += penalty * auxiliary[OWN, d] - duals[OWN, d]
            pull[d] += share * (penalty * auxiliary[COPY, d] - duals[COPY, d])
    ahead = Ahead(following, state.models, network.neighbors, 0, 0)
    for _ in range(rule.gradient_steps):
        add_local_gradient(rule.term, agent, model, gradient, vectors[2], ahead)
        for d in range(size):
            model[d] -= step * (weight * gradient[d] + stiffness * model[d] - pull[d])
    for e in range(first, last):
        share, auxiliary, duals, copy = (
            rule.copy_shares[e],
            state.auxiliary[e],
            state.duals[e],
            state.copies[e],
        )
        for d in range(size):
            copy[d] = share * model[d] + (1 - share) * (auxiliary[COPY, d] - duals[COPY, d] / penalty)


@njit
def agree_on(owner, edge, opposite, penalty, state):
    """`agree` on the owner's model, at the owner's end and at the other end of the edge."""
    model, copy = state.models[owner], state.copies[opposite]
    for d in range(model.shape[0]):
        own_dual, copy_dual = state.duals[edge, OWN, d], state.duals[opposite, COPY, d]
        shared = ((own_dual + copy_dual) / penalty + model[d] + copy[d]) / 2
        state.auxiliary[edge, OWN, d] = state.auxiliary[opposite, COPY, d] = shared
        state.duals[edge, OWN, d] = own_dual + penalty * (model[d] - shared)
        state.duals[opposite, COPY, d] = copy_dual + penalty * (copy[d] - shared)


@njit
def meet(rule, agent, following, clocks, vectors):
    """One tick: both ends minimize their parts, then update their edge."""
    edge = rule.edges[agent]
    if edge == NOBODY:
        minimize_part(agent, following, rule, vectors)
    else:
        partner, opposite = np.int64(rule.network.neighbors[edge]), rule.reverse[edge]
        minimize_part(agent, partner, rule, vectors)
        minimize_part(partner, following, rule, vectors)
        agree_on(agent, edge, opposite, rule.penalty, rule.state)
        agree_on(partner, opposite, edge, rule.penalty, rule.state)
    schedule(agent, rule, clocks)


@njit
def schedule(agent, rule, clocks):
    """Count the update, draw the next tick and the neighbor to wake then."""
    done = clocks.updates[agent] + 1
    clocks.updates[agent] = done
    if done >= clocks.limit:
        clocks.next_ticks[agent] = NEVER
        return
    clocks.next_ticks[agent] += tick_gap(clocks.seed, clocks.ids[agent], done)
    rule.edges[agent] = chosen_edge(clocks.seed, clocks.ids[agent], done, rule.network.offsets, agent)


class MeetingsRun(MeetingsRunBase):
    """Exact parallel gossip in numba; the same run for every number of threads."""

    def __init__(self, rule: Meetings, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings, state)
        self._clocks = Clocks(self.seed, settings.limit, rule.ids, self.next_ticks, self.updates)
        self._rule = _compiled(rule, self._begun)
        draw_edges(self._rule, self._clocks)
        self._team = Team(settings.threads, self._rule.network, rule.start.shape[1], rule.start.dtype)

    @property
    def held(self) -> MeetingsState:
        return self._begun  # the kernels change these arrays in place

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        self._team.sweep(max_sweeps, until, self._rule, self._clocks)
        return self.status(until)


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
