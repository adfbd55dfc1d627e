"""The state of agents, for people and for Prometheus: counts of events, budgets, and neighbors up.

Nothing here is computed from private data. The numbers of updates and releases, budgets and what is spent
of them are public in any case (docs/threat-model.md). Models, losses and predictions do not belong here.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from flockwise.errors import NetworkError
from flockwise.runtime.phases import Phase

LOOPBACK: Final = "127.0.0.1"
OPEN: Final = "open"
# So many questions are answered at once; each has so many seconds, however slowly it is asked or read.
MOST_READERS: Final = 8
SECONDS_TO_ASK: Final = 5.0


@dataclass(frozen=True)
class AgentStatus:
    """One agent. Without privacy there is no epsilon; before a first release of this process, no age.

    obstacle: why it releases nothing any more although its budget may not be spent.
    rounds, is_over: of its conversation, in a network where agents release once.
    ticks_skipped: about how many updates it left out because this machine was late.
    late_s: how late its last update was.
    flapping: how often a neighbor came up again that had left without a greeting.
    phase: what it does (flockwise.runtime.phases); None before it ever ran here.
    awaited: the neighbors that it waits for.
    """

    name: str
    updates: int = 0
    releases: int = 0
    epsilon_spent: float | None = None
    epsilon_total: float | None = None
    neighbors_up: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    last_release_age_s: float | None = None
    obstacle: str | None = None
    rounds: int | None = None
    is_over: bool | None = None
    ticks_skipped: int = 0
    phase: Phase | None = None
    awaited: Sequence[str] = ()
    late_s: float = 0.0
    flapping: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether it has a budget, and has sent all that the budget allows."""
        return self.epsilon_total is not None and self.phase is Phase.DONE and self.rounds is None

    @property
    def is_silenced(self) -> bool:
        return self.obstacle is not None


@dataclass(frozen=True)
class HostStatus:
    """One process and its agents, as it writes it down every second.

    refused: connections without a certificate that the authority signed.
    strangers: connections of hosts that have one, but are not neighbors.
    expires_at: when the host's certificate ends, in seconds since 1970.
    door: whom its port lets in now (flockwise.net.zenoh.door).
    ended: whether it has stopped; then this is how its agents were when it did.
    """

    network: str
    host: str
    pid: int
    written_at: float
    agents: tuple[AgentStatus, ...]
    traffic: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    strangers: int = 0
    expires_at: float | None = None
    door: str = OPEN
    ended: bool = False


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: standard error is for errors."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each reader, for a while, and never more than a few."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_READERS)
        self._ends: dict[socket.socket, float] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            self._ends[request] = time.monotonic() + SECONDS_TO_ASK
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._ends[request]
            self._free.release()

    def service_actions(self) -> None:
        """Called again and again: hang up on readers whose time is over."""
        now = time.monotonic()
        for request in [request for request, end in self._ends.copy().items() if end < now]:
            with suppress(OSError):  # it has ended meanwhile
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that hangs up, or asks nothing in time, is no error of ours."""


class MetricsServer:
    """Answers Prometheus on the loopback interface, from the last status that the host took.

    port: 0 takes any that is free.
    """

    def __init__(self, status: Callable[[], HostStatus | None], port: int = 0) -> None:
        self._status = status
        try:
            self._server = _Server((LOOPBACK, port), _Handler)
        except OSError as error:
            raise NetworkError(f"metrics cannot be served at {LOOPBACK}:{port}: {error}") from error
        self._server.set_app(self._answer)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        from flockwise.runtime.prometheus import answer  # takes memory, and most agents are never asked

        return answer(self._status())(environ, start_response)
