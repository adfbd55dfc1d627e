"""Means of neighbors' models: exact where all are honest, bounded where some lie."""

from dataclasses import replace

import numpy as np
import pytest

from flockwise import CoordinateDescent, simulate
from flockwise.data import linear_classification
from flockwise.engine.base import ENGINES
from flockwise.engine.conditions import Conditions, scheduled_tick
from flockwise.errors import SimulationError
from flockwise.graph import knn_graph
from flockwise.method import PrivateUpdates
from flockwise.method.private import tail_noise_variances
from flockwise.objective import LocalObjective, Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.protocol.aggregation import clipped_mean, weighted_mean, weighted_median
from flockwise.protocol.descent import descent_update
from flockwise.release.finish import finish_around_means, neighbor_mean_variances

CLIPPED = CoordinateDescent(neighbors="clipped")


def problem_of(n_agents=12, dimension=4, **objective):
    task = linear_classification(n_agents, dimension, seed=1, max_samples=20)
    return Problem(task.train, knn_graph(task.targets, 4), Objective(**objective))


def test_the_median_goes_by_weight():
    values = np.array([[3.0, 0.0], [1.0, 5.0], [2.0, 1.0]])
    assert weighted_median(values, np.array([1.0, 1.0, 1.0])).tolist() == [2.0, 1.0]
    assert weighted_median(values, np.array([1.0, 5.0, 1.0])).tolist() == [1.0, 5.0]
    # Half of the weight on either side of a gap: its middle.
    assert weighted_median(values[:2], np.array([0.3, 0.3])).tolist() == [2.0, 2.5]


@pytest.mark.parametrize(
    "models",
    [
        np.array([[1.0, -2.0]]),
        np.array([[1.0, -2.0], [3.0, 5.0]]),
        np.tile([[0.5, 7.0]], (5, 1)),
        np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]),
        np.zeros((3, 2)),
    ],
)
def test_models_that_are_equally_far_from_their_median_have_their_plain_mean(models):
    weights = np.full(len(models), 0.7)
    assert clipped_mean(models, weights) == pytest.approx(weighted_mean(models, weights), abs=1e-12)


def test_neighbors_have_no_order():
    generator = np.random.default_rng(0)
    models, weights = generator.normal(size=(9, 5)), generator.uniform(0.1, 1, 9)
    order = generator.permutation(9)
    assert clipped_mean(models[order], weights[order]) == pytest.approx(clipped_mean(models, weights))


@pytest.mark.parametrize("seed", range(20))
def test_liars_with_less_than_half_of_the_weight_move_the_mean_no_farther_than_the_others_are_apart(seed):
    generator = np.random.default_rng(seed)
    honest = generator.normal(size=(7, 3)) + 5
    lies = generator.normal(size=(4, 3)) * 10 ** generator.uniform(0, 9)
    weights = generator.uniform(0.1, 1, 11)
    weights[7:] *= 0.45 / 0.55 * weights[:7].sum() / weights[7:].sum()
    apart = np.linalg.norm(honest[:, None] - honest[None], axis=2).max()
    told = clipped_mean(np.vstack([honest, lies]), weights)
    # The median lies in the box around the honest models.
    width = np.linalg.norm(honest.max(axis=0) - honest.min(axis=0))
    assert np.linalg.norm(told - honest.mean(axis=0)) <= width + 2 * apart
    assert np.linalg.norm(weighted_mean(np.vstack([honest, 1e9 * lies]), weights) - 5) > 1e6


def test_the_reference_engine_runs_eq_4_with_the_clipped_mean():
    problem, models = problem_of(), np.zeros((12, 4))
    table = Conditions().table(np.arange(12))
    ticks = [scheduled_tick(table, np.uint64(0), agent, 0, 0) for agent in range(12)]
    for agent in np.argsort(ticks):
        neighbors, weights = problem.neighbors.neighbors_of(agent)
        mean = clipped_mean(models[neighbors], weights)
        gradient = LocalObjective.of_agent(problem, agent).gradient(models[agent])
        step_size, pull = float(problem.step_sizes[agent]), float(problem.pulls[agent])
        models[agent] = descent_update(models[agent], mean, gradient, step_size, pull)
    run, plain = (
        simulate(problem, method, engine="reference", updates=1) for method in (CLIPPED, CoordinateDescent())
    )
    assert run.models == pytest.approx(models)
    assert not np.allclose(run.models, plain.models)


def test_own_models_are_finished_around_the_clipped_means():
    problem = problem_of(feature_bound=2.0)
    privacy = PrivateUpdates(Budget(5.0, 1e-5), 3)
    run = simulate(problem, replace(CLIPPED, privacy=privacy), engine="reference", updates=3)
    around = problem.neighbors.neighbors_of
    models = np.asarray(run.models)
    means = np.stack([clipped_mean(models[around(agent)[0]], around(agent)[1]) for agent in range(12)])
    noise = privacy.noise(problem)
    released = tail_noise_variances(problem.step_sizes, problem.pulls, noise.stds(), noise.tail_start)
    variances = neighbor_mean_variances(problem.neighbors, released)
    wanted = finish_around_means(problem, means, np.full(12, True), variances)
    assert np.asarray(run.own_models) == pytest.approx(wanted)


@pytest.mark.parametrize("engine", sorted({"reference"} ^ set(ENGINES.names)))
def test_other_engines_refuse_it_by_name(engine):
    with pytest.raises(SimulationError, match=f"engine '{engine}' does not run descent with neighbors"):
        simulate(problem_of(), CLIPPED, engine=engine, updates=1)


@pytest.mark.parametrize("seed", range(5))
def test_no_model_is_longer_than_the_objective_allows(seed):
    problem = problem_of(tradeoff=100.0, max_samples=20, feature_bound=2.0)
    lying = replace(
        problem, population=replace(problem.population, targets=np.ones_like(problem.population.targets))
    )
    run = simulate(lying, CoordinateDescent(), updates=50, seed=seed)
    longest = np.linalg.norm(run.models, axis=1).max()
    assert 0.01 * problem.objective.largest_norm < longest <= problem.objective.largest_norm


@pytest.mark.parametrize("objective", [{}, {"max_samples": 20}, {"feature_bound": 1.0}, {"l2": 0.0}])
def test_without_public_bounds_a_model_may_have_any_length(objective):
    assert Objective(**objective).largest_norm == np.inf
    bounded = {"max_samples": 20, "feature_bound": 1.0}
    assert Objective(**bounded).largest_norm == 10.0
    assert Objective(**bounded, l2=0.25).largest_norm == 2.0
    assert Objective(**bounded, l2=(1.0, 0.5)).largest_norm == 1.0
    assert Objective(Quadratic(), **bounded).largest_norm == np.inf


def test_only_known_means_are_taken():
    with pytest.raises(SimulationError, match="neighbors must be"):
        CoordinateDescent(neighbors="trimmed")  # pyright: ignore[reportArgumentType]
