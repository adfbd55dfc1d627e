"""Coordinate descent and gossip ADMM, from the local models to near the optimum: the runs of figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from experiments.published import AGENTS
from experiments.synthetic import MAX_SAMPLES, TRADEOFFS, TUNING_TEST_SAMPLES, Instance
from flockwise.data import linear_classification
from flockwise.engine.simulate import simulate
from flockwise.graph import angular_graph
from flockwise.method import CoordinateDescent, GossipADMM, paper_vectors
from flockwise.objective import Objective, Problem
from flockwise.results.trajectory import Trajectory
from flockwise.results.tuning import choose_tradeoff
from flockwise.solve import solve_optimum

DIMENSION = 100
RaceGraph: TypeAlias = Literal["dense", "medium", "sparse"]
# "Negligible weights are ignored." Without those below .01 an agent has about 31 neighbors; without those
# below .4 about 13, as many as the paper's curves by iterations and by vectors imply; with only those that it
# takes to keep the graph connected about 8.
THRESHOLDS: dict[RaceGraph, float | Literal["connected"]] = {
    "dense": 0.01,
    "medium": 0.4,
    "sparse": "connected",
}
CLOSE = 0.005
# In time; about 100 iterations are made in 1. A run ends at the first of these times by which it has been
# close to its final accuracy for half as long again as it took to get there.
ENDS = (20.0, 40.0, 60.0, 90.0, 120.0)
QUICK_ENDS = (6.0,)
GRADIENT_STEPS = GossipADMM().gradient_steps


@lru_cache(maxsize=4)
def draw_instance(graph: RaceGraph, seed: int, test: int, tradeoff: float) -> Instance:
    task = linear_classification(AGENTS, DIMENSION, seed=seed, test_samples=test)
    links = angular_graph(task.targets, threshold=THRESHOLDS[graph], source="targets")
    return Instance(
        Problem(task.train, links, Objective(tradeoff=tradeoff, max_samples=MAX_SAMPLES)), task.test
    )


def tune_tradeoff(graph: RaceGraph, seeds: range) -> float:
    """μ by the accuracy of the optimum of Eq. (2) on these instances, as the paper chose it."""
    found = [draw_instance(graph, seed, TUNING_TEST_SAMPLES, 1.0) for seed in seeds]
    trials = [(drawn.problem, drawn.test) for drawn in found]
    return choose_tradeoff(trials, TRADEOFFS, tolerance=1e-4).best


def measure_end(graph: RaceGraph, tradeoff: float, seed: int, test: int) -> dict[str, float]:
    """The accuracy at the optimum of Eq. (2), to which both methods converge, and the number of neighbors."""
    drawn = draw_instance(graph, seed, test, tradeoff)
    return {
        "accuracy": drawn.accuracy(solve_optimum(drawn.problem, tolerance=1e-5).models),
        "neighbors": float(drawn.problem.neighbors.neighbor_counts.mean()),
    }


def measure(
    graph: RaceGraph,
    penalty: float | None,
    tradeoff: float,
    seed: int,
    test: int,
    final: float,
    quick: bool,
) -> dict[str, Any]:
    """The records of one run; penalty None is coordinate descent. Both start at the local models."""
    drawn = draw_instance(graph, seed, test, tradeoff)
    method = CoordinateDescent("local") if penalty is None else GossipADMM(penalty)
    trajectory = _run(drawn, method, final, seed, quick)
    ticks, vectors = trajectory.column("ticks"), trajectory.column("vectors")
    return {
        "ticks": ticks.tolist(),
        "vectors": vectors.tolist(),
        "paper_vectors": (vectors if penalty is None else paper_vectors(vectors)).tolist(),
        # Both ends of an edge make their gradient steps.
        "gradients": (ticks * (1 if penalty is None else 2 * GRADIENT_STEPS)).tolist(),
        "accuracy": trajectory.column("metric").tolist(),
        "objective": (trajectory.column("objective") / trajectory.records[0].objective).tolist(),
    }


def _run(
    drawn: Instance, method: CoordinateDescent | GossipADMM, final: float, seed: int, quick: bool
) -> Trajectory:
    """Until it has been close to the final accuracy for long enough to call it there."""
    trajectory = None
    for end in QUICK_ENDS if quick else ENDS:
        trajectory = simulate(
            drawn.problem,
            method,
            engine="reference" if quick else "cpu",  # a quick run is too short to compile for
            seed=seed,
            time=end,
            record_every=2.0 if quick else 1.0,
            test=drawn.test,
            threads=1,
            resume=trajectory,
        )
        arrived = arrival_at(trajectory.column("metric").tolist(), final)
        if arrived is not None and 1.5 * trajectory.records[arrived].ticks <= trajectory.final.ticks:
            break
    assert trajectory is not None
    return trajectory


def arrival_at(accuracies: Sequence[float], final: float) -> int | None:
    """The first record from which on no accuracy is more than .005 below the final one."""
    below = np.flatnonzero(np.array(accuracies) < final - CLOSE)
    first = int(below[-1]) + 1 if below.size else 0
    return first if first < len(accuracies) else None
