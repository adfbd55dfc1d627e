"""Coordinate descent and gossip ADMM, from the local models to near the optimum: the runs of figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.synthetic import Graph, Instance, instance
from flockwise.engine.simulate import simulate
from flockwise.method import CoordinateDescent, GossipADMM, paper_vectors
from flockwise.results.trajectory import Trajectory
from flockwise.solve import solve_optimum

DIMENSION = 100
CLOSE = 0.005
# In time; about 100 iterations are made in 1. A run ends at the first of these times by which it has been
# close to its final accuracy for half as long again as it took to get there.
ENDS = (20.0, 40.0, 60.0, 90.0, 120.0)
QUICK_ENDS = (6.0,)
# In time: 1500 iterations, and a few more.
PAPER_WINDOW = 16.5
GRADIENT_STEPS = GossipADMM().gradient_steps


def measure_end(graph: Graph, tradeoff: float, seed: int, test: int) -> dict[str, float]:
    """The accuracy at the optimum of Eq. (2), to which both methods converge, and the number of neighbors."""
    drawn = instance(DIMENSION, seed, test, tradeoff, graph)
    return {
        "accuracy": drawn.accuracy(solve_optimum(drawn.problem, tolerance=1e-5).models),
        "neighbors": float(drawn.problem.neighbors.neighbor_counts.mean()),
    }


def measure(
    graph: Graph,
    penalty: float | None,
    tradeoff: float,
    seed: int,
    test: int,
    final: float,
    quick: bool,
) -> dict[str, Any]:
    """The records of one run; penalty None is coordinate descent. Both start at the local models."""
    drawn = instance(DIMENSION, seed, test, tradeoff, graph)
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
            threads=None if quick else 1,
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


def measure_window(
    graph: Graph, penalty: float | None, tradeoff: float, seed: int, test: int
) -> dict[str, Any]:
    """The records of one run as long as the paper's, from the local models."""
    drawn = instance(DIMENSION, seed, test, tradeoff, graph)
    method = CoordinateDescent("local") if penalty is None else GossipADMM(penalty)
    trajectory = simulate(
        drawn.problem, method, seed=seed, time=PAPER_WINDOW, record_every=0.5, test=drawn.test, threads=1
    )
    vectors = trajectory.column("vectors")
    return {
        "ticks": trajectory.column("ticks").tolist(),
        "paper_vectors": (vectors if penalty is None else paper_vectors(vectors)).tolist(),
        "accuracy": trajectory.column("metric").tolist(),
        "objective": (trajectory.column("objective") / trajectory.records[0].objective).tolist(),
    }
