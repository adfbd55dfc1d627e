"""NumPy: a plain loop over the same wake-ups of the same agents, with the same steps."""

from __future__ import annotations

import numpy as np

from benchmarks.engine import first_clocks, wake_order
from benchmarks.numpy_loop import numpy_loop
from benchmarks.peer_jobs.flockwise_job import problem_of
from benchmarks.peer_jobs.job import Job, Rounds, report
from flockwise.engine.conditions import Conditions
from flockwise.randomness.clocks import TIME_UNIT


def work(job: Job) -> tuple[Rounds, np.ndarray]:
    problem = problem_of(job)
    table = Conditions().table(np.arange(job.agents))
    _, first_ticks, _ = first_clocks(table, job.agents)
    models = np.zeros((job.agents, job.features), np.float32)
    warm_up, everything = (
        wake_order(table, first_ticks, number * TIME_UNIT) for number in (1, 1 + job.rounds)
    )
    rounds, timed = Rounds(), everything[warm_up.size :]
    numpy_loop(warm_up, problem, models)
    rounds.ended(done := warm_up.size)
    learned = None
    while learned is None or not rounds.are_enough:
        numpy_loop(timed, problem, models)
        rounds.ended(done := done + timed.size)
        learned = models.copy() if learned is None else learned
    return rounds, learned


if __name__ == "__main__":
    report(work, "numpy")
