"""A driver with little memory for each process: python -m tests.cluster.limited FOLDER MEGABYTES SHARDS.

FOLDER has samples and edges (benchmarks.populations), and the graph of these in FOLDER/graph; the shards'
models go to FOLDER/models. The limit is on the private memory of a process, and those that it starts
inherit it: Ray's own, and the shards.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import flockwise as fw

TIME = 1.0


def problem(folder: Path) -> fw.Problem:
    population = fw.open_population(folder / "samples", target="y", dtype="float32")
    names, place = population.agent_names, folder / "graph"
    graph = fw.read_edges(folder / "edges", names, source="profiles", folder=place)
    # Features lie in a cube around 0, of length 1.
    return fw.Problem(population, graph, fw.Objective(feature_bound=0.5 * population.n_features**0.5))


def simulate(folder: Path, engine: fw.RayEngine | str) -> fw.Trajectory:
    return fw.simulate(
        problem(folder), fw.CoordinateDescent(), engine=engine, seed=3, time=TIME, threads=1, progress=False
    )


def main(folder: Path, megabytes: int, shards: int) -> None:
    # Every thread has a stack, which counts in full.
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))
    try:
        _ = problem(folder).population.features
    except MemoryError:
        print("the samples do not fit", flush=True)
    run = simulate(folder, fw.RayEngine(shards=shards, models=folder / "models"))
    told = {"shards": run.settings["shards"], "records": [record.objective for record in run.records]}
    (folder / "run.json").write_text(json.dumps(told))


if __name__ == "__main__":
    # Memory that was reserved would count as well.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
