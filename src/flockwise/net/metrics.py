"""The state of agents, for people and for Prometheus: counts of events, budgets, and neighbors up.

Nothing here is computed from private data. The numbers of updates and releases, budgets and what is spent
of them are public in any case (docs/threat-model.md). Models, losses and predictions do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flockwise.errors import MissingExtra, NetworkError

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

LOOPBACK: Final = "127.0.0.1"
# Kind, name, field of AgentStatus, and what it is.
AGENT_METRICS: Final = (
    (CounterMetricFamily, "updates", "updates", "Updates of the model."),
    (CounterMetricFamily, "releases", "releases", "Messages that left the agent."),
    (GaugeMetricFamily, "epsilon_spent", "epsilon_spent", "Epsilon spent of the budget."),
    (GaugeMetricFamily, "epsilon_budget", "epsilon_total", "Epsilon of the whole budget."),
    (GaugeMetricFamily, "neighbors_up", "neighbors_up", "Neighbors that are up."),
    (GaugeMetricFamily, "last_release_age_seconds", "last_release_age_s", "Since the last release."),
    (GaugeMetricFamily, "rounds", "rounds", "Rounds of the conversation so far."),
    (GaugeMetricFamily, "silenced", "is_silenced", "1 if it must not release any more."),
)


@dataclass
class TrafficCounts:
    """Messages of this host to and from others.

    keys_refused: messages under a key that no agent publishes on.
    """

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    keys_refused: int = 0


@dataclass(frozen=True)
class AgentStatus:
    """One agent. Without privacy there is no epsilon; before a first release of this process, no age.

    obstacle: why it releases nothing any more although its budget may not be spent.
    rounds, is_over: of its conversation, in a network where agents release once.
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

    @property
    def is_silenced(self) -> bool:
        return self.obstacle is not None


@dataclass(frozen=True)
class HostStatus:
    """One process and its agents, as it writes it down every second.

    refused: connections without a certificate that the authority signed.
    strangers: connections of hosts that have one, but are not neighbors.
    """

    network: str
    host: str
    pid: int
    written_at: float
    agents: tuple[AgentStatus, ...]
    traffic: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    strangers: int = 0


class MetricsServer(Collector):
    """Answers Prometheus on the loopback interface, from the last status that the host took.

    port: 0 takes any that is free.
    """

    def __init__(self, status: Callable[[], HostStatus | None], port: int = 0) -> None:
        self._status = status
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, addr=LOOPBACK, registry=registry)
        except OSError as error:
            raise NetworkError(f"metrics cannot be served at {LOOPBACK}:{port}: {error}") from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def describe(self) -> Iterator[Metric]:
        """Nothing is collected on registration: there may be no status yet."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        if status is None:
            return
        for kind, name, field_name, text in AGENT_METRICS:
            values = [([agent.name], getattr(agent, field_name)) for agent in status.agents]
            yield _family(kind, name, text, ["agent"], values)
        dropped = [([a.name, reason], count) for a in status.agents for reason, count in a.dropped.items()]
        yield _family(
            CounterMetricFamily, "dropped", "Messages that were refused.", ["agent", "reason"], dropped
        )
        traffic = [([what], count) for what, count in status.traffic.items()]
        text = "Messages and bytes to and from other hosts."
        yield _family(CounterMetricFamily, "traffic", text, ["what"], traffic)
        text = "Connections without a certificate of the network."
        yield CounterMetricFamily("flockwise_refused_connections", text, value=status.refused)
        text = "Connections of hosts that are not neighbors."
        yield CounterMetricFamily("flockwise_stranger_links", text, value=status.strangers)


def _family(
    kind: type[Any], name: str, text: str, labels: list[str], values: Sequence[tuple[list[str], float | None]]
) -> Metric:
    family = kind(f"flockwise_{name}", text, labels=labels)
    for labeled, value in values:
        if value is not None:
            family.add_metric(labeled, value)
    return family
