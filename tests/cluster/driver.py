"""A driver of a sharded run, as a process of its own: python -m tests.cluster.driver FOLDER key=value ...

Writes FOLDER/run.npz, and after each super-step a line to FOLDER/progress: the ticks done. With hold=1 it
stops after the first checkpoint until there is a file FOLDER/go. With jobs=cd-2,private-4 it does several
runs one after the other, each in a folder of that name, by method and shards.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flockwise as fw
from flockwise.engine import Checkpoint, RayEngine

N_AGENTS, DIMENSION, TIME = 600, 12, 6.0


def task() -> tuple[fw.Problem, fw.Population]:
    made = fw.linear_classification(N_AGENTS, DIMENSION, seed=1, test_samples=5)
    places = np.random.default_rng(0).normal(size=(N_AGENTS, 2))
    graph = fw.knn_graph(places, 6, metric="euclidean", source="profiles")
    return fw.Problem(made.train, graph, fw.Objective(feature_bound=4.0)), made.test


def write_samples(folder: Path) -> None:
    """Those of the task, in two files."""
    population = task()[0].population
    owners = np.repeat(np.arange(N_AGENTS), population.sample_counts)
    columns = {name: population.features[:, k] for k, name in enumerate(population.feature_names)}
    table = pa.table({"agent": owners, "y": population.targets, **columns})
    folder.mkdir()
    for part, start in enumerate((0, len(table) // 3)):
        pq.write_table(table.slice(start, None if part else len(table) // 3), folder / f"{part}.parquet")


def in_files(problem: fw.Problem, folder: Path) -> fw.Problem:
    """The same problem with its samples in files."""
    return fw.Problem(fw.open_population(folder, target="y"), problem.graph, problem.objective)


def method(name: str) -> Any:
    if name == "private":
        return fw.CoordinateDescent(privacy=fw.PrivateUpdates(fw.Budget(1.0, 1e-5), 8))
    return {"cd": fw.CoordinateDescent(), "propagation": fw.ModelPropagation()}[name]


def simulate(name: str = "cd", samples: Path | None = None, **options: Any) -> fw.Trajectory:
    problem, test = task()
    if samples is not None:
        problem = in_files(problem, samples)
    return fw.simulate(problem, method(name), seed=3, time=TIME, test=test, threads=1, **options)


def main(folder: Path, given: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    log, checkpoint = (folder / "progress").open("a"), folder / "checkpoints" / "checkpoint.json"

    def on_progress(progress: Any) -> None:
        print(sum(progress.ticks), file=log, flush=True)
        while "hold" in given and checkpoint.exists() and not (folder / "go").exists():
            time.sleep(0.02)

    engine = RayEngine(
        shards=int(given["shards"]) if "shards" in given else None,
        address=given.get("address"),
        folder=folder / "checkpoints",
        models=given.get("models"),
        checkpoint_every=0.0,
        on_progress=on_progress,
    )
    resume = Checkpoint.read(folder / "checkpoints") if "resume" in given else None
    samples = Path(given["samples"]) if "samples" in given else None
    run = simulate(given.get("method", "cd"), samples, engine=engine, resume=resume)
    run.save(folder / "run.npz")


def all_jobs(folder: Path, given: dict[str, str]) -> None:
    if "jobs" not in given:
        main(folder, given)
        return
    for job in given["jobs"].split(","):
        method, shards = job.split("-")
        main(folder / job, given | {"method": method, "shards": shards})


if __name__ == "__main__":
    all_jobs(Path(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:]))
