"""How far ahead to read samples, and what huge pages give: python -m benchmarks.ahead.

One thread and processor time. Each kind of memory pages has a process of its own, and both have a copy of the
cpu engine for each distance. All take turns, and medians are shown.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.engine import SEED, machine_bandwidth, update_bytes
from benchmarks.workload import benchmark_problem
from flockwise.engine.base import RunSettings
from flockwise.method import CoordinateDescent
from flockwise.randomness.clocks import NEVER

DEGREE = 10
UPDATES = 400_000
# Rows that are scored together before their gradients are added up, and rows between the one in work and the
# one whose read starts. 0: only rows in work, so nothing is read ahead.
DISTANCES = ((16, 0), (8, 8), (16, 16), (16, 32), (32, 32), (16, 64), (64, 64))
# The modules that these constants reach, in the order of their imports.
COPIED = ("kernels", "links", "sweeps", "descent")
DISABLE_HUGE_PAGES = 41  # of prctl


class Bench(NamedTuple):
    """What a process keeps from turn to turn."""

    problem: Any
    rule: Any
    engines: list[Any]
    updates: int


_bench: Bench


def engine_copy(rows_at_once: int, rows_ahead: int) -> Any:
    """The run of the cpu engine, from modules of its own with other constants."""
    names = [f"flockwise.engine.cpu.{module}" for module in COPIED]
    usual = {name: sys.modules.pop(name) for name in names}
    try:
        kernels: Any = import_module(names[0])
        kernels.ROWS_AT_ONCE, kernels.ROWS_AHEAD = rows_at_once, rows_ahead
        return import_module(names[-1]).DescentRun
    finally:
        sys.modules.update(usual)


def prepare(agents: int, dimension: int, huge_pages: bool, folder: str) -> None:
    """Before any large memory is asked for: whether it may lie in huge pages."""
    global _bench
    if not huge_pages and ctypes.CDLL(None).prctl(DISABLE_HUGE_PAGES, 1, 0, 0, 0):
        raise OSError("this system does not let a process do without huge pages")
    problem = benchmark_problem(agents, dimension, DEGREE)
    rule = CoordinateDescent().prepare(problem, SEED).rule
    engines = []
    for distance in DISTANCES:
        # The name of compiled code does not say which constants it was compiled with.
        os.environ["FLOCKWISE_CACHE"] = str(Path(folder, "-".join(map(str, distance))))
        engine = engine_copy(*distance)
        engine(rule, RunSettings(SEED, 1, threads=1)).advance(NEVER - 1, 1)
        engines.append(engine)
    _bench = Bench(problem, rule, engines, max(UPDATES // agents, 2))


def turn(first: int) -> list[float]:
    """Of each distance: the bytes of its updates in a second, as a share of a plain read right before.

    first: where the round begins, so that no distance has the same place in every turn.
    """
    read = machine_bandwidth(_bench.problem.population.features.reshape(-1), 1, time.process_time)
    shares = [0.0] * len(DISTANCES)
    for place in (*range(first, len(DISTANCES)), *range(first)):
        run = _bench.engines[place](_bench.rule, RunSettings(SEED, _bench.updates, threads=1))
        started = time.process_time()
        run.advance(NEVER - 1)
        rate = int(run.updates.sum()) / (time.process_time() - started)
        shares[place] = rate * update_bytes(_bench.problem) / read
    return [read / 1e9, *shares]


def huge_share() -> float:
    """Of this process's memory, how much lies in huge pages."""
    sizes = dict(re.findall(r"(\w+): +(\d+) kB", Path("/proc/self/smaps_rollup").read_text()))
    return int(sizes["AnonHugePages"]) / int(sizes["Rss"])


def measure(agents: int, dimension: int, turns: int, folder: str) -> None:
    context = multiprocessing.get_context("spawn")
    workers = {
        kind: ProcessPoolExecutor(1, context, prepare, (agents, dimension, kind == "huge", folder))
        for kind in ("huge", "small")
    }
    # One after the other, so that the second one finds the code that the first has compiled.
    shares = {kind: worker.submit(huge_share).result() for kind, worker in workers.items()}
    found = [
        {kind: worker.submit(turn, number % len(DISTANCES)).result() for kind, worker in workers.items()}
        for number in range(turns)
    ]
    for worker in workers.values():
        worker.shutdown()
    print(f"\n{agents:,} agents, {dimension} features; {turns} turns")
    print("| pages | in huge ones | read, GB/s |" + "".join(f" {a} / {b} |" for a, b in DISTANCES))
    print("|---|" + "---|" * (len(DISTANCES) + 2))
    for kind, share in shares.items():
        read, *medians = np.median([one[kind] for one in found], axis=0)
        print(f"| {kind} | {share:.0%} | {read:.1f} |" + "".join(f" {median:.3f} |" for median in medians))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for agents in given.agents:
            for dimension in given.dimensions:
                measure(agents, dimension, given.turns, folder)
