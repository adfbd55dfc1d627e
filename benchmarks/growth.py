"""What one update costs and how much memory a run takes, as the number of agents grows."""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from benchmarks.engine import SEED, compile_everything, in_own_process, start_run
from benchmarks.workload import benchmark_problem
from flockwise.engine.cpu.sweeps import choose_threads
from flockwise.method import CoordinateDescent
from flockwise.randomness.clocks import NEVER

SIZES = (10_000, 100_000, 1_000_000)
DIMENSION = 20
DEGREE = 10
REPEATS = 5
# The unit in which the system reports peak memory.
RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024


def measure(agents: int) -> dict:
    """One size, in this process: seconds per update, and memory against the size of the data."""
    threads = choose_threads(None, agents)
    compile_everything(threads)
    problem = benchmark_problem(agents, DIMENSION, DEGREE)
    descent = CoordinateDescent().prepare(problem, SEED).rule
    limit = max(2, 1_000_000 // agents)
    seconds = []
    for _ in range(REPEATS):
        run = start_run(descent, limit, threads)
        started = time.perf_counter()
        run.advance(NEVER - 1)
        seconds.append((time.perf_counter() - started) / int(run.updates.sum()))
    population = problem.population
    data_bytes = population.features.nbytes + population.targets.nbytes
    resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RESIDENT_UNIT
    return {
        "agents": agents,
        "seconds_per_update": float(np.median(seconds)),
        "data_gb": data_bytes / 1e9,
        "peak_resident_gb": resident_bytes / 1e9,
        "memory_ratio": resident_bytes / data_bytes,
    }


def run() -> dict:
    """Each size in a process of its own, so that its memory is its own."""
    rows = [in_own_process(measure, agents) for agents in SIZES]
    smallest, largest = rows[0], rows[-1]
    return {
        "dimension": DIMENSION,
        "degree": DEGREE,
        "rows": rows,
        "update_cost_ratio": largest["seconds_per_update"] / smallest["seconds_per_update"],
        "memory_ratio": largest["memory_ratio"],
    }
