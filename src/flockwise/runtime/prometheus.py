"""The status of a host in the words of Prometheus. Loaded when somebody asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from flockwise.deploy.credentials import urgency
from flockwise.errors import MissingExtra
from flockwise.runtime.metrics import OPEN, HostStatus

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

# Kind, name, field of AgentStatus, and what it is.
AGENT_METRICS: Final = (
    (CounterMetricFamily, "updates", "updates", "Updates of the model."),
    (CounterMetricFamily, "releases", "releases", "Messages that left the agent."),
    (GaugeMetricFamily, "epsilon_spent", "epsilon_spent", "Epsilon spent of the budget."),
    (GaugeMetricFamily, "epsilon_budget", "epsilon_total", "Epsilon of the whole budget."),
    (GaugeMetricFamily, "neighbors_up", "neighbors_up", "Neighbors that are up."),
    (GaugeMetricFamily, "last_release_age_seconds", "last_release_age_s", "Since the last release."),
    (GaugeMetricFamily, "rounds", "rounds", "Rounds of the conversation so far."),
    (CounterMetricFamily, "ticks_skipped", "ticks_skipped", "Updates left out: this machine was late."),
    (GaugeMetricFamily, "late_seconds", "late_s", "How late the last update was."),
    (
        CounterMetricFamily,
        "flapping",
        "flapping",
        "Neighbors that came again and had left without a greeting.",
    ),
    (GaugeMetricFamily, "silenced", "is_silenced", "1 if it must not release any more."),
)


def answer(status: HostStatus | None) -> Callable[..., Any]:
    """What tells Prometheus this status; nothing before the first one."""
    registry = CollectorRegistry()
    if status is not None:
        registry.register(_Told(status))
    return make_wsgi_app(registry)


class _Told(Collector):
    def __init__(self, status: HostStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
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
        if status.expires_at is not None:
            text = "When the certificate of this host ends, in seconds since 1970."
            yield GaugeMetricFamily("flockwise_certificate_expires", text, value=status.expires_at)
            left = timedelta(seconds=status.expires_at - time.time())
            text = "Warnings of that which are due: 1 at 30 days, 2 at 7, 3 at one, 4 at its end."
            yield GaugeMetricFamily("flockwise_certificate_warning", text, value=urgency(left))
        text = "Whether the port lets in everyone that it should; 0 while too many connections wait at it."
        yield GaugeMetricFamily("flockwise_door_open", text, value=status.door == OPEN)
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
