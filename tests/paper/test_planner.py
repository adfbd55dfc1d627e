"""Plans against what comes of them, on fresh instances of the paper's task.

A plan has seen nothing of an instance but its sample counts and its graph. All constants of the planner
were chosen on seeds from one million on. `flockwise reproduce planner` judges plans on many more kinds.
"""

import math
import time

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads

from flockwise import Budget, Objective, Problem, angular_graph, linear_classification
from flockwise.method import PublicFacts
from flockwise.planner import plan_run
from flockwise.planner.trials import outcome
from flockwise.results.metrics import agent_metrics
from flockwise.solve import choose_l2, solve_local_models

pytestmark = pytest.mark.paper

FRESH_SEEDS = range(100, 104)
DIMENSION = 10
BUDGET = Budget(1.0, 1e-5)


def instance(seed):
    """The paper's task with public profiles."""
    task = linear_classification(100, DIMENSION, seed=seed, test_samples=300)
    graph = angular_graph(task.profiles, source="profiles")
    problem = Problem(task.train, graph, Objective(feature_bound=math.sqrt(DIMENSION)))
    return problem, task.test, PublicFacts.of(problem, BUDGET, chooses_tradeoff=True)


@pytest.fixture(scope="module")
def plan():
    return plan_run(instance(FRESH_SEEDS[0])[2])


@pytest.mark.parametrize("group", [0, 1])
def test_the_best_of_each_adversary_is_no_worse_than_tuned_local_models(plan, group):
    """On fresh instances with right profiles; local models are tuned on everybody's samples."""
    best, gains = plan.groups[group].best, []
    for seed in FRESH_SEEDS:
        problem, test, _ = instance(seed)
        alone = agent_metrics(problem.loss, test, solve_local_models(choose_l2(problem, splits=1))).mean()
        own = outcome(best.candidate, problem, seed).own
        gains.append(agent_metrics(problem.loss, test, own).mean() - alone)
    assert np.mean(gains) > 2 * np.std(gains, ddof=1) / math.sqrt(len(gains))


def test_a_plan_for_100_agents_takes_less_than_30_seconds(plan):
    """Of one core, when the methods are compiled, as they are where plans were made before."""
    _, _, facts = instance(FRESH_SEEDS[0])
    threads = get_num_threads()
    # One thread: others, while they wait for a core that is busy, count as if they worked.
    set_num_threads(1)
    try:
        started = time.process_time()
        plan_run(facts)
        assert time.process_time() - started < 30
    finally:
        set_num_threads(threads)
