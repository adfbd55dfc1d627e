"""Eq. (1), against scikit-learn, CVXPY, SciPy and finite differences."""

from __future__ import annotations

import cvxpy
import numba
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from sklearn.linear_model import LogisticRegression, Ridge

from flockwise.data import Population
from flockwise.errors import ObjectiveError
from flockwise.graph import SimilarityGraph
from flockwise.objective import (
    AnchoredObjective,
    Huber,
    LocalObjective,
    LocalObjectives,
    Logistic,
    Objective,
    Problem,
    Quadratic,
    Softmax,
)
from flockwise.solve import solve_global_model, solve_local_models

# More features than samples, as many, fewer, and none at all.
COUNTS = (2, 4, 30, 0, 12)
N_FEATURES = 4
EXACT = 1e-12
THREADS = numba.get_num_threads()


def test_one_agents_gradient_agrees_with_finite_differences(make_problem, loss):
    objective = LocalObjective.of_agent(make_problem(loss), 2)
    model = np.random.default_rng(3).standard_normal(objective.dimension)
    assert objective.gradient(model) == pytest.approx(approx_fprime(model, objective.value), abs=1e-5)


def test_all_agents_at_once_agree_with_one_at_a_time(make_problem, loss):
    problem = make_problem(loss)
    models = np.random.default_rng(4).standard_normal((problem.n_agents, problem.dimension))
    objectives = LocalObjectives(problem)
    for agent in range(problem.n_agents):
        one = LocalObjective.of_agent(problem, agent)
        assert objectives.values(models)[agent] == pytest.approx(one.value(models[agent]), rel=EXACT)
        assert objectives.gradients(models)[agent] == pytest.approx(
            one.gradient(models[agent]), rel=EXACT, abs=EXACT
        )
        assert problem.local_smoothness[agent] == pytest.approx(one.smoothness, rel=EXACT)


def test_float32_data_is_accumulated_in_float64(make_problem):
    problem = make_problem(Logistic(), counts=(500, 300), edges=((0, 1),), n_features=20)
    single = Problem(problem.population.astype("float32"), problem.graph)
    double = Problem(single.population.astype("float64"), problem.graph)
    models = np.random.default_rng(5).standard_normal((2, 20))
    assert LocalObjectives(single).values(models) == pytest.approx(
        LocalObjectives(double).values(models), rel=EXACT
    )
    assert LocalObjectives(single).gradients(models) == pytest.approx(
        LocalObjectives(double).gradients(models), rel=EXACT, abs=1e-14
    )


def test_hessian_products_agree_with_differences_of_gradients(make_problem, loss):
    problem = make_problem(loss)
    objectives = LocalObjectives(problem)
    rng = np.random.default_rng(6)
    models, directions = rng.standard_normal((2, problem.n_agents, problem.dimension))
    step = 1e-6
    difference = objectives.gradients(models + step * directions) - objectives.gradients(
        models - step * directions
    )
    hessians = objectives.hessians(models)
    assert hessians.products(directions) == pytest.approx(difference / (2 * step), abs=1e-7)
    columns = [
        hessians.products(np.tile(axis, (problem.n_agents, 1)))[:, k]
        for k, axis in enumerate(np.eye(problem.dimension))
    ]
    assert hessians.diagonals() == pytest.approx(np.stack(columns, axis=1), rel=EXACT, abs=EXACT)


def test_an_anchored_objective_is_half_the_squared_distance():
    objective = AnchoredObjective(np.array([1.0, -2.0]))
    model = np.array([4.0, 2.0])
    assert objective.value(model) == 12.5
    assert objective.gradient(model) == pytest.approx(approx_fprime(model, objective.value), abs=1e-6)
    assert (objective.smoothness, objective.dimension) == (1.0, 2)


def test_local_models_meet_the_stated_tolerance(make_problem, loss):
    problem = make_problem(loss, counts=COUNTS, n_features=N_FEATURES)
    models = solve_local_models(problem, tolerance=1e-10)
    objectives = LocalObjectives(problem)
    norms = np.linalg.norm(objectives.gradients(models), axis=1)
    at_zero = np.linalg.norm(objectives.gradients(np.zeros_like(models)), axis=1)
    assert (norms <= 1.001e-10 * at_zero).all()
    assert not models[3].any()  # no data


def test_logistic_local_models_equal_scikit_learns(make_problem):
    problem = make_problem(Logistic(), counts=COUNTS, n_features=N_FEATURES, l2=0.05)
    models = solve_local_models(problem)
    for agent in (1, 2, 4):
        features, targets = problem.population.samples(agent)
        theirs = LogisticRegression(C=1 / (2 * len(targets) * 0.05), fit_intercept=False, tol=1e-12)
        assert models[agent] == pytest.approx(theirs.fit(features, targets).coef_[0], abs=1e-6)


def test_softmax_local_models_equal_scikit_learns(make_problem):
    problem = make_problem(Softmax(3), counts=COUNTS, n_features=N_FEATURES, l2=0.05)
    features, targets = problem.population.samples(2)
    theirs = LogisticRegression(C=1 / (2 * len(targets) * 0.05), fit_intercept=False, tol=1e-12)
    expected = theirs.fit(features, targets).coef_.ravel()
    assert solve_local_models(problem)[2] == pytest.approx(expected, abs=1e-6)


def test_quadratic_local_models_equal_scikit_learns_ridge(make_problem):
    problem = make_problem(Quadratic(), counts=COUNTS, n_features=N_FEATURES, l2=0.2)
    models = solve_local_models(problem)
    for agent in (0, 1, 2, 4):
        features, targets = problem.population.samples(agent)
        penalty = 0.2 * len(targets)
        theirs = Ridge(alpha=penalty, fit_intercept=False, tol=1e-12).fit(features, targets)
        assert models[agent] == pytest.approx(theirs.coef_, abs=1e-7)


def test_huber_local_models_equal_cvxpys(make_problem):
    problem = make_problem(Huber(0.3), counts=COUNTS, n_features=N_FEATURES, l2=0.02)
    models = solve_local_models(problem)
    for agent in (0, 2, 4):
        features, targets = problem.population.samples(agent)
        model = cvxpy.Variable(N_FEATURES)
        losses = cvxpy.huber(features @ model - targets, 0.3)  # pyright: ignore[reportArgumentType]
        data_term = cvxpy.sum(losses) / len(targets)
        cvxpy.Problem(cvxpy.Minimize(data_term + 0.02 * cvxpy.sum_squares(model))).solve(solver="CLARABEL")
        assert models[agent] == pytest.approx(model.value, abs=1e-5)


def test_badly_scaled_features_are_no_obstacle():
    rng = np.random.default_rng(7)
    features = rng.standard_normal((60, 5)) * np.array([1e-3, 1.0, 1e2, 1e4, 1e-1])
    targets = features @ np.array([1e3, 1.0, 1e-2, 1e-4, 10.0]) + rng.standard_normal(60)
    population = Population.packed(features, targets, np.array([0, 60]))
    problem = Problem(population, SimilarityGraph.from_edges(1, []), Objective(Quadratic(), l2=1e-6))
    expected = np.linalg.solve(features.T @ features + 6e-5 * np.eye(5), features.T @ targets)
    assert solve_local_models(problem, tolerance=1e-10)[0] == pytest.approx(expected, rel=1e-4)


def test_without_penalty_the_quadratic_minimum_has_least_norm(make_problem):
    problem = make_problem(Quadratic(), counts=(3, 10), edges=((0, 1),), n_features=6, l2=0.0)
    models = solve_local_models(problem, tolerance=1e-10)
    for agent in range(2):
        features, targets = problem.population.samples(agent)
        expected = np.linalg.lstsq(features, targets, rcond=None)[0]
        assert models[agent] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("targets", [(0.3, -0.1, -0.2), (0.7, -0.6, -0.1), (3e8, -1e8, -2e8 + 1.0)])
def test_an_agent_whose_samples_contradict_each_other_stops_nobody(targets):
    """Its gradient at 0 is rounding, or a small part of what cancels in it."""
    rng = np.random.default_rng(0)
    features = np.vstack([np.tile(rng.standard_normal(3), (3, 1)), rng.standard_normal((6, 3))])
    population = Population.packed(
        features, np.concatenate([targets, rng.standard_normal(6)]), np.array([0, 3, 9])
    )
    models = solve_local_models(Problem(population, None, Objective(Quadratic())))
    largest = max(map(abs, targets))
    for agent, absolute in ((0, 1e-13 * largest), (1, 0.0)):
        ridge = Ridge(alpha=1.0, fit_intercept=False).fit(*population.samples(agent))
        assert models[agent] == pytest.approx(ridge.coef_, rel=1e-7, abs=absolute)


def test_agents_that_cannot_be_solved_are_named(monkeypatch):
    # Separable: the gradient vanishes only at infinity, by a factor e or so with each step.
    monkeypatch.setattr("flockwise.solve.local.MAX_ITERATIONS", 5)
    features = np.array([[1.0], [-1.0]])
    population = Population.packed(features, np.array([1.0, -1.0]), np.array([0, 2]), agent_names=("anna",))
    problem = Problem(population, SimilarityGraph.from_edges(1, []), Objective(l2=0.0))
    with pytest.raises(ObjectiveError, match=r"agent\(s\) 'anna' .*raise l2"):
        solve_local_models(problem)


def test_only_the_agents_listed_are_solved_for(make_problem):
    problem = make_problem(Quadratic())
    everyone = solve_local_models(problem)
    assert np.array_equal(solve_local_models(problem, agents=[4, 0]), everyone[[4, 0]])


def test_models_of_the_wrong_shape_are_refused(make_problem):
    with pytest.raises(ObjectiveError, match=r"\(agents, dimension\) = \(5, 3\), got \(3, 5\)"):
        LocalObjectives(make_problem(Quadratic())).values(np.zeros((3, 5)))


@pytest.mark.skipif(THREADS < 2, reason="needs two threads to compare")
def test_local_models_are_the_same_for_every_thread_count(make_problem):
    problem = make_problem(Logistic(), counts=(7,) * 40, edges=((0, 1),))
    several = solve_local_models(problem)
    numba.set_num_threads(1)
    try:
        one = solve_local_models(problem)
    finally:
        numba.set_num_threads(THREADS)
    assert np.array_equal(one, several)


def test_the_global_model_minimizes_the_weighted_sum(make_problem, loss):
    problem = make_problem(loss, edges=((0, 1), (1, 2), (2, 3)))  # agent 4 has no neighbor, and no say
    shares = problem.neighbors.degrees * problem.confidences
    agents = [LocalObjective.of_agent(problem, agent) for agent in range(problem.n_agents)]

    def value(model: np.ndarray) -> float:
        return sum(share * agent.value(model) for share, agent in zip(shares, agents, strict=True))

    def gradient(model: np.ndarray) -> np.ndarray:
        return shares @ np.stack([agent.gradient(model) for agent in agents])

    theirs = minimize(value, np.zeros(problem.dimension), jac=gradient, method="BFGS", options={"gtol": 1e-9})
    ours = solve_global_model(problem, tolerance=1e-10)
    assert ours == pytest.approx(theirs.x, abs=1e-6)
    assert np.linalg.norm(gradient(ours)) <= 1e-9 * np.linalg.norm(gradient(0 * ours))


def test_models_of_agents_who_learn_alone_use_the_samples_as_they_are(make_problem, loss):
    """What is scaled down for the neighbors' eyes stays whole at home: here every sample is longer."""
    bounded = make_problem(loss, feature_bound=1e-3, l2=0.1)
    assert np.array_equal(solve_local_models(bounded), solve_local_models(make_problem(loss, l2=0.1)))
    assert np.array_equal(LocalObjective.of_agent(bounded, 2).features, bounded.exchanged.samples(2)[0])


def test_a_global_model_needs_an_edge(make_problem):
    with pytest.raises(ObjectiveError, match="no agent has a neighbor"):
        solve_global_model(make_problem(Quadratic(), edges=()))
