"""How the agents of a network on this machine are doing, from the status files of their processes."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from flockwise.net.folder import AGENT_FILE, STATE_FOLDER, STATUS_FILE, AgentFile, read_toml
from flockwise.net.metrics import AgentStatus, HostStatus
from flockwise.net.settings import promise
from flockwise.net.setup import AGENTS_FOLDER, HOSTS_FOLDER, NetworkPlan

# Seconds. A process writes every second; one that has not written for so long is down, or hangs.
FRESH_FOR: Final = 5.0


def agents_in(folder: Path) -> list[dict[str, Any]]:
    """One entry per agent, in the order of the network; `state` says whether it runs."""
    latest: dict[str, tuple[float, AgentStatus]] = {}
    for status in sorted(_statuses(folder), key=lambda status: status.written_at):
        latest |= {agent.name: (status.written_at, agent) for agent in status.agents}
    return [_entry(*latest.get(name, (0.0, AgentStatus(name)))) for name in NetworkPlan.read(folder).names]


def refused_connections(folder: Path) -> dict[str, int]:
    """Connections that were refused, and those of strangers, since the processes that run began."""
    running = [status for status in _statuses(folder) if time.time() - status.written_at < FRESH_FOR]
    return {what: sum(getattr(status, what) for status in running) for what in ("refused", "strangers")}


def promise_in(folder: Path) -> str:
    """The guarantee of the agents on this machine, by the settings that they run with."""
    plan = NetworkPlan.read(folder)
    homes = (folder / AGENTS_FOLDER / name for name in plan.names)
    files = [home / AGENT_FILE for home in homes if (home / AGENT_FILE).is_file()]
    return promise(plan.network_settings, [read_toml(file, AgentFile).privacy for file in files])


def read_status(host: Path) -> HostStatus | None:
    """The last status in a host's folder; None before the first one, and while it is being replaced."""
    try:
        return msgspec.json.decode((host / STATE_FOLDER / STATUS_FILE).read_bytes(), type=HostStatus)
    except (OSError, ValueError):
        return None


def _entry(written_at: float, agent: AgentStatus) -> dict[str, Any]:
    age = time.time() - written_at
    is_fresh = age < FRESH_FOR
    entry = {"name": agent.name, "state": agent.obstacle or "up" if is_fresh else "down"} | asdict(agent)
    if not is_fresh:
        entry["neighbors_up"] = 0
    if agent.last_release_age_s is not None:
        entry["last_release_age_s"] = agent.last_release_age_s + age
    return entry


def _statuses(folder: Path) -> list[HostStatus]:
    hosts = [*(folder / AGENTS_FOLDER).glob("*"), *(folder / HOSTS_FOLDER).glob("*")]
    return [status for status in map(read_status, hosts) if status is not None]
