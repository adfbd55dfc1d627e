"""Descent in compiled sweeps over all agents: coordinate descent and model propagation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import ClockedRun, RunSettings, State, Status
from flockwise.engine.conditions import ConditionTable
from flockwise.engine.cpu.clipping import slope_bounds
from flockwise.engine.cpu.descent_rule import DescentRule
from flockwise.engine.cpu.kernels import AnchorTerm, ClippedTerm, DataTerm, data_term
from flockwise.engine.cpu.links import Direct
from flockwise.engine.cpu.mail import NEVER_HEARD, Mail, collect, post, send_start
from flockwise.engine.cpu.noise import PlannedNoise, planned_noise
from flockwise.engine.cpu.sweeps import Clocks, Network, Team
from flockwise.engine.state import DescentState, MailState, initial_state, reverse_edges, tail_averages
from flockwise.engine.traffic import vectors_sent
from flockwise.method.rules import Descent, LocalAnchors

FIRST_CAPACITY = 2


class DescentRun(ClockedRun):
    """Exact parallel asynchrony in numba; the same run for every number of threads."""

    def __init__(self, rule: Descent, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings)
        edges, dtype = rule.edges, rule.start.dtype
        start = DescentState.from_arrays(state) if state else initial_state(rule, settings.seed, self.table)
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
        return vectors_sent(self._descent, self.table, self.settings.seed, self.updates, until)

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
