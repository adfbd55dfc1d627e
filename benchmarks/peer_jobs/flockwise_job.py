"""Flockwise: the cpu engine, on the clocks of its agents; a round is a unit of time."""

from __future__ import annotations

import numpy as np

from benchmarks.engine import SEED, compile_everything, start_run
from benchmarks.peer_jobs.job import Job, Rounds, report
from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent
from flockwise.objective import Logistic, Objective, Problem
from flockwise.randomness.clocks import NEVER, TIME_UNIT


def problem_of(job: Job) -> Problem:
    features, targets = job.data()
    offsets = np.arange(job.agents + 1) * job.samples
    population = Population.packed(features.reshape(-1, job.features), targets.reshape(-1), offsets)
    edges = np.column_stack([np.repeat(np.arange(job.agents), job.neighbors), job.ring().ravel()])
    edges = np.unique(np.sort(edges, axis=1), axis=0)
    return Problem(population, SimilarityGraph.from_edges(job.agents, edges), Objective(Logistic()))


def work(job: Job) -> tuple[Rounds, np.ndarray]:
    compile_everything(1)
    run = start_run(CoordinateDescent().prepare(problem_of(job), SEED).rule, NEVER, 1)
    rounds, now = Rounds(), TIME_UNIT
    run.advance(now)
    rounds.ended(int(run.updates.sum()))
    models = None
    while models is None or not rounds.are_enough:
        run.advance(now := now + job.rounds * TIME_UNIT)
        rounds.ended(int(run.updates.sum()))
        models = run.models.copy() if models is None else models
    return rounds, models


if __name__ == "__main__":
    report(work, "flockwise", "numba", "numpy")
