"""The silent finish: exact, falling back to what an agent can do alone, and better than both ends."""

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.support import LOSSES, named, random_problem

from flockwise import Logistic, Population, Problem, SimilarityGraph, angular_graph, linear_classification
from flockwise.errors import ObjectiveError
from flockwise.objective import Huber, Objective, Quadratic, Softmax
from flockwise.release.finish import (
    finish_along_directions,
    finish_around_models,
    finish_own_block,
    neighbor_mean_variances,
)
from flockwise.results.metrics import agent_metrics
from flockwise.solve import solve_local_models, solve_optimum


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_without_noise_the_optimum_of_eq_2_is_its_own_finish(loss):
    problem = random_problem(3, loss=loss, density=0.6)
    best = solve_optimum(problem, tolerance=1e-12).models
    np.testing.assert_allclose(finish_own_block(problem, best), best, atol=1e-4)


def test_under_much_noise_an_agent_learns_alone():
    problem = random_problem(4, density=0.6)
    models = np.full((problem.n_agents, problem.dimension), 5.0)
    np.testing.assert_allclose(finish_own_block(problem, models, 1e9), solve_local_models(problem), atol=1e-5)


def test_an_agent_without_neighbors_learns_alone():
    problem = random_problem(5, density=0.0)
    models = np.ones((problem.n_agents, problem.dimension))
    np.testing.assert_allclose(finish_own_block(problem, models), solve_local_models(problem), atol=1e-6)


def test_an_own_model_uses_the_samples_as_they_are():
    """Not as they are scaled for others: with nobody to listen to it is the local model."""
    problem = random_problem(5, density=0.0, feature_bound=0.1)
    models = np.ones((problem.n_agents, problem.dimension))
    whole = random_problem(5, density=0.0)
    np.testing.assert_array_equal(finish_own_block(problem, models), finish_own_block(whole, models))


def noisy_optimum(seed):
    """The optimum of Eq. (2) as neighbors would see it under much noise."""
    task = linear_classification(60, 10, seed=seed, test_samples=1000)
    graph = angular_graph(task.targets, threshold=0.01, source="targets")
    problem = Problem(task.train, graph, Objective(Logistic(), tradeoff=3.0))
    variance = 0.5
    noise = np.random.default_rng(seed).normal(0, variance**0.5, (60, 10))
    return problem, task.test, solve_optimum(problem).models + noise, variance


def test_the_noise_rule_beats_both_ends():
    """Trusting noisy neighbors as Eq. (2) does, or not at all, is worse: on each of five fixed instances."""
    for seed in range(5):
        problem, test, models, variance = noisy_optimum(seed)
        known = neighbor_mean_variances(problem.neighbors, variance)
        ours = agent_metrics(problem.loss, test, finish_own_block(problem, models, known)).mean()
        trusting = agent_metrics(problem.loss, test, finish_own_block(problem, models)).mean()
        alone = agent_metrics(problem.loss, test, solve_local_models(problem)).mean()
        assert ours > max(trusting, alone)


def test_variance_of_a_neighbor_mean_is_what_noise_shows():
    """10 000 draws: a sample variance is within 5 % of the truth but with probability 1e-3 or so each."""
    graph = random_problem(6, density=0.6).neighbors
    variances = np.linspace(0.5, 2.0, graph.n_agents)
    noise = np.sqrt(variances)[:, None] * np.random.default_rng(0).standard_normal((graph.n_agents, 10_000))
    linked = graph.degrees > 0
    means = (graph.to_scipy() @ noise)[linked] / graph.degrees[linked, None]
    expected = neighbor_mean_variances(graph, variances)[linked]
    np.testing.assert_allclose(means.var(axis=1), expected, rtol=0.05)


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_an_anchor_that_says_nothing_leaves_an_agent_alone(loss):
    problem = random_problem(4, loss=loss)
    anchors = np.full((problem.n_agents, problem.dimension), 5.0)
    own = finish_around_models(problem, anchors, np.full(problem.n_agents, 1e9))
    assert problem.population.sample_counts.min() == 0, "an agent without samples keeps 0"
    np.testing.assert_allclose(own, solve_local_models(problem), atol=1e-5)


def test_an_agent_without_samples_takes_its_anchor():
    problem = classification()
    anchors = np.random.default_rng(5).normal(size=(8, 4))
    own = finish_around_models(problem, anchors, np.full(8, 0.1), l2=0.5)
    np.testing.assert_allclose(own[2], anchors[2], atol=1e-8)


def test_without_a_penalty_an_agent_without_samples_takes_its_anchor():
    problem = random_problem(4, loss=Quadratic(), l2=0.0)
    anchors = np.full((problem.n_agents, problem.dimension), 5.0)
    empty = np.flatnonzero(problem.population.sample_counts == 0)
    own = finish_around_models(problem, anchors, np.full(problem.n_agents, 0.1), l2=0.5)
    assert empty.size
    np.testing.assert_allclose(own[empty], anchors[empty], atol=1e-8)


@pytest.mark.parametrize("loss", [Quadratic(), Huber(1.0)], ids=named)
def test_one_sample_and_no_penalty_are_held_by_the_least_strength(loss):
    features, targets = np.array([[0.6, -0.4, 0.2]]), np.array([0.8])
    problem = Problem(Population.packed(features, targets, np.array([0, 1])), None, Objective(loss, l2=0.0))
    own = finish_around_models(problem, np.zeros((1, 3)), np.full(1, 1e9), l2=0.5)
    np.testing.assert_allclose(features @ own[0], targets, rtol=1e-3)
    assert np.linalg.norm(own) < 2, "the shortest of all that fit has the length .8/‖x‖ = 1.07"


@pytest.mark.parametrize("l2", [0.01, 1.0])
def test_models_that_a_penalty_made_shorter_are_lengthened_again(l2):
    """Local models under that penalty, as certain anchors: features of uniform direction, five seeds."""
    lengths = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        features = random.normal(size=(800, 4))
        truth = random.normal(size=4)
        population = Population.packed(features, features @ truth, np.array([0, 800]))
        problem = Problem(population, None, Objective(Quadratic(), feature_bound=100.0))
        short = solve_local_models(problem.with_objective(l2=l2))
        own = finish_around_models(problem, short, np.array([1e-9]), l2)
        lengths.append(np.linalg.norm(own - truth) / np.linalg.norm(truth))
    assert np.mean(lengths) < 0.05


def classification(seed=0, n_agents=8, scale=1.0):
    random = np.random.default_rng(seed)
    counts = random.integers(1, 9, n_agents)
    counts[2] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)])
    features = random.uniform(-1, 1, (offsets[-1], 4)) * scale
    targets = random.choice([-1.0, 1.0], offsets[-1])
    graph = SimilarityGraph.from_edges(n_agents, [(k, k + 1) for k in range(n_agents - 1)])
    return Problem(Population.packed(features, targets, offsets), graph)


def test_direction_finish_is_the_minimum_of_its_formula():
    problem = classification()
    random = np.random.default_rng(1)
    directions, qualities = random.normal(size=(8, 4)), random.uniform(0, 0.95, 8)
    own = finish_along_directions(problem, directions, qualities)
    for agent in (0, 1, 5):
        features, targets = problem.population.samples(agent)
        square = (features**2).sum(axis=1).mean()
        variance = 8 * (1 - qualities[agent] ** 2) / square
        anchor = qualities[agent] * np.sqrt(3 * 4 / square) * directions[agent]
        anchor /= np.linalg.norm(directions[agent])

        def value(model, features=features, targets=targets, anchor=anchor, variance=variance):
            losses = np.logaddexp(0, -targets * (features @ model)).sum()
            return losses + ((model - anchor) ** 2).sum() / (2 * variance)

        np.testing.assert_allclose(own[agent], minimize(value, np.zeros(4), tol=1e-10).x, atol=1e-4)


def test_the_scale_of_the_features_does_not_matter():
    directions, qualities = np.random.default_rng(2).normal(size=(8, 4)), np.full(8, 0.6)
    small = finish_along_directions(classification(scale=1.0), directions, qualities)
    large = finish_along_directions(classification(scale=100.0), directions, qualities)
    has_points = np.arange(8) != 2
    np.testing.assert_allclose(small[has_points], 100 * large[has_points], rtol=1e-5, atol=1e-6)


def test_without_quality_directions_are_ignored():
    directions = np.random.default_rng(3).normal(size=(2, 8, 4))
    one, other = (finish_along_directions(classification(), each, np.zeros(8)) for each in directions)
    np.testing.assert_array_equal(one, other)


def test_an_agent_without_points_follows_its_direction():
    directions = np.random.default_rng(4).normal(size=(8, 4))
    own = finish_along_directions(classification(), directions, np.full(8, 0.5))[2]
    cosine = own @ directions[2] / np.linalg.norm(own) / np.linalg.norm(directions[2])
    assert cosine == pytest.approx(1.0)


@pytest.mark.parametrize("loss", [Quadratic(), Huber(), Softmax(3)])
def test_directions_are_refused_for_other_tasks(loss):
    problem = random_problem(0, loss=loss)
    with pytest.raises(ObjectiveError, match="two classes"):
        finish_along_directions(problem, np.zeros((12, problem.dimension)), np.zeros(12))


def test_noise_variances_must_make_sense():
    problem = random_problem(0)
    with pytest.raises(ObjectiveError, match="noise_variances"):
        finish_own_block(problem, np.zeros((12, 3)), -1.0)
