"""Descent in compiled sweeps over all agents: coordinate descent and model propagation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import Judge, Result, RunSettings, Status, Sums
from flockwise.engine.conditions import ConditionTable
from flockwise.engine.cpu.clipping import slope_bounds
from flockwise.engine.cpu.descent_rule import DescentRule
from flockwise.engine.cpu.kernels import AnchorTerm, ClippedTerm, DataTerm, data_term
from flockwise.engine.cpu.links import Direct
from flockwise.engine.cpu.mail import NEVER_HEARD, Mail, collect, post, send_start
from flockwise.engine.cpu.noise import PlannedNoise, planned_noise
from flockwise.engine.cpu.sweeps import Clocks, Network, Team
from flockwise.engine.schedule import time_of_tick
from flockwise.engine.state import DescentState, MailState, initial_state, reverse_edges, tail_averages
from flockwise.engine.traffic import vectors_sent
from flockwise.method.rules import Descent, LocalAnchors

FIRST_CAPACITY = 2


class DescentRun:
    """Exact parallel asynchrony in numba; the same run for every number of threads."""

    def __init__(
        self, rule: Descent, settings: RunSettings, state: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        edges, dtype = rule.edges, rule.start.dtype
        self._table = settings.conditions.table(rule.ids)
        seed = settings.seed
        start = DescentState.from_arrays(state) if state else initial_state(rule, seed, self._table)
        network = Network(edges.offsets, edges.neighbors)
        self._descent, self._settings = rule, settings
        self._clocks = Clocks(np.uint64(seed), settings.limit, rule.ids, start.next_ticks, start.updates)
        self._team = Team(settings.threads, network, start.models.shape[1], dtype)
        if settings.conditions.are_ideal:
            shares = edges.weights / np.repeat(edges.degrees, edges.counts)
            link = Direct(shares.astype(dtype))
        else:
            link = _open_mail(rule, self._table, network, self._clocks, start)
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
    def threads(self) -> int:
        return self._team.threads

    @property
    def models(self) -> NDArray[Any]:
        return self._rule.models

    @property
    def updates(self) -> NDArray[np.int64]:
        return self._clocks.updates

    def status(self, until: int) -> Status:
        next_tick = int(self._clocks.next_ticks.min())
        return Status(next_tick > until, int(self.updates.sum()), next_tick)

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do all ticks up to `until`, or `max_sweeps` sweeps."""
        self._team.sweep(max_sweeps, until, self._rule, self._clocks)
        link = self._rule.link
        if isinstance(link, Mail) and link.overflow[0]:
            self._rule = self._rule._replace(link=_with_room(link))
        return self.status(until)

    def time_of_tick(self, left: int) -> int:
        clocks = self._clocks
        return time_of_tick(
            left,
            self._table,
            self._settings.seed,
            clocks.limit,
            clocks.ids,
            clocks.next_ticks,
            clocks.updates,
        )

    def measure(self, judge: Judge) -> Sums:
        return Sums.of(judge(self._shown()))

    def sent(self, until: int) -> tuple[int, int]:
        """Models sent along an edge up to now, lost ones included."""
        count = vectors_sent(self._descent, self._table, self._settings.seed, self.updates, until)
        return count, count * self.models.shape[1] * self.models.dtype.itemsize

    def result(self) -> Result:
        return Result(self._shown().copy(), self.updates.copy())

    def state(self) -> dict[str, NDArray[Any]]:
        mail = _mail_state(self._rule.link) if isinstance(self._rule.link, Mail) else None
        noise = self._rule.noise
        tail_sums = noise.tail_sums if isinstance(noise, PlannedNoise) else None
        return DescentState(self.models, self._clocks.next_ticks, self.updates, mail, tail_sums).to_arrays()

    def _shown(self) -> NDArray[Any]:
        """What the agents have to show: in a private run, the averages of what they released of late."""
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
