"""Plans against what comes of them, on fresh instances of the paper's task.

A plan has seen nothing of an instance but its sample counts and its graph. All constants of the planner
were chosen on seeds from one million on.
"""

import itertools
import math
import time

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads

from flockwise import Budget, Objective, Problem, angular_graph, linear_classification
from flockwise.method import PublicFacts, candidates
from flockwise.planner import plan_run
from flockwise.planner.trials import outcome
from flockwise.results.metrics import agent_metrics
from flockwise.solve import solve_local_models

pytestmark = pytest.mark.paper

DELTA = math.exp(-5)
FRESH_SEEDS = range(100, 106)
DIMENSION = 20
EPSILONS = (0.15, 0.55, 1.05)


def instance(seed, epsilon, *, useless=False):
    """The paper's task, where all of a model varies along the graph, or one whose agents changed places."""
    task = linear_classification(100, DIMENSION, seed=seed, test_samples=500)
    order = np.random.default_rng(seed).permutation(100) if useless else np.arange(100)
    graph = angular_graph(task.targets[order], threshold=0.01, source="targets")
    problem = Problem(task.train, graph, Objective(feature_bound=math.sqrt(DIMENSION)))
    return problem, task.test, PublicFacts.of(problem, Budget(epsilon, DELTA))


def real_gains(epsilon, *, useless):
    """What every candidate gains over local models: means over the fresh instances."""
    rows = []
    for seed in FRESH_SEEDS:
        problem, test, facts = instance(seed, epsilon, useless=useless)
        local = agent_metrics(problem.loss, test, solve_local_models(problem)).mean()
        found = {one.words: outcome(one, problem, seed).own for one in candidates(facts)}
        rows.append(
            {words: agent_metrics(problem.loss, test, own).mean() - local for words, own in found.items()}
        )
    return {words: float(np.mean([row[words] for row in rows])) for words in rows[0]}


@pytest.fixture(scope="module")
def plans():
    """Plans for the first instance."""
    return {epsilon: plan_run(instance(FRESH_SEEDS[0], epsilon)[2]) for epsilon in EPSILONS}


@pytest.mark.parametrize("useless", [False, True])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_expected_gains_rank_the_candidates(plans, epsilon, useless, capsys):
    """What is expected where all or nothing varies along the graph, against instances that are so.

    Of pairs that really differ by more than .01, at most one in six is expected the other way round.
    Gains of instances differ by about .007 and means over six by .003, so that such pairs are apart by two
    standard errors or more. Measured: 1 of 110 pairs, over all three ε and both kinds of graph.
    """
    real = real_gains(epsilon, useless=useless)
    expected = {
        one.candidate.words: one.gains[0.0 if useless else 1.0] for one in plans[epsilon].expectations
    }
    pairs = [pair for pair in itertools.combinations(real, 2) if abs(real[pair[0]] - real[pair[1]]) > 0.01]
    wrong = [
        (one, other) for one, other in pairs if (real[one] > real[other]) != (expected[one] > expected[other])
    ]
    with capsys.disabled():
        kind = "useless" if useless else "good"
        print(
            f"\nε = {epsilon}, {kind} graph: {len(wrong)} of {len(pairs)} pairs the other way round: {wrong}"
        )
        for words in sorted(real, key=lambda words: -real[words]):
            print(f"  {words:28s} expected {expected[words]:+.4f}, real {real[words]:+.4f}")
    if not useless:
        assert real[max(expected, key=lambda words: expected[words])] >= max(real.values()) - 0.01
    assert len(pairs) >= 10
    assert len(wrong) <= len(pairs) / 6


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_choice_keeps_its_promise(plans, epsilon):
    """The method chosen is within .015 of the best in hindsight, and gains at least what was expected.

    The promise is cautious here: a third of the twins have a graph that is no good, and this one is.
    """
    plan, real = plans[epsilon], real_gains(epsilon, useless=False)
    assert plan.chosen is not None
    assert plan.best is not None
    assert real[plan.chosen.words] >= plan.best.gain
    assert real[plan.chosen.words] >= max(real.values()) - 0.015


def test_a_plan_for_100_agents_takes_less_than_30_seconds(plans):
    """Of one core, when the methods are compiled, as they are where plans were made before."""
    _, _, facts = instance(FRESH_SEEDS[0], 0.5)
    threads = get_num_threads()
    # One thread: others, while they wait for a core that is busy, count as if they worked.
    set_num_threads(1)
    try:
        started = time.process_time()
        plan_run(facts)
        assert time.process_time() - started < 30
    finally:
        set_num_threads(threads)
