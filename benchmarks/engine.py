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
PLANNED_UPDATES = 4
READ_BYTES = 1 << 30
# So few that their samples stay in the cache of one core: 0.4 MB with 100 features.
AGENTS_IN_CACHE = 16
UPDATES_IN_CACHE = 4000
SEED = 1
ROOT = Path(__file__).resolve().parents[1]
# Read by the matrix libraries of NumPy and by numba when they are loaded, and never again.
ONE_THREAD: Mapping[str, str] = {
    "NUMBA_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
# Beside the numbers in the table.
MEANINGS: Mapping[str, str] = {
    "degree": "neighbors of an agent on average",
    "updates_per_second": "by all threads, median of the runs",
    "bytes_per_update": "samples, targets and neighbors' models once, the own model twice",
    "bandwidth_gb_s": "bytes_per_update × updates_per_second",
    "machine_bandwidth_gb_s": "the best of plain reads by the same threads",
    "bandwidth_share": "bandwidth_gb_s / machine_bandwidth_gb_s: of what all threads can read",
    "numpy_ratio": "the rate of the engine to that of a NumPy loop, one thread each",
    "numpy_updates_per_second": "of the NumPy loop",
    "one_thread_updates_per_second": "of the engine, in the same turns",
    "one_thread_bandwidth_share": "of the best plain read by one thread in these turns",
    "one_thread_share_of_samples": "the same of reading samples alone, of agents as far apart as in a sweep",
    "one_thread_share_in_cache": "the same of agents so few that they stay in cache: what computing allows",
    "private_updates_per_second": "Gaussian, by all threads, median of the runs",
    "private_cost_ratio": "seconds of a private update in those of a plain one",
    "one_thread_private_cost_ratio": "the same on one thread, in processor time, median of turns",
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


@njit(nogil=True, fastmath=REORDER)
def read_samples(numbers, offsets, agents):
    total = numbers.dtype.type(0)
    for agent in agents:
        total += read(numbers[offsets[agent] : offsets[agent + 1]])
    return total


def samples_bandwidth(population, apart: int, clock: Callable[[], float]) -> float:
    """Bytes a second of reading all samples, in each pass those of agents that are so far `apart`."""
    numbers, offsets = population.features.reshape(-1), population.offsets * population.features.shape[1]
    read_samples(numbers, offsets, np.arange(1))
    started = clock()
    for first in range(apart):
        read_samples(numbers, offsets, np.arange(first, population.n_agents, apart))
    return numbers.nbytes / (clock() - started)


def machine_bandwidth(numbers, threads: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Bytes a second: the best of several reads of at least 1 GB by this many threads."""
    if numbers.nbytes < READ_BYTES:
        numbers = np.ones(READ_BYTES // numbers.itemsize, numbers.dtype)
    parts = np.array_split(numbers, threads)
    read(parts[0][:16])
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            started = clock()
            list(pool.map(read, parts))
            best = min(best, clock() - started)
    return numbers.nbytes / best


def start_run(descent, limit: int, threads: int) -> DescentRun:
    return DescentRun(descent, RunSettings(SEED, limit, threads=threads))


def private_descent(problem, updates: int, mechanism: str = "gaussian"):
    """Eq. (6) with so many updates; what the budget is makes no difference to its speed."""
    accountant = None if mechanism == "gaussian" else "basic"
    privacy = PrivateUpdates(Budget(1.0, 1e-5), updates, 1.0, mechanism, accountant=accountant)
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


def engine_rate(
    descent, limit: int, until: int, threads: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Updates a second of one run, clocks included."""
    run = start_run(descent, limit, threads)
    started = clock()
    run.advance(until)
    return int(run.updates.sum()) / (clock() - started)


def numpy_rate(wakers, problem) -> float:
    """Updates a second of processor time of one run of the NumPy loop on these wake-ups in their order."""
    models = np.zeros((problem.n_agents, problem.dimension), np.float32)
    started = time.process_time()
    numpy_loop(wakers, problem, models)
    return wakers.size / (time.process_time() - started)


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


def one_thread_rates(agents: int, dimension: int, degree: int) -> list[tuple[float, ...]]:
    """Updates a second of the NumPy loop and of the engine on the same wake-ups, bytes a second read, plain
    and private updates a second, and bytes a second of samples read in pieces and of updates in cache.

    By turns and in processor time: whatever else goes on in the machine matters less.
    """
    compile_everything(1, private=True)
    problem = benchmark_problem(agents, dimension, degree)
    table = Conditions().table(np.arange(agents))
    clocks = first_clocks(table, agents)
    until = time_of_tick(agents, table, SEED, NEVER, *clocks)
    wakers = wake_order(table, clocks[1], until)
    descent = CoordinateDescent().prepare(problem, SEED).rule
    private = private_descent(problem, PLANNED_UPDATES)
    few = benchmark_problem(max(AGENTS_IN_CACHE, 2 * degree), dimension, degree)
    in_cache = CoordinateDescent().prepare(few, SEED).rule
    numbers = problem.population.features.reshape(-1)
    clock = time.process_time
    return [
        (
            numpy_rate(wakers, problem),
            engine_rate(descent, NEVER, until, 1, clock),
            machine_bandwidth(numbers, 1, clock),
            engine_rate(descent, PLANNED_UPDATES, NEVER - 1, 1, clock),
            engine_rate(private, PLANNED_UPDATES, NEVER - 1, 1, clock),
            samples_bandwidth(problem.population, degree + 1, clock),
            engine_rate(in_cache, UPDATES_IN_CACHE, NEVER - 1, 1, clock) * update_bytes(few),
        )
        for _ in range(REPEATS)
    ]


def update_bytes(problem) -> float:
    """An update reads samples, targets and the neighbors' models once, and moves the own model twice."""
    mean_samples = problem.population.n_samples / problem.n_agents
    mean_degree = problem.neighbors.neighbors.size / problem.n_agents
    return 4 * (mean_samples * (problem.dimension + 1) + (mean_degree + 2) * problem.dimension)


def run(agents: int = 100_000, dimension: int = 100, degree: int = 10, threads: int | None = None) -> dict:
    # First, so that the data is never in memory twice.
    turns = in_own_process(one_thread_rates, agents, dimension, degree, environment=ONE_THREAD)
    of_numpy, of_engine, of_reads, of_plain, of_private, of_samples, in_cache = np.array(turns).T
    threads = choose_threads(threads, agents)
    compile_everything(threads, private=True)
    problem = benchmark_problem(agents, dimension, degree)
    descent = CoordinateDescent().prepare(problem, SEED).rule
    limit = max(PLANNED_UPDATES, 300_000 // agents)
    private = private_descent(problem, limit)
    bytes_per_update = update_bytes(problem)
    machine = machine_bandwidth(problem.population.features.reshape(-1), threads)
    # By turns: whatever else goes on in the machine meets both alike.
    turns = [
        [engine_rate(one, limit, NEVER - 1, threads) for one in (descent, private)] for _ in range(REPEATS)
    ]
    rate, private_rate = np.median(turns, axis=0).tolist()
    machine = max(machine, machine_bandwidth(problem.population.features.reshape(-1), threads))
    return {
        "agents": agents,
        "dimension": dimension,
        "degree": problem.neighbors.neighbors.size / agents,
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
        "one_thread_share_of_samples": float(np.median(of_samples) / of_reads.max()),
        "one_thread_share_in_cache": float(np.median(in_cache) / of_reads.max()),
        "private_updates_per_second": private_rate,
        "private_cost_ratio": rate / private_rate,
        "one_thread_private_cost_ratio": float(np.median(of_plain / of_private)),
    }
