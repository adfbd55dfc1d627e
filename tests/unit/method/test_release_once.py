"""Release once: sensitivities that hold, noise that is calibrated, smoothing that sees no data, refusals."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import quad
from tests.support import random_problem

from flockwise import Logistic, Population, Problem, SimilarityGraph, simulate
from flockwise.errors import PrivacyError
from flockwise.method import released
from flockwise.method.objective_perturbation import ObjectivePerturbation, tilt_scale
from flockwise.method.output_perturbation import OutputPerturbation, bounded_problem, solved_within
from flockwise.method.point_mean import PointMean, unit_rows
from flockwise.method.quality import Smoothed, expected_correlations
from flockwise.method.release_once import ReleaseOnce
from flockwise.method.released import Released, budget_of_each
from flockwise.method.shrinkage import precision_confidences, shrunken_mean
from flockwise.method.smoothing import propagate, public_noise, variances_of
from flockwise.objective import Huber, LocalObjective, PropagationObjective, Quadratic, Softmax
from flockwise.objective.losses import CappedLogistic
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, math.exp(-5))
# The least normal noise for BUDGET and sensitivity 1, from the exact curve (Balle and Wang 2018).
MULTIPLIER = 2.0043


def problem_of(features, targets, loss, counts=None):
    """Agents with the given points one after the other, on a path."""
    counts = [len(targets)] if counts is None else counts
    offsets = np.concatenate([[0], np.cumsum(counts)])
    edges = [(k, k + 1) for k in range(len(counts) - 1)]
    graph = SimilarityGraph.from_edges(len(counts), np.array(edges).reshape(-1, 2))
    return Problem(
        Population.packed(np.array(features, float), np.array(targets, float), offsets), graph, loss
    )


def sensitivity_of(result):
    event = result.events[0]
    assert event is not None
    return event.sensitivity


def without_noise(monkeypatch):
    monkeypatch.setattr(released, "normals", lambda seed, agent, update, out: out.fill(0.0))


# What one point can change.


def points_with(random, count, dimension, loss):
    """Points of all sizes, far beyond any bound included."""
    features = random.normal(size=(count, dimension)) * 10.0 ** random.uniform(-3, 6, (count, 1))
    if isinstance(loss, Huber):
        return features, random.normal(size=count) * 10.0 ** random.uniform(-3, 6, count)
    return features, random.choice([-1.0, 1.0], count)


def moved(kind, loss, seed, monkeypatch):
    """How far the vector behind a release moves when one point is replaced, over what the event allows."""
    without_noise(monkeypatch)
    random = np.random.default_rng(seed)
    features, targets = points_with(random, 6, 3, loss)
    before = kind.release(problem_of(features, targets, loss), (BUDGET,), 0)
    features, targets = features.copy(), targets.copy()
    other_features, other_targets = points_with(random, 6, 3, loss)
    features[2], targets[2] = other_features[2], other_targets[2]
    after = kind.release(problem_of(features, targets, loss), (BUDGET,), 0)
    return np.linalg.norm(after.vectors - before.vectors) / sensitivity_of(before)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        (PointMean(), Logistic()),
        (OutputPerturbation(0.1, 2.0), Huber(0.7)),
        (OutputPerturbation(0.05, 1.0), CappedLogistic()),
        (OutputPerturbation(0.1, 2.0), Logistic()),
    ],
)
def test_one_point_moves_a_release_by_at_most_its_sensitivity(kind, loss, seed, monkeypatch):
    assert moved(kind, loss, seed, monkeypatch) <= 1


def test_the_sensitivity_of_the_mean_is_reached(monkeypatch):
    without_noise(monkeypatch)
    one = PointMean().release(problem_of([[5.0], [0.1]], [1, 1], Logistic()), (BUDGET,), 0)
    other = PointMean().release(problem_of([[5.0], [0.1]], [1, -1], Logistic()), (BUDGET,), 0)
    assert sensitivity_of(one) == 1.0
    assert np.abs(one.vectors - other.vectors) == pytest.approx(1.0, rel=1e-12)


def test_the_sensitivity_of_output_perturbation_is_reached(monkeypatch):
    """Huber far out has the constant slope C, so that the minimum moves by C/(mλ) exactly."""
    without_noise(monkeypatch)
    kind = OutputPerturbation(l2=0.5, feature_bound=3.0)
    features = [[3.0], [0.0], [0.0], [0.0]]
    ends = [kind.release(problem_of(features, [y, 0, 0, 0], Huber(0.2)), (BUDGET,), 0) for y in (1e3, -1e3)]
    gradient_bound = 2 * 0.2 * 3.0
    assert np.abs(ends[0].vectors - ends[1].vectors) == pytest.approx(gradient_bound / (4 * 0.5), rel=1e-6)
    assert sensitivity_of(ends[0]) == pytest.approx(gradient_bound / (4 * 0.5), rel=1e-5)
    # And the solver's tolerance is on top.
    assert sensitivity_of(ends[0]) > gradient_bound / (4 * 0.5) * (1 + 1e-6)


# The noise.


def test_noise_is_calibrated_once_per_distinct_budget(monkeypatch):
    asked = []

    def counting(budget, *arguments, **settings):
        asked.append(budget)
        return calibrate(budget, *arguments, **settings)

    calibrate = released.calibrate
    monkeypatch.setattr(released, "calibrate", counting)
    problem = random_problem(0, max_samples=8)
    budgets = [BUDGET, Budget(0.5, 1e-5)] * 6
    events = ReleaseOnce(budgets).release(problem).events
    assert sorted(asked, key=lambda budget: budget.epsilon) == [Budget(0.5, 1e-5), BUDGET]
    for agent, event in enumerate(events):
        count = problem.population.sample_counts[agent]
        assert (event is None) == (count == 0)
        if event is not None and agent % 2 == 0:
            assert event.multiplier == pytest.approx(MULTIPLIER, rel=1e-4)
            assert event.sensitivity == 2 / count


def test_noise_has_the_size_that_is_told_to_everyone(monkeypatch):
    """400 agents × 30 coordinates: the sample variance is within 7 % (5 standard errors) of that told."""
    random = np.random.default_rng(0)
    problem = problem_of(random.normal(size=(1600, 30)), np.ones(1600), Logistic(), [4] * 400)
    noisy = ReleaseOnce(BUDGET, noise_seed=5).release(problem)
    without_noise(monkeypatch)
    exact = ReleaseOnce(BUDGET).release(problem)
    ratios = (noisy.vectors - exact.vectors) / np.sqrt(noisy.noise_variances)[:, None]
    assert ratios.var() == pytest.approx(1.0, abs=0.07)
    assert noisy.noise_variances[0] == pytest.approx((2 * MULTIPLIER / 4) ** 2, rel=1e-3)


@pytest.mark.parametrize("kind", [PointMean(), OutputPerturbation(0.5, 1.0, CappedLogistic())])
def test_sampling_varies_less_than_its_public_bound(kind, monkeypatch):
    """Agents alike in all but their points: how their vectors spread is within what `variances` says."""
    without_noise(monkeypatch)
    random = np.random.default_rng(1)
    features = random.normal(size=(4000, 5))
    problem = problem_of(features, np.where(features[:, 0] > 0, 1, -1), Logistic(), [10] * 400)
    result = kind.release(problem, (BUDGET,) * 400, 0)
    assert result.vectors.var(axis=0).mean() < result.sampling_variances[0]


def test_one_seed_gives_one_release():
    problem = random_problem(1)
    first, again, other = (
        ReleaseOnce(BUDGET, noise_seed=seed).release(problem).vectors for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


# Objective perturbation: in one dimension both densities can be integrated.


def density_of_minimum(objective, model, scale):
    """Of argmin ℒ(θ) + bθ for b ~ N(0, scale²): that of b = −ℒ'(θ), times ℒ''(θ)."""
    slope = objective.gradient(np.array([model]))[0]
    step = 1e-5
    ahead, behind = (objective.gradient(np.array([model + sign * step]))[0] for sign in (1, -1))
    curvature = (ahead - behind) / (2 * step)
    return math.exp(-0.5 * (slope / scale) ** 2) / (scale * math.sqrt(2 * math.pi)) * curvature


def excess_mass(loss, point, other, l2, scale, epsilon):
    """∫ max(0, f − e^ε f'): the δ that θ* needs at this ε for the pair of neighboring data sets."""
    rest = [(0.3, 1.0), (-0.8, 1.0), (1.0, -1.0)]
    one, two = (
        LocalObjective(loss, np.array([[x] for x, _ in [*rest, p]]), np.array([y for _, y in [*rest, p]]), l2)
        for p in (point, other)
    )

    def excess(model):
        theirs = math.exp(epsilon) * density_of_minimum(two, model, scale)
        return max(0.0, density_of_minimum(one, model, scale) - theirs)

    return quad(excess, -30, 30, limit=400, points=[-3, -1, 0, 1, 3])[0]


@pytest.mark.parametrize("loss", [Logistic(), CappedLogistic(), Huber(0.5)])
@pytest.mark.parametrize(("point", "other"), [((1.0, 1.0), (1.0, -1.0)), ((1.0, -1.0), (-0.2, -1.0))])
def test_objective_perturbation_keeps_its_promise(loss, point, other):
    epsilon, delta, l2, samples = 1.0, 0.01, 0.5, 4
    largest = loss.slope_bound("l2")
    left = epsilon - math.log1p(loss.curvature / (2 * l2 * samples))
    scale = tilt_scale(2 * largest / samples, left, delta)
    assert excess_mass(loss, point, other, l2, scale, epsilon) <= delta
    # A tenth of the noise would not do for the worst pair, so that the test can fail.
    if point[0] == other[0]:
        assert excess_mass(loss, point, other, l2, scale / 10, epsilon) > delta


def test_tilts_solve_their_equation():
    scale = tilt_scale(0.3, 0.7, 1e-4)
    tail = math.sqrt(2 * math.log(1e4))
    assert 0.3 * tail / scale + 0.3**2 / (2 * scale**2) == pytest.approx(0.7)


def test_a_tilted_minimum_is_one(monkeypatch):
    task = bounded_problem(random_problem(2), CappedLogistic(), 0.3, 1.0)
    tilts = np.random.default_rng(0).normal(size=(task.n_agents, task.dimension))
    models = solved_within(task, tilts, 1e-6)
    for agent in range(task.n_agents):
        gradient = LocalObjective.of_agent(task, agent).gradient(models[agent]) + tilts[agent]
        assert np.linalg.norm(gradient) <= 1e-6


def test_objective_perturbation_runs_within_each_budget():
    problem = random_problem(3, n_agents=20)
    method = ReleaseOnce(BUDGET, kind=ObjectivePerturbation(1.0, 1.0, CappedLogistic()))
    assert np.isfinite(simulate(problem, method, updates=3).models).all()
    assert method.guarantee(problem).accountant == "basic"


# The smoothing.


@dataclass(frozen=True)
class Fixed:
    """A release made before, so that what follows cannot see the data."""

    what: Released
    mechanism = "Gaussian noise"
    accountant = "gdp"

    def release(self, problem, budgets, noise_seed):
        return self.what


def test_all_but_the_release_is_blind_to_the_data():
    """Other points and labels, the same release: every message is the same."""
    problem = random_problem(4, density=0.6)
    fixed = ReleaseOnce(BUDGET, kind=Fixed(ReleaseOnce(BUDGET).release(problem)))  # type: ignore[arg-type]
    population = problem.population
    swapped = Population.packed(-7 * population.features, -population.targets, population.offsets)
    other = Problem(swapped, problem.graph, problem.loss, tradeoff=problem.tradeoff)
    first, second = (simulate(each, fixed, updates=20).models for each in (problem, other))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", [PointMean(), OutputPerturbation(0.5, 1.0)])
def test_both_engines_run_it_to_the_minimum(kind):
    problem = random_problem(5, density=0.6)
    method = ReleaseOnce(BUDGET, kind=kind)
    runs = [simulate(problem, method, engine=engine, updates=300) for engine in ("cpu", "reference")]
    np.testing.assert_allclose(runs[0].models, runs[1].models, rtol=1e-9, atol=1e-9)
    descent = method.prepare(problem)
    assert descent.anchors is not None
    goal = PropagationObjective(problem.graph, descent.anchors, descent.pulls, 1.0)
    assert np.linalg.norm(goal.gradient(runs[0].models)) < 1e-3 * np.linalg.norm(goal.gradient(descent.start))
    assert runs[0].final.objective == pytest.approx(goal.value(runs[0].models))


def test_the_release_is_everyone_s_first_message():
    problem = random_problem(6, density=0.6)
    run = simulate(problem, ReleaseOnce(BUDGET), updates=3)
    assert run.records[0].vectors == problem.graph.neighbor_counts.sum()
    assert run.final.vectors == 4 * problem.graph.neighbor_counts.sum()


def test_confidences_follow_precision():
    confidences = precision_confidences(np.array([0.1, 0.4, np.inf]))
    np.testing.assert_allclose(confidences[:2], [1.0, 0.25])
    assert 0 < confidences[2] < 1e-3


def test_sweeps_reach_the_minimum_of_model_propagation():
    problem = random_problem(7, density=0.6)
    pulls = np.linspace(0.2, 1.0, problem.n_agents)
    anchors = np.random.default_rng(0).normal(size=(problem.n_agents, 50))
    goal = PropagationObjective(problem.graph, anchors, pulls, 1.0).optimum()
    np.testing.assert_allclose(propagate(problem.graph, anchors, pulls), goal, atol=1e-2)


def test_public_noise_is_the_same_for_all_and_as_large_as_told():
    """200 columns: a variance is within 50 % (5 standard errors)."""
    variances = np.array([0.01, 1.0, 100.0])
    noise = public_noise(variances, 0)
    np.testing.assert_array_equal(noise, public_noise(variances, 0))
    np.testing.assert_allclose(variances_of(noise), variances, rtol=0.5)


def test_a_common_mean_is_kept_and_noise_is_not():
    random = np.random.default_rng(0)
    variances = np.linspace(0.5, 2.0, 200)
    noise = np.sqrt(variances)[:, None] * random.normal(size=(200, 50))
    assert shrunken_mean(noise + 3.0, variances).kept > 0.99
    assert shrunken_mean(noise, variances).kept < 0.5


def correlations_on(alike, seed):
    """What is expected and what is true of smoothed vectors whose neighbors are alike, or are not."""
    random = np.random.default_rng(seed)
    n_agents, dimension, pulls = 60, 40, np.full(60, 0.2)
    edges = [(k, (k + step) % n_agents) for k in range(n_agents) for step in (1, 2, 3)]
    graph = SimilarityGraph.from_edges(n_agents, edges)
    angles = 2 * np.pi * np.arange(n_agents) / n_agents
    truth = np.zeros((n_agents, dimension))
    truth[:, 0], truth[:, 1] = np.cos(angles), np.sin(angles)
    if not alike:
        truth = truth[random.permutation(n_agents)]
    variances = random.uniform(0.02, 0.2, n_agents)
    vectors = truth + np.sqrt(variances)[:, None] * random.normal(size=truth.shape)
    noise = public_noise(variances, 0)
    smoothed = [Smoothed(rows, propagate(graph, rows, pulls)) for rows in (vectors, noise)]
    shares = 1 / variances / (1 / variances).sum()
    expected = expected_correlations(smoothed[0], smoothed[1], variances, shares, 1.0)
    after = smoothed[0].after
    return expected.mean(), np.mean((after * truth).sum(axis=1) / np.linalg.norm(after, axis=1))


@pytest.mark.parametrize("seed", range(5))
def test_releases_tell_whether_neighbors_are_alike(seed):
    expected, true = correlations_on(alike=True, seed=seed)
    assert expected == pytest.approx(true, abs=0.1)
    misled, worse = correlations_on(alike=False, seed=seed)
    assert misled == pytest.approx(worse, abs=0.15)
    assert misled < expected - 0.3


def test_agents_without_points_learn_from_their_neighbors():
    random = np.random.default_rng(0)
    features = random.normal(size=(600, 2))
    problem = problem_of(features, np.sign(features[:, 0]), Logistic(), [200, 0, 200, 200])
    method = ReleaseOnce(Budget(20.0, 0.01))
    models = simulate(problem, method, updates=50).models
    own = method.finish(problem, models)
    assert models[1, 0] > abs(models[1, 1])
    assert own[1, 0] > abs(own[1, 1])


# What is said, and what is refused.


def test_a_graph_from_private_data_is_named_as_a_leak():
    problem = random_problem(8)
    assert ReleaseOnce(BUDGET).guarantee(problem).leaks == ()
    graph = SimilarityGraph.from_scipy(problem.graph.to_scipy(), source="targets")
    leaky = Problem(problem.population, graph, problem.loss)
    guarantee = ReleaseOnce([BUDGET] * 11 + [Budget(0.5, 1e-5)]).guarantee(leaky)
    assert "graph, built from targets" in guarantee.explain()
    assert guarantee.epsilon == (0.5, 1.0)


@pytest.mark.parametrize(
    ("kind", "loss", "message"),
    [
        (OutputPerturbation(0.1, 1.0), Quadratic(), "no bound"),
        (OutputPerturbation(0.0, 1.0), Huber(), "l2 must be one positive number"),
        (OutputPerturbation(np.ones(12) / 8, 1.0), Huber(), "whatever m_i is"),  # type: ignore[arg-type]
        (OutputPerturbation(0.1, math.inf), Huber(), "feature_bound"),
        (ObjectivePerturbation(0.1, 1.0), Quadratic(), "no bound"),
        (ObjectivePerturbation(1e-4, 1.0), Huber(), "too small for objective perturbation"),
        (ObjectivePerturbation(0.1, 1.0), Softmax(3), "one score"),
        (PointMean(), Huber(), "two classes"),
        (PointMean(), Softmax(3), "two classes"),
    ],
)
def test_what_would_leak_is_refused(kind, loss, message):
    problem = random_problem(9, loss=loss)
    with pytest.raises(PrivacyError, match=message):
        ReleaseOnce(BUDGET, kind=kind).prepare(problem)


def test_normal_noise_needs_a_delta():
    with pytest.raises(PrivacyError, match="delta > 0"):
        ReleaseOnce(Budget(1.0)).prepare(random_problem(9))


def test_budgets_must_fit_the_agents():
    with pytest.raises(PrivacyError, match="2 budgets for 12 agents"):
        budget_of_each(random_problem(9), [BUDGET, BUDGET])


def test_a_tradeoff_must_be_positive():
    with pytest.raises(PrivacyError, match="tradeoff"):
        ReleaseOnce(BUDGET, tradeoff=0.0)


def test_nothing_to_release_is_refused():
    problem = problem_of(np.empty((0, 2)), [], Logistic(), [0, 0])
    with pytest.raises(PrivacyError, match="nothing to release"):
        ReleaseOnce(BUDGET).prepare(problem)


def test_gates_release_what_the_simulation_says():
    """Each agent's own gate, with its own event, against the release of all agents at once."""
    problem = random_problem(3)
    result = ReleaseOnce(BUDGET, noise_seed=6).release(problem)
    for agent, event in enumerate(result.events):
        features, targets = problem.population.samples(agent)
        if event is None:
            assert len(targets) == 0
            continue
        gate = Gate(Plan(BUDGET, "gdp", (event,)), MemoryLedger("a"), SimulatedNoise(6, agent))
        release = gate.release_mean(unit_rows(features, targets), 1.0)
        np.testing.assert_allclose(release.vector, result.vectors[agent], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("target", [1e15, 1e20, 1e300, -1e308])
def test_no_target_makes_a_release_fail(target, monkeypatch):
    """A refusal would tell of it; and the release moves no further than for any other point."""
    without_noise(monkeypatch)
    kind = OutputPerturbation(0.5, 2.0, Huber(0.7))
    features, targets = [[1.0, 0.5], [0.3, -1.0], [0.2, 0.1]], [0.5, -0.2, 0.1]
    usual = kind.release(problem_of(features, targets, Huber(0.7)), (BUDGET,), 0)
    far = kind.release(problem_of(features, [*targets[:2], target], Huber(0.7)), (BUDGET,), 0)
    assert np.linalg.norm(far.vectors - usual.vectors) <= sensitivity_of(usual)
