"""Plans of small networks: what they are made from, what they choose and when they advise against a run."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from flockwise import Budget, Objective, Population, Problem, Quadratic, SimilarityGraph
from flockwise.graph.randomized import complete_graph, random_graph
from flockwise.method import LearnedPrior, PublicFacts
from flockwise.planner import plan_run, recalled_plan
from flockwise.planner.words import advice, basis, document

pytestmark = pytest.mark.paper


def grouped(seed=0, n_agents=200, samples=20, scale=1.0):
    """People who differ a little in their intercepts; the seed and the scale are of private data alone."""
    random = np.random.default_rng(seed)
    features = scale * random.uniform(-1, 1, (n_agents * samples, 3))
    offsets = np.arange(0, n_agents * samples + 1, samples)
    targets = np.clip(features.sum(axis=1) / 4, -1, 1)
    population = Population.packed(features, targets, offsets).with_intercept()
    return Problem(population, None, Objective(Quadratic(), feature_bound=2.0, target_range=(-1.0, 1.0)))


@pytest.fixture(scope="module")
def plan():
    """Of people without a graph."""
    return plan_run(PublicFacts.of(grouped(), Budget(1.0, 1e-5)))


def test_other_private_samples_leave_the_plan_as_it_is(plan):
    other = plan_run(PublicFacts.of(grouped(1, scale=0.1), Budget(1.0, 1e-5)))
    assert json.dumps(document(other)) == json.dumps(document(plan))


def test_without_a_graph_a_learned_prior_is_recommended_with_what_it_assumes(plan):
    assert plan.chosen is not None
    assert isinstance(plan.chosen.method, LearnedPrior)
    assert advice(plan).startswith("Run learned prior, expected to gain +")
    assert "if only sums over all agents are opened" in advice(plan)


def test_the_worst_twin_and_the_cost_of_a_loss_are_said(plan):
    worst = min(plan.best.trials, key=lambda trial: trial.gain)
    assert plan.best.worst == worst
    assert f'"{worst.world}", loses: {worst.gain:+.2%} of the RMSE' in advice(plan)
    assert "the budget is spent all the same" in advice(plan)


def test_what_speaks_against_a_method_stands_at_the_end_of_the_advice(plan):
    wary = replace(plan.best.candidate, caution="noise hides much of what samples have in common")
    group = replace(plan.group, expectations=(replace(plan.best, candidate=wary),))
    words = advice(replace(plan, groups=(group,)))
    assert words.endswith("Mind that noise hides much of what samples have in common.")


def test_a_run_is_recommended_where_the_mean_gain_is_clear_of_its_error(plan):
    gains = [trial.gain for trial in plan.best.trials]
    assert plan.best.gain == pytest.approx(np.mean(gains))
    by_world = np.array(gains).reshape(-1, 2)
    error = np.sqrt((by_world.var(axis=1, ddof=1) / 2).sum()) / len(by_world)
    assert plan.best.error == pytest.approx(error)
    assert plan.best.gain >= max(2 * error, 0.005)


def test_a_budget_too_small_for_the_noise_is_refused_by_the_public_rule():
    plan = plan_run(PublicFacts.of(grouped(), Budget(1e-3, 1e-6)))
    assert plan.chosen is None
    assert advice(plan).startswith("Keep your local models: no private method can be run; keep the local")
    assert "this budget needs about" in advice(plan)


def test_methods_are_shown_in_one_group_for_each_adversary(facts):
    plan = plan_run(facts(feature_bound=1.0, n_features=8, samples=100, epsilon=20.0))
    assert [group.sums_only for group in plan.groups] == [False, True]
    everyone, sums = plan.groups
    assert all(one.candidate.method.needs_graph for one in everyone.expectations)
    assert not any(one.candidate.method.needs_graph for one in sums.expectations)
    assert everyone.follows_graph


def test_a_graph_from_private_data_puts_sums_first(facts, ring):
    plan = plan_run(facts(ring(40, 3, source="models"), feature_bound=1.0, samples=100, epsilon=20.0))
    assert [group.sums_only for group in plan.groups] == [True, False]
    assert "NOT public, so neither is this plan: the graph, built from models." in list(basis(plan))


def test_a_good_public_graph_with_a_generous_budget_is_worth_a_run(facts):
    plan = plan_run(facts(epsilon=20.0, n_features=16))
    assert plan.chosen is not None
    assert plan.best is not None
    gains = plan.best.gains
    assert gains["models along the graph"] > gains["models half along the graph"] > gains["unrelated agents"]


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (SimilarityGraph.from_edges(40, np.empty((0, 2), np.int64)), "look random"),
        (random_graph(40, 6, 0), "does not say who resembles whom: it links up to 6 random neighbors"),
        (complete_graph(40), "does not say who resembles whom: it links everyone with everyone."),
    ],
)
def test_nothing_varies_along_edges_that_say_nothing(facts, graph, words):
    plan = plan_run(facts(graph, epsilon=5.0))
    assert not any(group.follows_graph for group in plan.groups)
    assert any(words in line for line in basis(plan))


def test_where_nothing_private_can_be_run_the_plan_says_what_is_missing(facts):
    plan = plan_run(facts(delta=0.0))
    assert plan.chosen is None
    assert "give a feature_bound" in advice(plan)


def test_progress_ends_at_the_end():
    seen = []
    plan_run(PublicFacts.of(grouped(), Budget(1.0, 1e-5)), lambda *step: seen.append(step))
    total = seen[-1][1]
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_a_part_of_a_large_network_is_simulated_and_all_of_it_run(facts, ring, problem):
    budgets = [Budget(20.0 + agent, math.exp(-5)) for agent in range(250)]
    known = PublicFacts.of(problem(ring(250, 3), n_features=16), budgets)
    plan = plan_run(known)
    assert plan.groups[0].simulated_agents == 200
    assert any("200 of the 250 agents" in line for line in basis(plan))
    assert plan.chosen is not None
    assert plan.chosen.method.privacy == budgets
    assert replace(known).budgets == budgets


def test_a_plan_that_was_made_is_read_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOCKWISE_CACHE", str(tmp_path))
    known, asked = PublicFacts.of(grouped(n_agents=100), Budget(1.0, 1e-5)), []
    first = recalled_plan(known, lambda *step: asked.append(step))
    made = len(asked)
    again = recalled_plan(known, lambda *step: asked.append(step))
    assert made > 0
    assert len(asked) == made
    assert json.dumps(document(again)) == json.dumps(document(first))
    # Another public fact is another plan.
    recalled_plan(PublicFacts.of(grouped(n_agents=100), Budget(2.0, 1e-5)), lambda *step: asked.append(step))
    assert len(asked) > made
    # A damaged file is made anew.
    [file, _] = sorted(tmp_path.glob("*.json"))
    file.write_text("{")
    assert recalled_plan(known).groups
