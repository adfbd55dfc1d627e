"""Descent in compiled sweeps, Eq. (4) and Eq. (6): an agent may fire before all its neighbors do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from flockwise.engine.base import ClockedRun, RunSettings, State, Status
from flockwise.engine.conditions import ConditionTable, count_extra_models
from flockwise.engine.cpu.kernels import (
    REORDER,
    Ahead,
    AnchorTerm,
    ClippedTerm,
    DataTerm,
    add_local_gradient,
    data_term,
    prefetch,
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
from flockwise.method.rules import Descent, DescentNoise, LocalAnchors
from flockwise.privacy.mechanisms import MECHANISMS, Norm
from flockwise.randomness.noise import draw_noise

ROWS_AT_ONCE = 1 << 16
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
        noise.multipliers,
        noise.n_before,
        noise.schedule.rows,
        noise.sensitivities,
        noise.tail_start,
        tail_sums,
    )


def add_noise(noise, agent, clocks, gradient, draws):
    """Add the noise of the agent's next update to its mean gradient; `draws` is scratch room."""
    raise NotImplementedError("compiled code only")


@overload(add_noise)
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


def keep_release(noise, agent, clocks, new_model):
    """Count a model that is about to be released in the agent's tail average."""
    raise NotImplementedError("compiled code only")


@overload(keep_release)
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


class DescentRun(ClockedRun):
    """Exact parallel asynchrony in numba; the same run for every number of threads."""

    def __init__(self, rule: Descent, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings)
        edges, dtype = rule.edges, rule.start.dtype
        begun = DescentState.from_arrays(state) if state else None
        start = begun or DescentState.begin(rule, self.table, self.seed)
        network = Network(edges.offsets, edges.neighbors)
        self._descent = rule
        self._clocks = Clocks(self.seed, settings.limit, rule.ids, start.next_ticks, start.updates)
        self._team = Team(settings.threads, network, start.models.shape[1], dtype)
        if settings.conditions.are_ideal:
            shares = edges.weights / np.repeat(edges.degrees, edges.counts)
            link = Direct(shares.astype(dtype))
        else:
            link = _open_mail(rule, self.table, network, self._clocks, start)
        self._rule = DescentRule(
            _term(rule),
            network,
            link,
            rule.step_sizes.astype(dtype),
            rule.pulls.astype(dtype),
            start.models,
            planned_noise(rule.noise, start.tail_sums),
        )

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
        """One per update and neighbor, and what the conditions add."""
        edges, public = self._descent.edges, self._descent.start_is_public
        network = self.ids, edges.offsets, edges.neighbors
        return int(self.updates @ edges.counts) + count_extra_models(
            self.table, self.seed, *network, public, until
        )

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
    lengths = np.empty(len(features))
    for start in range(0, len(features), ROWS_AT_ONCE):
        rows = features[start : start + ROWS_AT_ONCE].astype(np.float64)
        lengths[start : start + ROWS_AT_ONCE] = np.linalg.norm(rows, ord=1 if norm == "l1" else 2, axis=1)
    rounding = 2 * (features.shape[1] + 8) * float(np.finfo(features.dtype).eps)
    bounds = np.zeros_like(lengths)
    np.divide(clip * (1 - rounding), lengths, out=bounds, where=lengths > 0)
    return np.minimum(bounds, np.finfo(features.dtype).max).astype(features.dtype)
