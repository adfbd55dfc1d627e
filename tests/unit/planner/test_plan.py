"""Plans of small networks: what they are made from, what they choose and when they advise against a run."""

import json
import math

import numpy as np
import pytest

from flockwise import Budget, SimilarityGraph
from flockwise.graph.randomized import random_graph
from flockwise.method import PublicFacts, ReleaseOnce
from flockwise.planner import plan_run
from flockwise.planner.words import advice, basis, document

pytestmark = pytest.mark.paper


@pytest.fixture(scope="module")
def plans():
    """Plans take seconds, so tests share them."""
    return {}


def plan_of(plans, name, make):
    if name not in plans:
        plans[name] = plan_run(make())
    return plans[name]


def test_other_private_samples_leave_the_plan_as_it_is(ring, problem):
    graph, budget = ring(40, 3), Budget(1.0, 1e-5)
    one, other = (document(plan_run(PublicFacts.of(problem(graph, seed), budget))) for seed in (0, 1))
    assert json.dumps(one) == json.dumps(other)


def test_a_generous_budget_on_a_good_graph_is_worth_a_run(facts, plans):
    plan = plan_of(plans, "good", lambda: facts(epsilon=20.0, n_features=16))
    assert plan.best is not None
    assert plan.chosen is not None
    assert plan.best.gain >= plan.best.gain_by_collaboration >= plan.gain_wanted > 0
    assert advice(plan).startswith(f"Run {plan.chosen.words}, expected to gain +")


def test_the_gain_is_larger_where_more_varies_along_the_graph(facts, plans):
    plan = plan_of(plans, "good", lambda: facts(epsilon=20.0, n_features=16))
    assert plan.best is not None
    all_of_it, half, nothing = plan.best.gains.values()
    assert all_of_it > half > nothing


def test_a_hopeless_budget_is_not_worth_a_run(facts, plans):
    plan = plan_of(plans, "hopeless", lambda: facts(epsilon=1e-3, delta=1e-6))
    assert plan.chosen is None
    assert advice(plan).startswith("Keep your local models: by collaboration ")


@pytest.mark.parametrize(
    "graph", [SimilarityGraph.from_edges(40, np.empty((0, 2), np.int64)), random_graph(40, 6, 0)]
)
def test_edges_that_say_nothing_are_not_worth_a_run(facts, graph):
    plan = plan_run(facts(graph, epsilon=20.0))
    assert plan.chosen is None
    assert advice(plan).startswith("Keep your local models: the edges of the graph look random")


def test_where_nothing_private_can_be_run_the_plan_says_what_is_missing(facts):
    plan = plan_run(facts(delta=0.0))
    assert plan.chosen is None
    assert "give a feature_bound" in advice(plan)


def test_a_graph_from_private_data_is_named(facts, ring):
    plan = plan_run(facts(ring(40, 3, source="models"), delta=0.0))
    assert "NOT public, so neither is this plan: the graph, built from models." in list(basis(plan))


def test_progress_ends_at_the_end(facts):
    seen = []
    plan_run(facts(), lambda done, expected: seen.append((done, expected)))
    total = seen[-1][1]
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_a_part_of_a_large_network_is_simulated_and_all_of_it_run(facts, ring, problem):
    graph = ring(450, 3)
    budgets = [Budget(20.0 + agent, math.exp(-5)) for agent in range(450)]
    plan = plan_run(PublicFacts.of(problem(graph, n_features=16), budgets))
    assert plan.simulated_agents == 400
    assert any("400 of the 450 agents" in line for line in basis(plan))
    assert plan.chosen is not None
    assert isinstance(plan.chosen.method, ReleaseOnce)
    assert plan.chosen.method.privacy == budgets
