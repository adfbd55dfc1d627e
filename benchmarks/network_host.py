"""One process of the network benchmark: a host as `flockwise agent run` makes it, and a stopwatch."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.deploy.folder import HostFolder
from flockwise.net.node import Node
from flockwise.runtime.host import Host
from flockwise.runtime.run import open_host

# Files in the host's folder by which the benchmark and its processes talk to each other.
READY, WINDOW, DONE = "ready", "window", "done"
SENT = np.dtype([("sender", "<i4"), ("number", "<i8"), ("time", "<f8"), ("listeners", "<i4")])
ARRIVED = np.dtype([("sender", "<i4"), ("number", "<i8"), ("time", "<f8")])


def latencies(sent: NDArray[Any], arrived: NDArray[Any]) -> NDArray[np.float64]:
    """Of every delivery of the messages in `sent`, in seconds."""
    if not len(sent):
        return np.empty(0)
    keys = sent["sender"].astype(np.int64) << 32 | sent["number"]
    order = np.argsort(keys)
    wanted = arrived["sender"].astype(np.int64) << 32 | arrived["number"]
    place = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    is_known = keys[place] == wanted
    return arrived["time"][is_known] - sent["time"][place[is_known]]


def read_report(folder: Path) -> dict[str, Any]:
    arrays = {name: np.load(folder / f"{name}.npy") for name in ("sent", "arrived")}
    return json.loads((folder / "report.json").read_text()) | arrays


class Watch:
    """Notes when the messages of a host leave, and when those of others are accepted."""

    def __init__(self, host: Host) -> None:
        self.sent: list[tuple[int, int, float, int]] = []
        self.arrived: list[tuple[int, int, float]] = []
        self._indices = {}
        for one in host.participants:
            self._indices[one.node.name] = one.neighborhood.index
            self._indices |= {link.name: link.index for link in one.neighborhood.neighbors}
        nodes = {one.node.name: one.node for one in host.participants}
        self._watch_sending(host, nodes)
        for node in nodes.values():
            self._watch_hearing(node)

    def _watch_sending(self, host: Host, nodes: dict[str, Node]) -> None:
        publish = host.link.publish

        def watched(sender: str, data: bytes) -> None:
            node = nodes[sender]
            note = (self._indices[sender], node.sent.number, time.monotonic(), len(node.agent.neighbors))
            self.sent.append(note)
            publish(sender, data)

        host.link.publish = watched

    def _watch_hearing(self, node: Node) -> None:
        hear, intake = node.on_published, node.intake

        def watched(sender: str, data: bytes) -> None:
            before = intake.accepted
            hear(sender, data)
            number = intake.last_number(sender)
            if intake.accepted > before and number is not None:
                self.arrived.append((self._indices[sender], number, time.monotonic()))

        node.on_published = watched


async def run(path: Path) -> None:
    """Until the benchmark ends this process."""
    async with open_host(HostFolder.read(path), owns_process=True) as host, asyncio.TaskGroup() as tasks:
        watch = Watch(host)
        tasks.create_task(host.run())
        tasks.create_task(_measure(path, host, watch))


async def _measure(path: Path, host: Host, watch: Watch) -> None:
    while any(len(r.node.neighbors_up) < len(r.neighborhood.neighbors) for r in host.participants):
        await asyncio.sleep(0.05)
    (path / READY).touch()
    while not (path / WINDOW).exists():
        await asyncio.sleep(0.05)
    begin, end, patience = map(float, (path / WINDOW).read_text().split())
    await asyncio.sleep(max(0.0, begin - time.monotonic()))
    cpu = _cpu_seconds()
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    cpu, memory = _cpu_seconds() - cpu, _memory_mb()
    await asyncio.sleep(patience)
    _write(path, watch, host, (begin, end), cpu, memory)


def _write(
    path: Path, watch: Watch, host: Host, window: tuple[float, float], cpu: float, memory: float
) -> None:
    agents = host.take_status().agents
    report = {
        "cpu_seconds": cpu,
        "memory_mb": memory,
        "dropped": sum(sum(agent.dropped.values()) for agent in agents),
        "failures": sum(agent.obstacle is not None for agent in agents),
    }
    sent = np.array(watch.sent, SENT)
    begin, end = window
    np.save(path / "sent.npy", sent[(sent["time"] >= begin) & (sent["time"] < end)])
    np.save(path / "arrived.npy", np.array(watch.arrived, ARRIVED))
    (path / "report.json").write_text(json.dumps(report))
    (path / DONE).touch()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
