"""The cpu engine: the compiled sweeps over all agents, on one thread or many."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmura.engine.barrier import BARRIER_SIZE
from murmura.engine.conditions import ConditionTable
from murmura.engine.links import Direct
from murmura.engine.mail import NEVER_HEARD, Mail, collect, post, send_start
from murmura.engine.state import DescentState, MailState, initial_state, reverse_edges
from murmura.engine.sweeps import (
    Clocks,
    Network,
    Rates,
    Workspace,
    sweep,
)
from murmura.engine.traffic import vectors_sent
from murmura.errors import SimulationError
from murmura.method.descent import Descent

# Below this many agents a sweep is shorter than the hand-over between threads.
AGENTS_WORTH_A_THREAD = 2000
# Scratch vectors and counters of different threads stay this many numbers apart.
PADDING = 64
FIRST_CAPACITY = 2


def choose_threads(threads: int | None, n_agents: int) -> int:
    """The wanted number of threads, or as many as pay."""
    if threads is None:
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(available, n_agents // AGENTS_WORTH_A_THREAD))
    if threads < 1:
        raise SimulationError(f"threads must be at least 1, got threads={threads}")
    return min(threads, n_agents)


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
        self._descent, self._table, self._seed = descent, table, seed
        self.models = start.models
        self.threads = choose_threads(threads, graph.n_agents)
        self._pool = ThreadPoolExecutor(max(self.threads - 1, 1))
        self._term = descent.kernel_term()
        self._network = Network(graph.offsets, graph.neighbors)
        self._rates = Rates(descent.step_sizes.astype(dtype), descent.pulls.astype(dtype))
        self._clocks = Clocks(np.uint64(seed), limit, start.next_ticks, start.updates)
        self._work = _workspace(self.threads, graph.n_agents, self.models.shape[1], dtype)
        if ideal:
            shares = graph.weights / np.repeat(graph.degrees, np.diff(graph.offsets))
            self._link = Direct(shares.astype(dtype))
        else:
            self._link = self._open_mail(descent, table, start.mail)

    @property
    def updates(self) -> NDArray[np.int64]:
        return self._clocks.updates

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        return self._clocks.next_ticks

    def advance(self, until: int, max_sweeps: int = 2**62) -> bool:
        """Do all ticks up to `until`, or `max_sweeps` sweeps; says whether all are done."""
        _fill(self._work, self.models.shape[0])
        problem = self._term, self._network, self._link, self._rates, self._clocks, self.models, self._work
        while True:
            self._on_all_threads(sweep, max_sweeps, until, *problem)
            if not (isinstance(self._link, Mail) and self._link.overflow[0]):
                return not (self.next_ticks <= until).any()
            self._link = _with_room(self._link)
            problem = (*problem[:2], self._link, *problem[3:])

    def _on_all_threads(self, function: Callable[..., None], *arguments: Any) -> None:
        """Part 0 here, the others on the pool: compiled code that leaves the interpreter's lock alone."""
        others = [self._pool.submit(function, part, *arguments) for part in range(1, self.threads)]
        function(0, *arguments)
        for other in others:
            other.result()

    def vectors_sent(self, until: int) -> int:
        """Models sent along an edge up to now, lost ones included."""
        return vectors_sent(self._descent, self._table, self._seed, self.updates, until)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, to be saved."""
        mail = _mail_state(self._link) if isinstance(self._link, Mail) else None
        return DescentState(self.models, self.next_ticks, self.updates, mail).to_arrays()

    def _open_mail(self, descent: Descent, table: ConditionTable, state: MailState | None) -> Mail:
        graph, size, dtype = descent.problem.graph, self.models.shape[1], self.models.dtype
        n_edges = graph.neighbors.size
        mail = Mail(
            table=table,
            weights=graph.weights.astype(dtype),
            reverse=reverse_edges(graph.offsets, graph.neighbors),
            sent=np.zeros(graph.n_agents, np.int64),
            numbers=np.full(n_edges, NEVER_HEARD, np.int64),
            inbox=np.zeros((n_edges, size), dtype),
            pending_counts=np.zeros(n_edges, np.int64),
            pending_arrivals=np.zeros((n_edges, FIRST_CAPACITY), np.int64),
            pending_numbers=np.zeros((n_edges, FIRST_CAPACITY), np.int64),
            pending_models=np.zeros((n_edges, FIRST_CAPACITY, size), dtype),
            overflow=np.zeros(1, np.int64),
        )
        if state is None:
            send_start(mail, self._network, self._clocks, self.models, descent.start_is_public)
            return mail
        return _restored(mail, state, self._network, self.next_ticks)


def _workspace(threads: int, n_agents: int, size: int, dtype: np.dtype) -> Workspace:
    return Workspace(
        active=np.empty(n_agents, np.int32),
        active_counts=np.zeros((threads, PADDING), np.int64),
        ready=np.empty(n_agents, np.int32),
        ready_counts=np.zeros((threads, PADDING), np.int64),
        vectors=np.zeros((threads, 2, size + PADDING), dtype)[:, :, :size],
        barrier=np.zeros(BARRIER_SIZE, np.int64),
    )


def _fill(work: Workspace, n_agents: int) -> None:
    """Look at every agent again."""
    work.active[:] = np.arange(n_agents, dtype=np.int32)
    bounds = n_agents * np.arange(work.active_counts.shape[0] + 1) // work.active_counts.shape[0]
    work.active_counts[:, 0] = np.diff(bounds)


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
    mail = _with_room(mail._replace(sent=state.sent, numbers=state.numbers, inbox=state.inbox), most + 1)
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
