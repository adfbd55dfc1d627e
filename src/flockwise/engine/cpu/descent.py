"""Descent in compiled sweeps, Eq. (4) and Eq. (6): an agent may fire before all its neighbors do."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from numba.extending import overload
from numpy.typing import DTypeLike, NDArray

from flockwise.code_cache import compiled
from flockwise.engine.base import ClockedRun, RunSettings, State, Status, models_sent
from flockwise.engine.conditions import ConditionTable
from flockwise.engine.cpu.kernels import (
    REORDER,
    Ahead,
    AnchorTerm,
    ClippedTerm,
    DataTerm,
    add_local_gradient,
    data_term,
    prefetch,
    prefetch_range,
    prefetch_term,
)
from flockwise.engine.cpu.links import (
    NEVER_HEARD,
    Direct,
    Mail,
    collect,
    exchange,
    gather,
    has_room,
    post,
    send_start,
)
from flockwise.engine.cpu.sweeps import Clocks, Network, Team, fire, fires_again, may_fire
from flockwise.engine.state import DescentState, MailState, reverse_edges, tail_averages
from flockwise.method.rules import Descent, DescentNoise, Edges, LocalAnchors, LocalData
from flockwise.privacy.mechanisms import MECHANISMS, Norm
from flockwise.randomness.noise import draw_noise

FIRST_CAPACITY = 2


class NoNoise(NamedTuple):
    """No noise: Eq. (4)."""


class PlannedNoise(NamedTuple):
    """scale of agent i's update k = multipliers[schedules[i], k]·sensitivities[i].

    tail_sums: of each agent's released models from update `tail_start` on.
    """

    sampler: Any
    multipliers: NDArray[np.float64]
    n_before: int
    schedules: NDArray[np.int32]
    sensitivities: NDArray[np.float64]
    tail_start: int
    tail_sums: NDArray[np.float64]


def planned_noise(
    noise: DescentNoise | None, tail_sums: NDArray[np.float64] | None
) -> NoNoise | PlannedNoise:
    """The plan as arrays."""
    if noise is None or tail_sums is None:
        return NoNoise()
    return PlannedNoise(
        MECHANISMS[noise.schedule.mechanism].sampler(),
        read_only(noise.multipliers),
        noise.n_before,
        read_only(noise.schedule.rows),
        read_only(noise.sensitivities),
        noise.tail_start,
        tail_sums,
    )


def add_noise(noise, agent, clocks, gradient, draws):
    """Add the noise of the agent's next update to its mean gradient; `draws` is scratch room."""
    raise NotImplementedError("compiled code only")


@overload(add_noise, jit_options={"forceinline": True})
def _compile_noise(noise, agent, clocks, gradient, draws):
    if noise.instance_class is NoNoise:
        return lambda noise, agent, clocks, gradient, draws: None

    def add_planned(noise, agent, clocks, gradient, draws):
        update, size = clocks.updates[agent], gradient.shape[0]
        scale = noise.multipliers[noise.schedules[agent], update] * noise.sensitivities[agent]
        # Releases are numbered from 1; that of a start comes first.
        number = noise.n_before + update + 1
        draw_noise(noise.sampler, clocks.seed, clocks.ids[agent], number, size, draws)
        for d in range(size):
            gradient[d] += scale * draws[d]

    return add_planned


def prefetch_noise(noise, following, later, clocks):
    """Start to read what the noise of the agents to come is made of, and the next one's tail sums."""
    raise NotImplementedError("compiled code only")


@overload(prefetch_noise, jit_options={"forceinline": True})
def _compile_prefetch_noise(noise, following, later, clocks):
    if noise.instance_class is NoNoise:
        return lambda noise, following, later, clocks: None

    def prefetch_plan(noise, following, later, clocks):
        prefetch(noise.schedules, later)  # pyright: ignore[reportCallIssue]
        prefetch(noise.sensitivities, later)  # pyright: ignore[reportCallIssue]
        if clocks.updates[following] >= noise.tail_start:
            size = noise.tail_sums.shape[1]
            prefetch_range(noise.tail_sums, following * size, (following + 1) * size)

    return prefetch_plan


def keep_release(noise, agent, clocks, new_model):
    """Count a model that is about to be released in the agent's tail average."""
    raise NotImplementedError("compiled code only")


@overload(keep_release, jit_options={"forceinline": True})
def _compile_tail(noise, agent, clocks, new_model):
    if noise.instance_class is NoNoise:
        return lambda noise, agent, clocks, new_model: None

    def add_to_tail(noise, agent, clocks, new_model):
        if clocks.updates[agent] >= noise.tail_start:
            for d in range(new_model.shape[0]):
                noise.tail_sums[agent, d] += new_model[d]

    return add_to_tail


class DescentRule(NamedTuple):
    """Local terms, network, α_i and μ·c_i of Eq. (4), everyone's model, and the noise of Eq. (6)."""

    term: DataTerm | ClippedTerm | AnchorTerm
    network: Network
    link: Direct | Mail
    step_sizes: NDArray[Any]
    pulls: NDArray[Any]
    models: NDArray[Any]
    noise: NoNoise | PlannedNoise


@overload(may_fire, jit_options={"forceinline": True})
def _descent_may_fire(rule, agent, clocks):
    if rule.instance_class is DescentRule:
        return lambda rule, agent, clocks: has_room(rule.link, rule.network, agent)
    return None


@overload(fires_again, jit_options={"forceinline": True})
def _descent_fires_again(rule, agent, clocks):
    if rule.instance_class is DescentRule:
        # No neighbor of an agent that fires does so at the same time.
        return lambda rule, agent, clocks: may_fire(rule, agent, clocks)
    return None


@njit(forceinline=True)
def prefetch_numbers(rule, agent, clocks):
    """Start to read what is kept of this agent beside its model and samples."""
    prefetch(rule.step_sizes, agent)  # pyright: ignore[reportCallIssue]
    prefetch(rule.pulls, agent)  # pyright: ignore[reportCallIssue]
    prefetch(clocks.ids, agent)  # pyright: ignore[reportCallIssue]
    prefetch(clocks.updates, agent)  # pyright: ignore[reportCallIssue]
    prefetch(clocks.next_ticks, agent)  # pyright: ignore[reportCallIssue]
    prefetch_term(rule.term, agent)


@njit(forceinline=True)
def prefetch_clocks(network, agent, clocks):
    """Start to read the neighbors' next ticks, with which the agent's own is compared after it has fired."""
    for e in range(network.offsets[agent], network.offsets[agent + 1]):
        prefetch(clocks.next_ticks, np.int64(network.neighbors[e]))  # pyright: ignore[reportCallIssue]


# Inlined, since a call would copy every array descriptor of the rule.
@overload(fire, jit_options={"fastmath": REORDER, "forceinline": True})
def _descent_fire(rule, agent, following, later, clocks, vectors, draws):
    if rule.instance_class is not DescentRule:
        return None

    def descend(rule, agent, following, later, clocks, vectors, draws):
        network, link, models = rule.network, rule.link, rule.models
        model = models[agent]
        new_model, gradient = vectors[0, : model.shape[0]], vectors[1, : model.shape[0]]
        prefetch_numbers(rule, later, clocks)
        prefetch_noise(rule.noise, following, later, clocks)
        gather(link, network, agent, following, later, clocks, models, new_model)
        prefetch_clocks(network, agent, clocks)
        start, stop = network.offsets[following], network.offsets[following + 1]
        ahead = Ahead(following, models, network.neighbors, start, stop)
        add_local_gradient(rule.term, agent, model, gradient, vectors[2], ahead)
        add_noise(rule.noise, agent, clocks, gradient, draws)
        step, pull = rule.step_sizes[agent], rule.pulls[agent]
        for d in range(model.shape[0]):
            # The old model stays until exchange() has handed it to those who still need it.
            new_model[d] = model[d] + step * (new_model[d] - model[d] - pull * gradient[d])
        keep_release(rule.noise, agent, clocks, new_model)
        exchange(link, network, agent, clocks, models, new_model)

    return descend


def network_of(edges: Edges) -> Network:
    """Which agents are neighbors, as the sweeps read it."""
    return read_only(Network(edges.offsets, edges.neighbors))


def direct(edges: Edges, dtype: DTypeLike) -> Direct:
    """The paper's network."""
    shares = np.empty(edges.weights.size, dtype)
    share_out(*map(read_only, (edges.offsets, edges.weights)), shares)
    return read_only(Direct(shares))


@compiled()
def share_out(offsets, weights, shares):
    """W_ij / D_ii of all edges."""
    for agent in range(offsets.shape[0] - 1):
        degree = 0.0
        for e in range(offsets[agent], offsets[agent + 1]):
            degree += weights[e]
        for e in range(offsets[agent], offsets[agent + 1]):
            shares[e] = weights[e] / degree


def compiled_rule(rule: Descent, network: Network, link: Direct | Mail, start: DescentState) -> DescentRule:
    """The rule as the sweeps take it. It moves the models and tail sums of `start`."""
    dtype = rule.start.dtype
    return DescentRule(
        read_only(_term(rule)),
        network,
        link,
        read_only(rule.step_sizes.astype(dtype)),
        read_only(rule.pulls.astype(dtype)),
        start.models,
        planned_noise(rule.noise, start.tail_sums),
    )


def read_only(part: Any) -> Any:
    """An array, or all those in a tuple, to be read only.

    Arrays that can be written to would be another type, for which other code is compiled.
    """
    if isinstance(part, tuple):
        return type(part)(*map(read_only, part))
    if not isinstance(part, np.ndarray):
        return part
    view = np.ascontiguousarray(part).view()
    view.flags.writeable = False
    return view


class DescentRun(ClockedRun):
    """Exact parallel asynchrony in numba; the same run for every number of threads."""

    def __init__(self, rule: Descent, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings)
        edges, dtype = rule.edges, rule.start.dtype
        begun = DescentState.from_arrays(state) if state else None
        start = begun or DescentState.begin(rule, self.table, self.seed)
        network = network_of(edges)
        self._descent = rule
        self._clocks = Clocks(self.seed, settings.limit, read_only(rule.ids), start.next_ticks, start.updates)
        self._team = Team(settings.threads, network, start.models.shape[1], dtype)
        if settings.conditions.are_ideal:
            link = direct(edges, dtype)
        else:
            link = _open_mail(rule, self.table, network, self._clocks, start)
        self._rule = compiled_rule(rule, network, link, start)

    @property
    def models(self) -> NDArray[Any]:
        return self._rule.models

    @property
    def updates(self) -> NDArray[np.int64]:
        return self._clocks.updates

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        return self._clocks.next_ticks

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do all ticks up to `until`, or `max_sweeps` sweeps."""
        self._team.sweep(max_sweeps, until, self._rule, self._clocks)
        link = self._rule.link
        if isinstance(link, Mail) and link.overflow[0]:
            self._rule = self._rule._replace(link=_with_room(link))
        return self.status(until)

    def vectors_sent(self, until: int) -> int:
        return models_sent(self._descent, self.updates, self.table, self.seed, until)

    def state(self) -> dict[str, NDArray[Any]]:
        mail = _mail_state(self._rule.link) if isinstance(self._rule.link, Mail) else None
        noise = self._rule.noise
        tail_sums = noise.tail_sums if isinstance(noise, PlannedNoise) else None
        return DescentState(self.models, self.next_ticks, self.updates, mail, tail_sums).to_arrays()

    def shown_models(self) -> NDArray[Any]:
        """In a private run, the averages of the agents' later releases."""
        noise = self._rule.noise
        if not isinstance(noise, PlannedNoise):
            return self.models
        return tail_averages(self.models, self.updates, noise.tail_start, noise.tail_sums)


def _term(rule: Descent) -> DataTerm | ClippedTerm | AnchorTerm:
    """The local terms of all agents, for the kernels."""
    if isinstance(rule.local, LocalAnchors):
        return AnchorTerm(rule.local.anchors)
    assert isinstance(rule.local, LocalData)
    term = data_term(rule.local)
    if rule.noise is None:
        return term
    norm = rule.noise.norm
    return ClippedTerm(*term, slope_bounds(term.features, rule.noise.clip, norm), norm == "l1")


def _open_mail(
    descent: Descent, table: ConditionTable, network: Network, clocks: Clocks, start: DescentState
) -> Mail:
    """Inboxes and messages as they were, or with everyone's start in them."""
    weights, models = descent.edges.weights, start.models
    n_edges, size, dtype = weights.size, models.shape[1], models.dtype
    mail = Mail(
        table=table,
        weights=weights.astype(dtype),
        reverse=reverse_edges(network.offsets, network.neighbors),
        sent=np.zeros(len(models), np.int64),
        numbers=np.full(n_edges, NEVER_HEARD, np.int64),
        inbox=np.zeros((n_edges, size), dtype),
        pending_counts=np.zeros(n_edges, np.int64),
        pending_arrivals=np.zeros((n_edges, FIRST_CAPACITY), np.int64),
        pending_numbers=np.zeros((n_edges, FIRST_CAPACITY), np.int64),
        pending_models=np.zeros((n_edges, FIRST_CAPACITY, size), dtype),
        overflow=np.zeros(1, np.int64),
    )
    if start.mail is not None:
        return _restored(mail, start.mail, network, clocks.next_ticks)
    send_start(mail, network, clocks, models, descent.start_is_public)
    return mail


def _with_room(mail: Mail, capacity: int | None = None) -> Mail:
    """The same mail with room for more messages under way."""
    old = mail.pending_arrivals.shape[1]
    extra = (capacity or 2 * old) - old
    mail.overflow[0] = 0
    return mail._replace(
        pending_arrivals=np.pad(mail.pending_arrivals, ((0, 0), (0, extra))),
        pending_numbers=np.pad(mail.pending_numbers, ((0, 0), (0, extra))),
        pending_models=np.pad(mail.pending_models, ((0, 0), (0, extra), (0, 0))),
    )


def _mail_state(mail: Mail) -> MailState:
    capacity = mail.pending_arrivals.shape[1]
    under_way = np.arange(capacity) < mail.pending_counts[:, None]
    return MailState(
        sent=mail.sent,
        numbers=mail.numbers,
        inbox=mail.inbox,
        pending_edges=np.nonzero(under_way)[0],
        pending_arrivals=mail.pending_arrivals[under_way],
        pending_numbers=mail.pending_numbers[under_way],
        pending_models=mail.pending_models[under_way],
    )


def _restored(mail: Mail, state: MailState, network: Network, next_ticks: NDArray[np.int64]) -> Mail:
    n_edges = mail.numbers.size
    most = int(np.bincount(state.pending_edges, minlength=1).max())
    capacity = max(most + 1, FIRST_CAPACITY)
    mail = _with_room(mail._replace(sent=state.sent, numbers=state.numbers, inbox=state.inbox), capacity)
    for k in np.lexsort((state.pending_numbers, state.pending_edges)):
        post(
            mail,
            state.pending_edges[k],
            state.pending_arrivals[k],
            state.pending_numbers[k],
            state.pending_models[k],
        )
    receivers = np.repeat(np.arange(next_ticks.size), np.diff(network.offsets))
    for edge in range(n_edges):
        collect(mail, edge, next_ticks[receivers[edge]])
    return mail


def slope_bounds(features: NDArray[Any], clip: float, norm: Norm) -> NDArray[Any]:
    """How large the slope of a sample may be for its gradient φ'·x to keep within the clip.

    clip/‖x‖ for each row, less what rounding may add; 0 for a row of zeros, which has no gradient.
    """
    rounding = 2 * (features.shape[1] + 8) * float(np.finfo(features.dtype).eps)
    bounds = np.empty(len(features), features.dtype)
    largest = float(np.finfo(features.dtype).max)
    bound_slopes(read_only(features), clip * (1 - rounding), norm == "l1", largest, bounds)
    return bounds


@compiled(parallel=True, fastmath=REORDER)
def bound_slopes(features, clip, norm_is_l1, largest, bounds):
    """clip/‖x‖ for each row, at most `largest`."""
    for row in prange(features.shape[0]):
        length = 0.0
        for d in range(features.shape[1]):
            number = np.float64(features[row, d])
            length += abs(number) if norm_is_l1 else number * number
        length = length if norm_is_l1 else math.sqrt(length)
        bounds[row] = min(clip / length, largest) if length > 0 else 0.0
