"""The cpu engine of coordinate descent and model propagation: compiled sweeps over all agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.conditions import ConditionTable
from flockwise.engine.descent_rule import DescentRule
from flockwise.engine.links import Direct
from flockwise.engine.mail import NEVER_HEARD, Mail, collect, post, send_start
from flockwise.engine.noise import PlannedNoise, planned_noise, tail_averages
from flockwise.engine.state import DescentState, MailState, initial_state, reverse_edges
from flockwise.engine.sweeps import Clocks, Network, Team
from flockwise.engine.traffic import vectors_sent
from flockwise.method.descent import Descent

FIRST_CAPACITY = 2


class CpuEngine:
    """Exact parallel asynchrony in numba; the same run for every number of threads."""

    def __init__(
        self,
        descent: Descent,
        table: ConditionTable,
        seed: int,
        limit: int,
        *,
        ideal: bool,
        state: Mapping[str, NDArray[Any]] | None = None,
        threads: int | None = None,
    ) -> None:
        graph, dtype = descent.problem.graph, descent.start.dtype
        start = DescentState.from_arrays(state) if state else initial_state(descent, seed, table)
        network = Network(graph.offsets, graph.neighbors)
        self._descent, self._table, self._seed = descent, table, seed
        self._clocks = Clocks(np.uint64(seed), limit, start.next_ticks, start.updates)
        self._team = Team(threads, network, start.models.shape[1], dtype)
        if ideal:
            shares = graph.weights / np.repeat(graph.degrees, np.diff(graph.offsets))
            link = Direct(shares.astype(dtype))
        else:
            link = _open_mail(descent, table, network, self._clocks, start)
        self._rule = DescentRule(
            descent.kernel_term(),
            network,
            link,
            descent.step_sizes.astype(dtype),
            descent.pulls.astype(dtype),
            start.models,
            planned_noise(descent.noise, start.tail_sums),
        )

    @property
    def threads(self) -> int:
        return self._team.threads

    @property
    def models(self) -> NDArray[Any]:
        return self._rule.models

    @property
    def results(self) -> NDArray[Any]:
        """What the agents have to show: in a private run, the averages of what they released of late."""
        noise = self._rule.noise
        if not isinstance(noise, PlannedNoise):
            return self.models
        return tail_averages(self.models, self.updates, noise.tail_start, noise.tail_sums)

    @property
    def updates(self) -> NDArray[np.int64]:
        return self._clocks.updates

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        return self._clocks.next_ticks

    def advance(self, until: int, max_sweeps: int = 2**62) -> bool:
        """Do all ticks up to `until`, or `max_sweeps` sweeps; says whether all are done."""
        self._team.sweep(max_sweeps, until, self._rule, self._clocks)
        link = self._rule.link
        if isinstance(link, Mail) and link.overflow[0]:
            self._rule = self._rule._replace(link=_with_room(link))
        return not (self.next_ticks <= until).any()

    def vectors_sent(self, until: int) -> int:
        """Models sent along an edge up to now, lost ones included."""
        return vectors_sent(self._descent, self._table, self._seed, self.updates, until)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, to be saved."""
        mail = _mail_state(self._rule.link) if isinstance(self._rule.link, Mail) else None
        noise = self._rule.noise
        tail_sums = noise.tail_sums if isinstance(noise, PlannedNoise) else None
        return DescentState(self.models, self.next_ticks, self.updates, mail, tail_sums).to_arrays()


def _open_mail(
    descent: Descent, table: ConditionTable, network: Network, clocks: Clocks, start: DescentState
) -> Mail:
    """Inboxes and letters as they were, or with everyone's start in them."""
    weights, models = descent.problem.graph.weights, start.models
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
    """The same mail with room for more letters under way."""
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
        letter_edges=np.nonzero(under_way)[0],
        letter_arrivals=mail.pending_arrivals[under_way],
        letter_numbers=mail.pending_numbers[under_way],
        letter_models=mail.pending_models[under_way],
    )


def _restored(mail: Mail, state: MailState, network: Network, next_ticks: NDArray[np.int64]) -> Mail:
    n_edges = mail.numbers.size
    most = int(np.bincount(state.letter_edges, minlength=1).max())
    capacity = max(most + 1, FIRST_CAPACITY)
    mail = _with_room(mail._replace(sent=state.sent, numbers=state.numbers, inbox=state.inbox), capacity)
    for k in np.lexsort((state.letter_numbers, state.letter_edges)):
        post(
            mail,
            state.letter_edges[k],
            state.letter_arrivals[k],
            state.letter_numbers[k],
            state.letter_models[k],
        )
    receivers = np.repeat(np.arange(next_ticks.size), np.diff(network.offsets))
    for edge in range(n_edges):
        collect(mail, edge, next_ticks[receivers[edge]])
    return mail
