"""What an agent does now, in words for people, and which phase may follow which.

`ALLOWED` is checked on every change, and docs/network.md prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from flockwise.errors import NetworkError
from flockwise.net.node import Node


class Phase(StrEnum):
    STARTING = "starting"
    WAITING = "waiting"
    LEARNING = "learning"
    TALKING = "talking"
    DONE = "done"
    SILENT = "silent"
    REMOVED = "removed"
    FAILED = "failed"


MEANING: Final[Mapping[Phase, str]] = {
    Phase.STARTING: "Its process has just begun",
    Phase.WAITING: "It releases only while a neighbor is connected and has greeted it; it waits for one",
    Phase.LEARNING: "It updates its model and sends it",
    Phase.TALKING: "It has released once, and talks with its neighbors in rounds",
    Phase.DONE: "It has made all of its updates, or its conversation has ended; it still listens",
    Phase.SILENT: "Its disk, its ledger or an old copy of its ledger keeps it from sending",
    Phase.REMOVED: "The network's authority has removed it; it sends nothing, and nobody listens to it",
    Phase.FAILED: "An error took it out; its process goes on with the others",
}

# Why an agent is silent (flockwise.net.node.Obstacle).
SILENCE: Final[Mapping[str, str]] = {
    "behind": "its ledger is an old copy",
    "ledger": "its ledger cannot be written",
    "store": "its state cannot be written",
}

# These can come at any time. Silence ends with a new start, which begins at the top.
_ANY_TIME: Final = frozenset({Phase.SILENT, Phase.REMOVED, Phase.FAILED})
ALLOWED: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.STARTING: _ANY_TIME | {Phase.WAITING, Phase.LEARNING, Phase.TALKING, Phase.DONE},
    Phase.WAITING: _ANY_TIME | {Phase.LEARNING, Phase.TALKING, Phase.DONE},
    Phase.LEARNING: _ANY_TIME | {Phase.WAITING, Phase.TALKING, Phase.DONE},
    Phase.TALKING: _ANY_TIME | {Phase.DONE},
    Phase.DONE: _ANY_TIME | {Phase.WAITING, Phase.LEARNING},
    Phase.SILENT: frozenset({Phase.REMOVED, Phase.FAILED}),
    Phase.REMOVED: frozenset(),
    Phase.FAILED: frozenset(),
}


def phase_of(node: Node, now: int) -> Phase:
    """Of an agent whose node was started."""
    if node.obstacle is not None:
        return Phase.SILENT
    if node.role.is_over:
        return Phase.DONE
    if node.agent.next_tick is None:
        return Phase.DONE if node.role.rounds is None else Phase.TALKING
    return Phase.LEARNING if node.may_release(now) else Phase.WAITING


def check_change(agent: str, before: Phase, after: Phase) -> None:
    """Refuse a change that no agent makes: something in it is broken, and it must not release any more."""
    if after not in ALLOWED[before] | {before}:
        raise NetworkError(f"agent {agent!r}: went from {before.value!r} to {after.value!r}, which cannot be")


def table() -> str:
    """The phases as a table of Markdown."""
    rows = []
    for phase, meaning in MEANING.items():
        following = [f"`{after}`" for after in Phase if after in ALLOWED[phase]]
        rows.append(f"| `{phase}` | {meaning} | {', '.join(following) or '–'} |")
    return "\n".join(["| phase | what it means | what may follow |", "|---|---|---|", *rows])
