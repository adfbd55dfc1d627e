"""Public facts: what a planner is told, and what it is not."""

import numpy as np
import pytest

from flockwise import Budget, Huber, Objective, Problem, Quadratic, angular_graph
from flockwise.method import PublicFacts
from flockwise.planner.twins import facts_of_part
from flockwise.solve import choose_l2


def test_a_network_with_other_samples_has_the_same_facts(ring, problem):
    graph = ring(10, 2)
    one, other = (PublicFacts.of(problem(graph, seed), Budget(1.0, 1e-5)) for seed in (0, 1))
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, vars(other)[name], err_msg=name)


def test_nothing_in_the_facts_is_a_population(facts):
    found = {name: type(value).__name__ for name, value in vars(facts()).items()}
    assert not {"Population", "Problem"} & set(found.values())
    assert set(found) == {
        "sample_counts",
        "n_features",
        "graph",
        "objective",
        "budgets",
        "chooses_tradeoff",
        "has_intercept",
        "residual_scale",
        "origins",
    }


def test_the_facts_of_some_agents(ring, problem):
    graph = ring(10, 1)
    budgets = [Budget(1.0 + agent, 1e-5) for agent in range(10)]
    task = problem(graph)
    task = Problem(task.population, graph, Objective(l2=tuple(range(10)), max_samples=99))
    part = facts_of_part(PublicFacts.of(task, budgets), np.array([2, 3, 7]))
    assert part.graph is not None
    assert part.sample_counts.tolist() == [22, 23, 22]
    assert part.graph.neighbor_counts.tolist() == [1, 1, 0]
    assert part.budgets == (budgets[2], budgets[3], budgets[7])
    assert part.objective.l2 == (2.0, 3.0, 7.0)
    assert part.objective.max_samples == 99


def test_a_graph_from_private_data_is_not_covered(problem):
    graph = angular_graph(np.eye(3) + 0.5, source="models")
    assert PublicFacts.of(problem(graph), Budget(1.0)).not_covered == ("the graph, built from models",)


def test_the_least_delta_counts(ring, problem):
    task = problem(ring(3, 1))
    assert PublicFacts.of(task, Budget(1.0, 0.1)).least_delta == 0.1
    each = [Budget(1.0, delta) for delta in (0.1, 0.0, 0.2)]
    assert PublicFacts.of(task, each).least_delta == 0.0


@pytest.mark.parametrize(("loss", "scale"), [(Huber(0.3), 0.3)])
def test_the_width_of_a_huber_loss_says_how_large_residuals_are(facts, loss, scale):
    assert facts(loss=loss).residual_scale == scale


def test_penalties_that_were_chosen_on_samples_are_not_told(ring, problem):
    task = choose_l2(problem(ring(10, 2)), splits=1)
    known = PublicFacts.of(task, Budget(1.0))
    assert known.objective.l2 == "auto"
    assert known.not_covered == ()


def test_a_range_of_targets_says_how_large_residuals_may_be(problem, ring):
    task = problem(ring(5, 1), loss=Quadratic()).with_objective(target_range=(0.0, 8.0))
    assert PublicFacts.of(task, Budget(1.0)).residual_scale == 2.0
