"""Real agents on this machine: several processes, mutual TLS, every agent on its own clock.

What is measured: how long the network takes to come up; which share of the messages arrives, and when;
what an agent costs in time and memory. The folders and the processes are those of `flockwise network`. A
message has arrived when the receiver's intake has accepted it: signature, number and content checked.
When it left and when it arrived is told by the clock of the machine, which all processes share.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine import ONE_THREAD, ROOT
from benchmarks.network_host import DONE, READY, WINDOW, latencies, read_report
from flockwise.data import Samples
from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.settings import NetworkSettings
from flockwise.deploy.setup import Member, create_network, free_addresses, host_together
from flockwise.errors import FlockwiseError
from flockwise.graph import random_graph
from flockwise.objective import Objective

SEED = 0
N_SAMPLES = 20
BUDGET = OwnBudget(epsilon=1.0, delta=1e-5, updates=100, clip=1.0)
WARM_UP = 3.0  # seconds
# A message that takes longer than this is counted as lost.
PATIENCE = 5.0  # seconds
TIME_TO_START = 300.0  # seconds


def run(
    agents: int = 1000,
    degree: int = 10,
    dimension: int = 100,
    processes: int = 4,
    seconds: float = 30.0,
    rate: float = 1.0,
    private: bool = False,
) -> dict[str, Any]:
    """All numbers of one run. `rate` is in updates a second of every agent."""
    with tempfile.TemporaryDirectory(prefix="flockwise-bench-") as name:
        folder = Path(name) / "network"
        _make(folder, agents, degree, dimension, rate, private)
        hosts = host_together(folder, processes)
        began = time.monotonic()
        with _running(hosts) as running:
            _wait_for(READY, hosts, running, TIME_TO_START)
            start_seconds = time.monotonic() - began
            begin = time.monotonic() + WARM_UP
            for host in hosts:
                _tell(host / WINDOW, f"{begin!r} {begin + seconds!r} {PATIENCE!r}")
            _wait_for(DONE, hosts, running, WARM_UP + seconds + PATIENCE + 60)
        reports = [read_report(host) for host in hosts]
    return {
        "agents": agents,
        "degree": degree,
        "dimension": dimension,
        "processes": processes,
        "private": private,
        "updates_per_second_and_agent": rate,
        "cores": os.cpu_count() or 1,
        "seconds": seconds,
        "start_seconds": start_seconds,
        **_summary(reports, agents, seconds),
    }


def _make(folder: Path, agents: int, degree: int, dimension: int, rate: float, private: bool) -> None:
    """What `flockwise network init` does, on random samples."""
    random = np.random.default_rng(SEED)
    members = []
    for i, address in enumerate(free_addresses("127.0.0.1", agents)):
        features = random.uniform(-1, 1, (N_SAMPLES, dimension)) / np.sqrt(dimension)
        targets = np.where(features[:, 0] > 0, 1.0, -1.0)
        samples = Samples(features, targets)
        members.append(Member(f"agent{i:05d}", samples, BUDGET if private else None, address))
    objective = Objective(tradeoff=0.1, l2=0.01, max_samples=N_SAMPLES, feature_bound=1.0)
    settings = NetworkSettings(objective, "dp" if private else "none")
    graph = random_graph(agents, degree, SEED)
    create_network(folder, "benchmark", members, graph, settings, dimension=dimension, tick_rate=rate)


@contextmanager
def _running(hosts: list[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes; none of them outlives the measurement."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.network_host", str(host)],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
        )
        for host in hosts
    ]
    try:
        yield running
    finally:
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(what: str, hosts: list[Path], running: list[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not all((host / what).exists() for host in hosts):
        if any(process.poll() is not None for process in running) or time.monotonic() > deadline:
            raise FlockwiseError(f"benchmark of the network: not every process got as far as {what!r}")
        time.sleep(0.01)


def _tell(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def _summary(reports: list[dict[str, Any]], agents: int, seconds: float) -> dict[str, Any]:
    sent = np.concatenate([report["sent"] for report in reports])
    arrived = np.concatenate([report["arrived"] for report in reports])
    waits = latencies(sent, arrived)
    expected, on_time = int(sent["listeners"].sum()), int((waits <= PATIENCE).sum())
    middle, late, latest = np.percentile(waits, [50, 99, 100]) if len(waits) else [np.nan] * 3
    cpu = sum(report["cpu_seconds"] for report in reports)
    memory = sum(report["memory_mb"] for report in reports)
    return {
        "updates_per_second": len(sent) / seconds,
        "messages": expected,
        "delivered_share": on_time / expected if expected else 0.0,
        "deliveries_per_second": on_time / seconds,
        "latency_p50_ms": 1e3 * float(middle),
        "latency_p99_ms": 1e3 * float(late),
        "latency_max_ms": 1e3 * float(latest),
        "cpu_cores": cpu / seconds,
        "cpu_ms_per_agent_and_second": 1e3 * cpu / agents / seconds,
        "memory_mb": memory,
        "memory_mb_per_agent": memory / agents,
        "messages_dropped": sum(report["dropped"] for report in reports),
        "failures": sum(report["failures"] for report in reports),
    }
