"""How fast the gpu engine runs, as a share of the bandwidth of a copy, and whether it does what the CPU does.

An update reads each sample of the agent once, its own and its neighbors' models, and writes its own: these
bytes are counted, of a private update as well. Its rate includes all that happens between barriers.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.engine import SEED, private_descent, update_bytes
from benchmarks.workload import benchmark_problem, knn_graph
from flockwise.engine import ENGINES, RunSettings, simulate
from flockwise.errors import FlockwiseError
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.objective import Problem
from flockwise.privacy.budget import Budget
from flockwise.randomness.clocks import NEVER, TIME_UNIT

COPY_BYTES = 8 << 30
REPEATS = 10
DEGREE = 10
KNN_NEIGHBORS = 8
PLANNED_UPDATES = 60
WARM_UP, MEASURED = 1, 12  # units of time: so many ticks of an agent on average
# Agents with 20 features, whose cost is compared as their number grows.
GROWTH = {
    "ten thousand": 10_000,
    "hundred thousand": 100_000,
    "one million": 1_000_000,
    "four million": 4_000_000,
    "ten million": 10_000_000,
}
CASES = ("parity", "random", "knn", "gaussian", "laplace", *GROWTH)


def run(cases: Sequence[str] = CASES, agents: int = 1_000_000, tunings: Sequence[str] = ()) -> dict:
    """The named cases; `agents` for those with 100 features. tunings: like "rows=8,programs=16"."""
    missing = ENGINES["gpu"].missing()
    if missing is not None:
        raise missing
    import torch
    import triton

    unknown = set(cases) - set(CASES)
    if unknown:
        raise FlockwiseError(f"there is no case {min(unknown)!r}; choose of {', '.join(CASES)}")
    bandwidth = copy_bandwidth()
    result: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy_bandwidth_gb_s": bandwidth / 1e9,
        "rows": [],
    }
    if "parity" in cases:
        result |= parity()
    for row in measure_all(cases, agents, tunings):
        row["seconds_per_update"] = 1 / row["updates_per_second"]
        row["seconds_at_bandwidth"] = row["bytes_per_update"] / bandwidth
        row["bandwidth_share"] = row["seconds_at_bandwidth"] / row["seconds_per_update"]
        result["rows"].append(row)
    return result


def copy_bandwidth() -> float:
    """Bytes a second read and written by a copy on the device: the median of several."""
    import torch

    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    seconds = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * COPY_BYTES / float(np.median(seconds))


def parity(agents: int = 3000, updates: int = 10) -> dict:
    """The same runs on both engines: whether all events are equal, and how far the models are apart."""
    found = {}
    for dimension in (20, 100):
        problem = benchmark_problem(agents, dimension, DEGREE)
        hubs = Problem(problem.population, knn_graph(agents, KNN_NEIGHBORS), problem.objective)
        private = [
            CoordinateDescent(privacy=PrivateUpdates(Budget(5.0, 1e-5), updates, 1.0, *kind))
            for kind in (("gaussian", "gdp"), ("laplace", "basic"))
        ]
        runs = (("random", problem, CoordinateDescent()), ("knn", hubs, CoordinateDescent()))
        runs += (("gaussian", problem, private[0]), ("laplace", problem, private[1]))
        for name, task, method in runs:
            cpu, gpu = (
                simulate(task, method, engine=engine, seed=SEED, updates=updates, record_every=None)
                for engine in ("cpu", "gpu")
            )
            same = all(np.array_equal(cpu.state[key], gpu.state[key]) for key in ("next_ticks", "updates"))
            apart = np.linalg.norm(cpu.state["models"] - gpu.state["models"])
            found[f"{name} {dimension}"] = (same, float(apart / np.linalg.norm(cpu.state["models"])))
    return {
        "parity_updates": 8 * agents * updates,
        "parity_same_events": all(same for same, _ in found.values()),
        "parity_model_error": max(error for _, error in found.values()),
        "parity_errors": [error for _, error in found.values()],
    }


def measure_all(cases: Sequence[str], agents: int, tunings: Sequence[str]) -> Iterator[dict]:
    """A row for each case and tuning."""
    if {"random", "knn", "gaussian", "laplace"} & set(cases):
        problem = benchmark_problem(agents, 100, DEGREE)
        plain = CoordinateDescent().prepare(problem, SEED).rule
        if "random" in cases:
            yield from measure("random graph", problem, plain, tunings)
        if "knn" in cases:
            hubs = Problem(problem.population, knn_graph(agents, KNN_NEIGHBORS), problem.objective)
            rule = CoordinateDescent().prepare(hubs, SEED).rule
            yield from measure("nearest neighbors", hubs, rule, tunings)
        for kind in ("gaussian", "laplace"):
            if kind in cases:
                rule = private_descent(problem, PLANNED_UPDATES, kind)
                yield from measure(f"private, {kind}", problem, rule, tunings)
        del problem, plain
    for case, count in GROWTH.items():
        if case in cases:
            problem = benchmark_problem(count, 20, DEGREE)
            yield from measure(
                "random graph", problem, CoordinateDescent().prepare(problem, SEED).rule, tunings
            )


def measure(case: str, problem: Problem, rule: Any, tunings: Sequence[str]) -> Iterator[dict]:
    """Updates a second of a run with each tuning, all over the same updates."""
    counts = np.diff(problem.neighbors.offsets)
    for tuning in tunings or ("",):
        yield {
            "case": case,
            "tuning": tuning,
            "agents": problem.n_agents,
            "dimension": problem.dimension,
            "mean_degree": float(counts.mean()),
            "largest_degree": int(counts.max()),
            "bytes_per_update": update_bytes(problem),
            **_rates(rule, tuning),
        }


def _rates(rule: Any, tuning: str) -> dict:
    """What one run takes: its start, and MEASURED units of time. A private one is measured half in the first
    half of its plan and half in the second, where it also adds to averages.
    """
    import torch

    planned = rule.planned_updates
    started = time.perf_counter()
    run: Any = ENGINES["gpu"].start(rule, RunSettings(SEED, NEVER if planned is None else planned))
    torch.cuda.synchronize()
    start_seconds = time.perf_counter() - started
    run.tune(**{key: int(value) for key, value in (part.split("=") for part in tuning.split(",") if part)})
    now = (WARM_UP if planned is None else (planned - MEASURED) // 2) * TIME_UNIT
    before = run.advance(now).ticks
    torch.cuda.synchronize()
    started = time.perf_counter()
    after = run.advance(now + MEASURED * TIME_UNIT).ticks
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return {"start_seconds": start_seconds, "updates_per_second": (after - before) / seconds}
