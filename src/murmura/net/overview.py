"""How the agents of a network on this machine are doing, from what their processes write down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from murmura.net.folder import STATE_FOLDER, STATUS_FILE
from murmura.net.setup import AGENTS_FOLDER, HOSTS_FOLDER, Blueprint

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
    names = Blueprint.read(folder).names
    hosts = [*(folder / AGENTS_FOLDER / name for name in names), *sorted((folder / HOSTS_FOLDER).glob("*"))]
    latest: dict[str, tuple[float, dict[str, Any]]] = {}
    for status in _statuses(hosts):
        for agent in status["agents"]:
            written = status["written_at"]
            if agent["name"] not in latest or latest[agent["name"]][0] < written:
                latest[agent["name"]] = (written, agent)
    return [_entry(name, *latest.get(name, (0.0, {}))) for name in names]


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


def _statuses(hosts: Iterable[Path]) -> list[dict[str, Any]]:
    found = []
    for host in hosts:
        try:
            found.append(json.loads((host / STATE_FOLDER / STATUS_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # not started yet, or being replaced
            continue
    return found
