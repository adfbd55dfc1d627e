"""How agents are doing, for people and for Prometheus: counts of events, budgets, and who is there.

Nothing here is computed from private data. The number of updates and releases, budgets and what is spent
of them are public in any case (docs/threat-model.md); models, losses and predictions have no place here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

from flockwise.errors import MissingExtra, NetworkError

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

LOOPBACK: Final = "127.0.0.1"


@dataclass
class Traffic:
    """What went over the links of this host, counted by message.

    keys_refused: what came under a key that no agent publishes on.
    """

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    keys_refused: int = 0


@dataclass(frozen=True)
class AgentStatus:
    """One agent. Without privacy there is no epsilon; before a first release of this process, no age."""

    name: str
    updates: int
    releases: int
    epsilon_spent: float | None
    epsilon_total: float | None
    neighbors_up: int
    dropped: Mapping[str, int]
    last_release_age_s: float | None
    obstacle: str | None = None
    """Why it releases nothing any more although its budget may not be spent."""
    rounds: int | None = None
    is_over: bool | None = None
    """Of its conversation, in a network where agents release once."""


@dataclass(frozen=True)
class HostStatus:
    """One process and its agents.

    refused: connections without a certificate that the authority signed.
    strangers: links of hosts that have one, but are no neighbors.
    """

    network: str
    host: str
    pid: int
    written_at: float
    agents: tuple[AgentStatus, ...]
    traffic: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    strangers: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "agents": [vars(agent) for agent in self.agents]}


class MetricsServer:
    """Answers Prometheus on the loopback interface, from the last status that the host took.

    port: 0 takes any that is free.
    """

    def __init__(self, status: Callable[[], HostStatus | None], port: int = 0) -> None:
        registry = CollectorRegistry()
        registry.register(_StatusCollector(status))
        try:
            self._server, self._thread = start_http_server(port, addr=LOOPBACK, registry=registry)
        except OSError as error:
            raise NetworkError(f"metrics cannot be served at {LOOPBACK}:{port}: {error}") from error
        self._server: WSGIServer
        self._thread: threading.Thread

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _StatusCollector(Collector):
    def __init__(self, status: Callable[[], HostStatus | None]) -> None:
        self._status = status

    def describe(self) -> Iterator[Metric]:
        """Nothing is collected on registration: there may be no status yet."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        if status is None:
            return
        yield from _agent_metrics(status.agents)
        yield from _host_metrics(status)


def _agent_metrics(agents: tuple[AgentStatus, ...]) -> Iterator[Metric]:
    counts: list[tuple[str, str, Callable[[AgentStatus], float | None]]] = [
        ("flockwise_updates", "Updates of the model.", lambda a: a.updates),
        ("flockwise_releases", "Messages that left the agent.", lambda a: a.releases),
    ]
    levels: list[tuple[str, str, Callable[[AgentStatus], float | None]]] = [
        ("flockwise_epsilon_spent", "Epsilon spent of the budget.", lambda a: a.epsilon_spent),
        ("flockwise_epsilon_budget", "Epsilon of the whole budget.", lambda a: a.epsilon_total),
        ("flockwise_neighbors_up", "Neighbors that are there.", lambda a: a.neighbors_up),
        ("flockwise_last_release_age_seconds", "Since the last release.", lambda a: a.last_release_age_s),
        ("flockwise_rounds", "Rounds of the conversation so far.", lambda a: a.rounds),
        ("flockwise_silenced", "1 if it must not release any more.", lambda a: int(a.obstacle is not None)),
    ]
    for kind, rows in ((CounterMetricFamily, counts), (GaugeMetricFamily, levels)):
        for name, text, value in rows:
            family = kind(name, text, labels=["agent"])
            for agent in agents:
                if (number := value(agent)) is not None:
                    family.add_metric([agent.name], number)
            yield family
    dropped = CounterMetricFamily(
        "flockwise_dropped", "Messages that were refused.", labels=["agent", "reason"]
    )
    for agent in agents:
        for reason, count in agent.dropped.items():
            dropped.add_metric([agent.name, reason], count)
    yield dropped


def _host_metrics(status: HostStatus) -> Iterator[Metric]:
    traffic = CounterMetricFamily("flockwise_traffic", "Messages and bytes over the links.", labels=["what"])
    for what, count in status.traffic.items():
        traffic.add_metric([what], count)
    yield traffic
    yield CounterMetricFamily(
        "flockwise_refused_connections", "No certificate of ours.", value=status.refused
    )
    yield CounterMetricFamily(
        "flockwise_stranger_links", "Hosts that are no neighbors.", value=status.strangers
    )
