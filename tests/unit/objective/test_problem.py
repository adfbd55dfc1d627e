"""Problem: what it derives from its parts, and what it refuses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from flockwise.data import Population
from flockwise.errors import GraphError, ObjectiveError
from flockwise.graph import SimilarityGraph
from flockwise.objective import (
    CollaborativeObjective,
    Huber,
    Logistic,
    Objective,
    Problem,
    Quadratic,
    Softmax,
)
from flockwise.objective import problem as problems
from flockwise.objective.losses import loss_from_json, loss_to_json


def ring(n_agents: int) -> SimilarityGraph:
    return SimilarityGraph.from_edges(n_agents, [(i, (i + 1) % n_agents) for i in range(n_agents)])


def test_penalties_are_one_over_the_sample_count_by_default(make_problem):
    problem = make_problem(Logistic(), counts=(5, 0, 4, 1, 2))
    assert problem.l2_penalties.tolist() == [1 / 5, 1.0, 1 / 4, 1.0, 1 / 2]


def test_confidences_are_shares_of_the_cap_and_small_without_data(make_problem):
    counts = (5, 0, 10, 1, 2)
    largest = make_problem(Logistic(), counts=counts)
    assert largest.confidences == pytest.approx([0.5, 0.01, 1.0, 0.1, 0.2], rel=1e-15)
    capped = make_problem(Logistic(), counts=counts, max_samples=4)
    assert capped.confidences == pytest.approx([1.0, 0.025, 1.0, 0.25, 0.5], rel=1e-15)


def test_constants_follow_their_definitions(make_problem):
    problem = make_problem(Quadratic(), tradeoff=0.7, l2=0.3)
    for agent in range(problem.n_agents):
        features, _ = problem.population.samples(agent)
        data_term = 2 * np.linalg.norm(features, 2) ** 2 / len(features) if len(features) else 0.0
        assert problem.local_smoothness[agent] == pytest.approx(data_term + 0.6, rel=1e-12)
    relative = 1 + 0.7 * problem.confidences * problem.local_smoothness
    assert problem.step_sizes == pytest.approx(1 / relative, rel=1e-14)
    assert problem.block_smoothness == pytest.approx(problem.neighbors.degrees * relative, rel=1e-14)


def test_public_smoothness_looks_at_no_data(make_problem):
    first, second = (make_problem(Logistic(), seed=seed, feature_bound=10.0) for seed in (1, 2))
    assert np.array_equal(first.local_smoothness, second.local_smoothness)
    assert first.local_smoothness == pytest.approx(25 + 2 * first.l2_penalties, rel=1e-15)
    assert (first.local_smoothness >= make_problem(Logistic(), seed=1).local_smoothness).all()


def test_softmax_models_have_one_block_per_class(make_problem):
    assert make_problem(Softmax(3), n_features=4).dimension == 12


def test_another_tradeoff_shares_what_does_not_depend_on_it(make_problem):
    problem = make_problem(Logistic(), tradeoff=1.0)
    _ = problem.block_smoothness, problem.fingerprint
    other = problem.with_tradeoff(2.0)
    fresh = make_problem(Logistic(), tradeoff=2.0)
    assert other.local_smoothness is problem.local_smoothness
    assert other.tradeoff == 2.0
    assert problem.tradeoff == 1.0
    assert np.array_equal(other.block_smoothness, fresh.block_smoothness)
    assert np.array_equal(other.step_sizes, fresh.step_sizes)
    assert np.array_equal(other.pulls, fresh.pulls)
    assert other.fingerprint == fresh.fingerprint


def test_fingerprint_is_equal_for_equal_problems_and_changes_with_every_part(make_problem):
    base = make_problem(Huber(0.5)).fingerprint
    assert base == make_problem(Huber(0.5)).fingerprint
    changed = [
        make_problem(Huber(0.6)),
        make_problem(Quadratic()),
        make_problem(Huber(0.5), seed=1),
        make_problem(Huber(0.5), tradeoff=1.5),
        make_problem(Huber(0.5), l2=0.1),
        make_problem(Huber(0.5), max_samples=50),
        make_problem(Huber(0.5), feature_bound=10.0),
        make_problem(Huber(0.5), edges=((0, 1), (1, 2), (2, 3), (3, 4))),
    ]
    assert len({base, *(problem.fingerprint for problem in changed)}) == len(changed) + 1


def test_a_problem_without_samples_or_edges_has_a_fingerprint():
    population = Population.packed(np.empty((0, 2)), np.empty(0), np.zeros(3, dtype=np.int64))
    problem = Problem(population, SimilarityGraph.from_edges(2, []))
    assert len(problem.fingerprint) == 64
    assert problem.confidences.tolist() == [0.1, 0.1]


@pytest.mark.parametrize(
    ("loss", "bad", "expected"),
    [
        (Logistic(), 0.0, "which expects -1 or +1"),
        (Softmax(3), 3.0, "which expects a whole number from 0 to 2"),
        (Softmax(3), 0.5, "which expects a whole number from 0 to 2"),
    ],
)
def test_bad_targets_are_refused_by_agent_row_and_value(monkeypatch, loss, bad, expected):
    monkeypatch.setattr(problems, "ROWS_AT_ONCE", 2)
    targets = np.array([1.0, 1.0, 1.0, 1.0, bad])
    population = Population.packed(np.ones((5, 2)), targets, np.array([0, 3, 5]), agent_names=("anna", "ben"))
    with pytest.raises(ObjectiveError) as refused:
        Problem(population, ring(2), Objective(loss))
    assert f"agent 'ben', training sample 2 (counted from 1): target {bad}" in str(refused.value)
    assert f"{expected}; 1 of 5 targets do not fit in all" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tradeoff": 0.0}, "tradeoff must be a number above 0, got tradeoff=0.0"),
        ({"tradeoff": float("nan")}, "tradeoff must be a number above 0, got tradeoff=nan"),
        ({"l2": -0.1}, "l2 must be a number from 0 on"),
        ({"l2": "guess"}, "l2 must be .*'auto'"),
        ({"l2": [0.1, 0.1, float("inf"), 0.1, 0.1]}, "l2"),
        ({"l2": [0.1, 0.1, -1.0, 0.1, 0.1]}, "l2"),
        ({"l2": [0.1, 0.1]}, r"one per agent \(5\), got 2"),
        ({"max_samples": 0}, "max_samples must be a whole number"),
        ({"max_samples": 2.5}, "max_samples must be a whole number"),
        ({"feature_bound": -1.0}, "feature_bound must be a number above 0"),
        ({"target_range": (1.0, 1.0)}, "target_range must be two finite numbers, the smaller first"),
        ({"target_range": (0.0, float("inf"))}, "target_range must be two finite numbers"),
    ],
)
def test_bad_settings_are_refused(make_problem, settings, message):
    with pytest.raises(ObjectiveError, match=message):
        make_problem(Logistic(), **settings)


def test_penalties_that_are_still_to_be_chosen_are_refused_when_they_are_needed(make_problem):
    problem = make_problem(Logistic(), l2="auto")
    with pytest.raises(ObjectiveError, match="choose_l2"):
        _ = problem.l2_penalties


def test_longer_samples_are_scaled_in_what_is_exchanged(make_problem):
    """A refusal would leak that there is a longer one; directions and targets stay."""
    problem = make_problem(Logistic(), feature_bound=1.0)
    own, shown = problem.population, problem.exchanged
    before, after = (np.linalg.norm(each.features, axis=1) for each in (own, shown))
    is_long = before > 1
    assert is_long.any()
    assert not is_long.all()
    assert after[is_long] == pytest.approx(1.0, rel=1e-12)
    assert shown.features[is_long] * before[is_long, None] == pytest.approx(own.features[is_long], rel=1e-12)
    assert np.array_equal(shown.features[~is_long], own.features[~is_long])
    assert np.array_equal(shown.targets, own.targets)
    assert np.array_equal(shown.offsets, own.offsets)


def test_eq_2_is_on_the_samples_that_are_exchanged(make_problem):
    problem = make_problem(Logistic(), feature_bound=1.0)
    scaled = Problem(problem.exchanged, problem.graph, problem.objective)
    models = np.random.default_rng(0).standard_normal((problem.n_agents, problem.dimension))
    value = CollaborativeObjective(problem).value(models)
    assert value == CollaborativeObjective(scaled).value(models)
    assert value != CollaborativeObjective(make_problem(Logistic())).value(models)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_within_the_bound_are_exchanged_as_they_are(make_problem, dtype):
    """Those that were scaled to the bound before count as within it, in the precision of the data."""
    problem = make_problem(Logistic())
    population = problem.population.astype(dtype)
    assert Problem(population, problem.graph).exchanged is population
    assert Problem(population, problem.graph, Objective(feature_bound=100.0)).exchanged is population
    scaled = Problem(population, problem.graph, Objective(feature_bound=0.7)).exchanged
    assert Problem(scaled, problem.graph, Objective(feature_bound=0.7)).exchanged is scaled


def test_a_problem_needs_no_graph_until_someone_asks_for_neighbors(make_problem):
    problem = Problem(make_problem(Logistic()).population)
    assert len(problem.fingerprint) == 64
    assert problem.step_sizes.shape == (5,)
    with pytest.raises(GraphError, match="this needs a graph"):
        _ = problem.neighbors


def test_an_objective_is_written_and_read_back(make_problem, loss):
    objective = make_problem(loss, tradeoff=0.3, l2=0.1, max_samples=50, feature_bound=2.0).objective
    again = Objective.from_json(objective.to_json())
    assert again == objective
    assert type(again.loss) is type(loss)
    with pytest.raises(ObjectiveError, match="no setting 'color'"):
        Objective.from_json(objective.to_json() | {"color": "red"})


def test_objectives_with_different_losses_are_not_equal():
    """Losses without parameters are all empty tuples, which alone would be equal."""
    assert Objective(Logistic()) == Objective(Logistic())
    assert Objective(Logistic()) != Objective(Quadratic())


def test_a_loss_is_written_by_its_registered_name_and_read_back(loss):
    document = loss_to_json(loss)
    again = loss_from_json(document)
    assert type(again) is type(loss)
    assert again == loss
    with pytest.raises(ObjectiveError, match="there is no loss 'hinge'"):
        loss_from_json(document | {"name": "hinge"})


def test_a_graph_of_other_agents_is_refused():
    population = Population.packed(np.ones((2, 1)), np.ones(2), np.array([0, 1, 2]))
    with pytest.raises(ObjectiveError, match="the graph has 3 agents and the population 2"):
        Problem(population, ring(3))


class SlopeMissing(NamedTuple):
    """A loss that forgot its slope."""

    outputs: int = 1
    curvature: float = 1.0
    expects: str = "anything"
    metric: str = "rmse"

    def value(self, score: float, target: float) -> float:
        return 0.0

    def slope_bound(self, norm: str) -> float:
        return 1.0

    def predict(self, scores: Any) -> Any:
        return scores[:, 0]

    def valid_targets(self, targets: Any) -> Any:
        return np.isfinite(targets)


class PlainLoss:
    """All that a loss needs, but not a NamedTuple."""

    outputs, curvature, expects, metric = 1, 2.0, "a number", "rmse"
    value, slope, slope_bound = Quadratic.value, Quadratic.slope, Quadratic.slope_bound
    predict, valid_targets = Quadratic.predict, Quadratic.valid_targets


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (SlopeMissing(), "needs slope"),
        (PlainLoss(), r"must be a NamedTuple, .* got a PlainLoss; write class PlainLoss\(NamedTuple\)"),
        ("logistic", "must be a loss such as"),
        (Huber(0.0), r"Huber\(width=0.0\): .* must be positive"),
        (Softmax(0), "outputs|needs"),
    ],
)
def test_losses_that_cannot_be_used_are_refused(make_problem, loss, message):
    population = make_problem(Quadratic()).population
    with pytest.raises(ObjectiveError, match=message):
        Problem(population, ring(5), Objective(loss))
