"""How the agents of a network on this machine are doing, from what their processes write down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from flockwise.net.folder import AGENT_FILE, STATE_FOLDER, STATUS_FILE, AgentFile, read_toml
from flockwise.net.promise import promise
from flockwise.net.setup import AGENTS_FOLDER, HOSTS_FOLDER, NetworkPlan

# A process writes every second; one that has not for so long is down, or hangs.
FRESH_FOR: Final = 5.0
NOTHING_YET: Final[dict[str, Any]] = {
    "updates": 0,
    "releases": 0,
    "epsilon_spent": None,
    "epsilon_total": None,
    "neighbors_up": 0,
    "dropped": {},
    "last_release_age_s": None,
    "obstacle": None,
    "rounds": None,
    "is_over": None,
}


def agents_in(folder: Path) -> list[dict[str, Any]]:
    """One entry per agent, in the order of the network; `state` says whether it runs."""
    names = NetworkPlan.read(folder).names
    latest: dict[str, tuple[float, dict[str, Any]]] = {}
    for status in _statuses(_hosts(folder)):
        for agent in status["agents"]:
            written = status["written_at"]
            if agent["name"] not in latest or latest[agent["name"]][0] < written:
                latest[agent["name"]] = (written, agent)
    return [_entry(name, *latest.get(name, (0.0, {}))) for name in names]


def refused_connections(folder: Path) -> dict[str, int]:
    """How many connections were refused and how many strangers came, since the processes that run began."""
    running = [s for s in _statuses(_hosts(folder)) if time.time() - s["written_at"] < FRESH_FOR]
    return {what: sum(status[what] for status in running) for what in ("refused", "strangers")}


def promise_in(folder: Path) -> str:
    """What the agents on this machine guarantee, by the settings that they run with."""
    plan = NetworkPlan.read(folder)
    homes = (folder / AGENTS_FOLDER / name for name in plan.names)
    files = [home / AGENT_FILE for home in homes if (home / AGENT_FILE).is_file()]
    return promise(plan.network_settings, [read_toml(file, AgentFile).privacy for file in files])


def fresh_statuses(hosts: Iterable[Path], pid: int) -> list[dict[str, Any]]:
    """What this process has written."""
    return [status for status in _statuses(hosts) if status["pid"] == pid]


def _entry(name: str, written: float, agent: dict[str, Any]) -> dict[str, Any]:
    age = time.time() - written
    entry: dict[str, Any] = {"name": name, "state": "down"} | NOTHING_YET | agent
    if age < FRESH_FOR:
        entry["state"] = entry["obstacle"] or "up"
    else:
        entry["neighbors_up"] = 0
    if entry["last_release_age_s"] is not None:
        entry["last_release_age_s"] += age
    return entry


def _hosts(folder: Path) -> list[Path]:
    return [*sorted((folder / AGENTS_FOLDER).glob("*")), *sorted((folder / HOSTS_FOLDER).glob("*"))]


def _statuses(hosts: Iterable[Path]) -> list[dict[str, Any]]:
    found = []
    for host in hosts:
        try:
            found.append(json.loads((host / STATE_FOLDER / STATUS_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # not started yet, or being replaced
            continue
    return found
