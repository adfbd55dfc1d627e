"""How fast the cpu engine runs, as ratios taken in one run: to the memory bandwidth, and to a NumPy loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from benchmarks.numpy_loop import numpy_loop
from benchmarks.workload import benchmark_problem
from flockwise.engine.base import RunSettings
from flockwise.engine.conditions import Conditions, scheduled_tick
from flockwise.engine.cpu import DescentRun
from flockwise.engine.cpu.kernels import REORDER
from flockwise.engine.cpu.sweeps import choose_threads
from flockwise.engine.schedule import time_of_tick
from flockwise.engine.state import first_ticks
from flockwise.errors import FlockwiseError
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.privacy.budget import Budget
from flockwise.randomness.clocks import NEVER

REPEATS = 5
READ_BYTES = 1 << 30
SEED = 1
ROOT = Path(__file__).resolve().parents[1]
# Read by the matrix libraries of NumPy when they are loaded, and never again.
ONE_THREAD: Mapping[str, str] = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def in_own_process(
    function: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None
) -> Any:
    """What a function of a module returns in a fresh process, whose memory and threads are its own."""
    module, name = function.__module__, function.__name__
    code = f"import json; from {module} import {name}; print(json.dumps({name}(*{arguments!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise FlockwiseError(f"{module}.{name} failed with code {done.returncode}:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


@njit(nogil=True, fastmath=REORDER)
def read(numbers):
    total = numbers.dtype.type(0)
    for k in range(numbers.shape[0]):
        total += numbers[k]
    return total


def machine_bandwidth(numbers, threads: int) -> float:
    """Bytes a second: the best of several reads of at least 1 GB by this many threads."""
    if numbers.nbytes < READ_BYTES:
        numbers = np.ones(READ_BYTES // numbers.itemsize, numbers.dtype)
    parts = np.array_split(numbers, threads)
    read(parts[0][:16])
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            started = time.perf_counter()
            list(pool.map(read, parts))
            best = min(best, time.perf_counter() - started)
    return numbers.nbytes / best


def start_run(descent, limit: int, threads: int) -> DescentRun:
    return DescentRun(descent, RunSettings(SEED, limit, threads=threads))


def private_descent(problem, updates: int):
    """Eq. (6) with so many updates; what the budget is makes no difference to its speed."""
    privacy = PrivateUpdates(Budget(1.0, 1e-5), updates, clip=1.0)
    return CoordinateDescent(privacy=privacy).prepare(problem, SEED).rule


def compile_everything(threads: int, *, private: bool = False) -> None:
    """Run once on a toy problem, so that no measurement includes compilation."""
    problem = benchmark_problem(64, 4, 4)
    descents = [CoordinateDescent().prepare(problem, SEED).rule]
    if private:
        descents.append(private_descent(problem, 2))
    table = Conditions().table(np.arange(64))
    for descent in descents:
        start_run(descent, 2, threads).advance(NEVER - 1)
    time_of_tick(10, table, SEED, NEVER, *first_clocks(table, 64))


def first_clocks(table, agents: int):
    """Everyone's number, first tick, and updates done."""
    ids = np.arange(agents)
    return ids, first_ticks(table, np.uint64(SEED), ids), np.zeros(agents, np.int64)


def engine_rate(descent, limit: int, until: int, threads: int) -> float:
    """Updates a second of one run, clocks included."""
    run = start_run(descent, limit, threads)
    started = time.perf_counter()
    run.advance(until)
    return int(run.updates.sum()) / (time.perf_counter() - started)


def numpy_rate(wakers, problem) -> float:
    """Updates a second of one run of the NumPy loop on these wake-ups in their order."""
    models = np.zeros((problem.n_agents, problem.dimension), np.float32)
    started = time.perf_counter()
    numpy_loop(wakers, problem, models)
    return wakers.size / (time.perf_counter() - started)


def updates_per_second(descent, limit: int, threads: int) -> float:
    """Median of several runs over the same wake-ups."""
    return float(np.median([engine_rate(descent, limit, NEVER - 1, threads) for _ in range(REPEATS)]))


def wake_order(table, next_ticks, until: int):
    """Which agent wakes at each tick up to `until`."""
    times, agents = [], []
    for agent, tick in enumerate(next_ticks.tolist()):
        update = 0
        while tick <= until:
            times.append(tick)
            agents.append(agent)
            update += 1
            tick = scheduled_tick(table, np.uint64(SEED), agent, update, tick)
    return np.array(agents)[np.lexsort((agents, times))]


def one_thread_rates(agents: int, dimension: int, degree: int) -> list[tuple[float, float, float]]:
    """Updates a second of the NumPy loop and of the engine on the same wake-ups, and bytes a second read.

    By turns, so that whatever else goes on in the machine meets all alike.
    """
    compile_everything(1)
    problem = benchmark_problem(agents, dimension, degree)
    table = Conditions().table(np.arange(agents))
    clocks = first_clocks(table, agents)
    until = time_of_tick(agents, table, SEED, NEVER, *clocks)
    wakers = wake_order(table, clocks[1], until)
    descent = CoordinateDescent().prepare(problem, SEED).rule
    numbers = problem.population.features.reshape(-1)
    return [
        (
            numpy_rate(wakers, problem),
            engine_rate(descent, NEVER, until, 1),
            machine_bandwidth(numbers, 1),
        )
        for _ in range(REPEATS)
    ]


def run(agents: int = 100_000, dimension: int = 100, degree: int = 10, threads: int | None = None) -> dict:
    # First, so that the data is never in memory twice.
    turns = in_own_process(one_thread_rates, agents, dimension, degree, environment=ONE_THREAD)
    of_numpy, of_engine, of_reads = np.array(turns).T
    threads = choose_threads(threads, agents)
    compile_everything(threads, private=True)
    problem = benchmark_problem(agents, dimension, degree)
    descent = CoordinateDescent().prepare(problem, SEED).rule
    limit = max(3, 300_000 // agents)
    mean_samples = problem.population.n_samples / agents
    mean_degree = problem.neighbors.neighbors.size / agents
    bytes_per_update = 4 * (mean_samples * (dimension + 1) + (mean_degree + 2) * dimension)
    machine = machine_bandwidth(problem.population.features.reshape(-1), threads)
    rate = updates_per_second(descent, limit, threads)
    machine = max(machine, machine_bandwidth(problem.population.features.reshape(-1), threads))
    private_rate = updates_per_second(private_descent(problem, limit), limit, threads)
    return {
        "agents": agents,
        "dimension": dimension,
        "degree": mean_degree,
        "threads": threads,
        "updates_per_second": rate,
        "bytes_per_update": bytes_per_update,
        "bandwidth_gb_s": rate * bytes_per_update / 1e9,
        "machine_bandwidth_gb_s": machine / 1e9,
        "bandwidth_share": rate * bytes_per_update / machine,
        "numpy_ratio": float(np.median(of_engine / of_numpy)),
        "numpy_updates_per_second": float(np.median(of_numpy)),
        "one_thread_updates_per_second": float(np.median(of_engine)),
        "one_thread_bandwidth_share": float(np.median(of_engine) * bytes_per_update / of_reads.max()),
        "private_updates_per_second": private_rate,
        "private_cost_ratio": rate / private_rate,
    }
