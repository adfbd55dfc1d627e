"""What a cut costs and what more machines gain: python -m benchmarks.shards clocks | seconds.

clocks    super-steps, traffic and balance against the number of shards, from the clocks alone: agents with
          one number each, all shards in this process. They are the same whatever an update computes.
seconds   one worker and two on a local Ray cluster, one thread each, by turns, on the same samples.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings

import numpy as np

from flockwise.data import Population
from flockwise.engine import RayEngine, RunSettings
from flockwise.engine.ray.start import start_here, start_run
from flockwise.errors import FlockwiseWarning
from flockwise.graph import SimilarityGraph, knn_graph, random_graph
from flockwise.method import CoordinateDescent
from flockwise.method.rules import Descent, Edges, LocalAnchors
from flockwise.objective import Objective, Problem
from flockwise.randomness.clocks import TIME_UNIT

DEGREE = 6
UNITS = 5


def graph_of(kind: str, n_agents: int) -> SimilarityGraph:
    """Nearest neighbors of points in a plane, or neighbors who have nothing in common."""
    if kind == "random":
        return random_graph(n_agents, 10, 0)
    places = np.random.default_rng(0).random((n_agents, 2))
    return knn_graph(places, DEGREE, metric="euclidean", source="profiles")


def clocks(n_agents: int, kind: str, counts: list[int]) -> None:
    """A table: the run of agents whose models are one number."""
    edges, zeros = Edges.of(graph_of(kind, n_agents)), np.zeros((n_agents, 1), np.float32)
    rule = Descent(
        np.arange(n_agents), edges, LocalAnchors(zeros), zeros, True, np.ones(n_agents), np.ones(n_agents)
    )
    print(f"{n_agents:,} agents, {kind} graph, {edges.neighbors.size // 2:,} edges; per unit of time:")
    print(f"{'shards':>6} {'cut':>7} {'super-steps':>12} {'vectors per agent':>18} {'balance':>8}")
    for count in counts:
        run = start_here(rule, RunSettings(1, threads=1), count)
        run.advance(UNITS * TIME_UNIT)
        told = run.traffic.summary()
        share = told["boundary_vectors"] / UNITS / n_agents
        row = f"{count:>6} {told['cut_share']:>7.2%} {told['super_steps'] / UNITS:>12.1f} {share:>18.4f}"
        print(f"{row} {told['balance']:>8.3f}", flush=True)


def problem_of(n_agents: int, dimension: int, kind: str) -> Problem:
    """10 to 100 random samples for each agent."""
    random = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(random.integers(10, 101, n_agents))])
    features = random.random((offsets[-1], dimension), np.float32)
    features -= 0.5
    targets = random.choice(np.array([-1, 1], np.float32), offsets[-1])
    objective = Objective(feature_bound=math.sqrt(dimension))
    return Problem(Population.packed(features, targets, offsets), graph_of(kind, n_agents), objective)


def seconds(n_agents: int, dimension: int, kind: str) -> None:
    """By turns, so what else the machine does falls on both alike."""
    rule = CoordinateDescent().prepare(problem_of(n_agents, dimension, kind), 1).rule
    assert isinstance(rule, Descent)
    settings = RunSettings(1, threads=1)
    runs = [start_run(RayEngine(shards=count), rule, settings, None) for count in (1, 2)]
    for run in runs:
        run.advance(TIME_UNIT // 2)
    ratios, paths = [], []
    for unit in range(1, UNITS + 1):
        took, critical = [], []
        for run in runs:
            before, start = run.traffic.critical_seconds, time.perf_counter()
            run.advance(unit * TIME_UNIT + TIME_UNIT // 2)
            took.append(time.perf_counter() - start)
            critical.append(run.traffic.critical_seconds - before)
        ratios.append(took[0] / took[1])
        paths.append(critical[0] / critical[1])
        print(
            f"unit {unit}: {took[0]:.3f} s and {took[1]:.3f} s, ratio {ratios[-1]:.2f}; critical path "
            f"{critical[0]:.3f} s and {critical[1]:.3f} s, ratio {paths[-1]:.2f}",
            flush=True,
        )
    one, two = (run.result().models for run in runs)
    same = np.array_equal(one, two)
    print(f"median ratio {np.median(ratios):.2f}, of the critical path {np.median(paths):.2f}; ", end="")
    print(f"models {'identical' if same else 'DIFFERENT'}; {runs[1].traffic.summary()}")
    for run in runs:
        run.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["clocks", "seconds"])
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=100)
    parser.add_argument("--graph", choices=["knn", "random"], default="knn")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 8, 32])
    given = parser.parse_args()
    warnings.simplefilter("ignore", FlockwiseWarning)
    if given.what == "clocks":
        clocks(given.agents, given.graph, given.shards)
    else:
        seconds(given.agents, given.dimension, given.graph)
