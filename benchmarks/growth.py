"""What one update, a start and a run's memory cost as the number of agents grows."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.engine import (
    ONE_THREAD,
    SEED,
    compile_everything,
    in_own_process,
    machine_bandwidth,
    private_descent,
    start_run,
    update_bytes,
)
from benchmarks.workload import benchmark_problem
from flockwise.engine.cpu.sweeps import choose_threads
from flockwise.method import CoordinateDescent
from flockwise.objective import Problem
from flockwise.randomness.clocks import NEVER

SIZES = (10_000, 100_000, 1_000_000)
DIMENSION = 20
DEGREE = 10
REPEATS = 5
# A start is compared with so many updates of every agent.
UPDATES_PER_START = 10
# The unit in which the system reports peak memory.
RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024


def clock_for(threads: int) -> Callable[[], float]:
    """Processor time for one thread: what else runs on the machine then matters less."""
    return time.process_time if threads == 1 else time.perf_counter


def start_seconds(problem: Problem, threads: int, *, private: bool = False) -> float:
    """From arrays to the first update: all checks, the rule, the clocks, and who ticks before whom."""
    clock = clock_for(threads)
    started = clock()
    # New ones, which have checked and kept nothing.
    problem = Problem(replace(problem.population), replace(problem.neighbors), problem.objective)
    rule = (
        private_descent(problem, UPDATES_PER_START)
        if private
        else CoordinateDescent().prepare(problem, SEED).rule
    )
    # No sweep, but all that comes before one.
    start_run(rule, UPDATES_PER_START, threads).advance(NEVER - 1, 0)
    return clock() - started


def measure(agents: int, threads: int | None = None) -> dict:
    """One size, in this process: seconds per update and to start, and memory against the size of the data."""
    threads = choose_threads(threads, agents)
    clock = clock_for(threads)
    compile_everything(threads, private=True)
    problem = benchmark_problem(agents, DIMENSION, DEGREE)
    population = problem.population
    descent = CoordinateDescent().prepare(problem, SEED).rule
    limit = max(2, 1_000_000 // agents)
    seconds, starts = [], []
    # By turns: whatever else goes on in the machine meets both alike.
    for _ in range(REPEATS):
        starts.append(start_seconds(problem, threads))
        run = start_run(descent, limit, threads)
        started = clock()
        run.advance(NEVER - 1)
        seconds.append((clock() - started) / int(run.updates.sum()))
    data_bytes = population.features.nbytes + population.targets.nbytes
    resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RESIDENT_UNIT
    # What follows needs memory of its own.
    private_starts = [start_seconds(problem, threads, private=True) for _ in range(REPEATS)]
    machine = machine_bandwidth(population.features.reshape(-1), threads, clock)
    update = float(np.median(seconds))
    ten_updates = UPDATES_PER_START * agents * update
    return {
        "agents": agents,
        "seconds_per_update": update,
        "seconds_at_bandwidth": update_bytes(problem) / machine,
        "start_seconds": float(np.median(starts)),
        "start_in_ten_updates": float(np.median(starts)) / ten_updates,
        "private_start_in_ten_updates": float(np.median(private_starts)) / ten_updates,
        "data_gb": data_bytes / 1e9,
        "peak_resident_gb": resident_bytes / 1e9,
        "memory_ratio": resident_bytes / data_bytes,
    }


def run(threads: int | None = None) -> dict:
    """Each size in a process of its own, so that its memory is its own."""
    environment = ONE_THREAD if threads == 1 else None
    rows = [in_own_process(measure, agents, threads, environment=environment) for agents in SIZES]
    smallest, largest = rows[0], rows[-1]
    return {
        "threads": "as many as pay" if threads is None else threads,
        "dimension": DIMENSION,
        "degree": DEGREE,
        "rows": rows,
        "update_cost_ratio": largest["seconds_per_update"] / smallest["seconds_per_update"],
        "memory_ratio": largest["memory_ratio"],
    }
