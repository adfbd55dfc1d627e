"""How the agents of a network on this machine are doing, from the status files of their processes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from flockwise.deploy.credentials import urgency
from flockwise.deploy.folder import AGENT_FILE, STATE_FOLDER, STATUS_FILE, AgentFile, is_here, read_toml
from flockwise.deploy.network_plan import AGENTS_FOLDER, HOSTS_FOLDER, Change, NetworkPlan
from flockwise.deploy.renewal import ends_in
from flockwise.deploy.settings import promise
from flockwise.errors import LedgerError
from flockwise.privacy.ledger import read_statement
from flockwise.privacy.plan import Plan
from flockwise.runtime.metrics import OPEN, AgentStatus, HostStatus
from flockwise.runtime.phases import SILENCE, Phase

WAITING: Final = {Phase.WAITING: "waiting for", Phase.TALKING: "talking, waits for"}
# Seconds. A process writes every second; one that has not written for so long is down, or hangs.
FRESH_FOR: Final = 5.0
FEW: Final = 5  # agents are named, more are counted


def agents_in(folder: Path) -> list[dict[str, Any]]:
    """One entry per agent, in the order of the network; `state` says whether it runs."""
    latest: dict[str, tuple[HostStatus | None, AgentStatus]] = {}
    for status in sorted(_statuses(folder), key=lambda status: status.written_at):
        latest |= {agent.name: (status, agent) for agent in status.agents}
    plan, now = NetworkPlan.read(folder), datetime.now(UTC)
    is_private = plan.network_settings.is_private
    hosts = {place.name: place.host for place in plan.places}
    expired = {host for host, end in ends_in(folder).items() if end <= now}
    lonely = plan.lonely
    entries = []
    for name in plan.members:
        status, agent = latest.get(name) or (None, _before_the_start(folder, name))
        state = "expired" if hosts[name] in expired else _state(folder / AGENTS_FOLDER / name, status, agent)
        if name in lonely and state == Phase.WAITING:
            state = "waiting: it has no neighbor"
        entries.append(_entry(state, status, agent) | {"is_private": is_private})
    return entries


def expiring(folder: Path) -> dict[str, timedelta]:
    """Hosts whose certificates end soon, and how much time is left: below 0 after it."""
    now = datetime.now(UTC)
    left = {host: end - now for host, end in ends_in(folder).items()}
    return {host: time for host, time in left.items() if urgency(time)}


def coming_change(folder: Path) -> Change | None:
    """Of the public settings."""
    return NetworkPlan.read(folder).change


def refused_connections(folder: Path) -> dict[str, int]:
    """Connections that were refused, and those of strangers, since the processes that run began."""
    running = [status for status in _statuses(folder) if _runs(status)]
    return {what: sum(getattr(status, what) for status in running) for what in ("refused", "strangers")}


def few(names: Sequence[str]) -> str:
    """Names, and how many more there are."""
    more = len(names) - FEW
    return ", ".join(names[:FEW]) + (f" and {more} more" if more > 0 else "")


def crowded_doors(folder: Path) -> dict[str, str]:
    """Hosts that run and at whose ports too many connections wait, and whom these let in."""
    running = [status for status in _statuses(folder) if _runs(status)]
    return {status.host: status.door for status in running if status.door != OPEN}


def promise_in(folder: Path) -> str:
    """The guarantee of the agents on this machine, by the settings that they run with."""
    plan = NetworkPlan.read(folder)
    homes = (folder / AGENTS_FOLDER / name for name in plan.members)
    files = [home / AGENT_FILE for home in homes if (home / AGENT_FILE).is_file()]
    return promise(plan.network_settings, [read_toml(file, AgentFile).privacy for file in files])


def read_status(host: Path) -> HostStatus | None:
    """The last status in a host's folder; None before the first one, and while it is being replaced."""
    try:
        return msgspec.json.decode((host / STATE_FOLDER / STATUS_FILE).read_bytes(), type=HostStatus)
    except (OSError, ValueError):
        return None


def _before_the_start(folder: Path, name: str) -> AgentStatus:
    """Of an agent that has never run here; nothing is known of one whose folder is on another device."""
    home = folder / AGENTS_FOLDER / name
    if not (home / AGENT_FILE).is_file():
        return AgentStatus(name)
    budget = read_toml(home / AGENT_FILE, AgentFile).privacy.own_budget
    if budget is None:
        return AgentStatus(name)
    releases, spent = _spent_before(home)
    return AgentStatus(name, releases, releases, spent, budget.epsilon)


def _spent_before(home: Path) -> tuple[int, float]:
    """What its ledger says: status files go with the processes that wrote them."""
    try:
        statement = read_statement(home / STATE_FOLDER)
        rows = len(statement.rows)
        granted = statement.account.plan
        return rows, Plan.from_json(granted).epsilon_after(rows) if rows and granted else 0.0
    except LedgerError:
        return 0, 0.0


def _age(status: HostStatus | None) -> float:
    return math.inf if status is None else time.time() - status.written_at


def _runs(status: HostStatus | None) -> bool:
    return status is not None and not status.ended and _age(status) < FRESH_FOR


def _entry(state: str, host: HostStatus | None, agent: AgentStatus) -> dict[str, Any]:
    entry, age = {"name": agent.name, "state": state} | asdict(agent), _age(host)
    if not _runs(host):
        entry["neighbors_up"] = 0
    if agent.last_release_age_s is not None:
        entry["last_release_age_s"] = agent.last_release_age_s + age
    return entry


def _state(home: Path, host: HostStatus | None, agent: AgentStatus) -> str:
    """In few words; `down` is of its process, all others of the agent."""
    if not _runs(host) or agent.phase is None:
        return "down" if is_here(home) else "moved out" if home.is_dir() else "elsewhere"
    if agent.is_spent:
        return "budget spent"
    if agent.phase in WAITING and agent.awaited:
        return f"{WAITING[agent.phase]} {few(agent.awaited)}"
    if agent.obstacle in (None, agent.phase):
        return agent.phase
    if agent.phase is Phase.FAILED:
        return f"refused because {agent.obstacle}"
    return f"{agent.phase}: {SILENCE.get(agent.obstacle, agent.obstacle)}"


def _statuses(folder: Path) -> list[HostStatus]:
    hosts = [*(folder / AGENTS_FOLDER).glob("*"), *(folder / HOSTS_FOLDER).glob("*")]
    return [status for status in map(read_status, hosts) if status is not None]
