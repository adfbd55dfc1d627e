"""Release once: sensitivities that hold, noise that is calibrated, smoothing that sees no data, refusals."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.integrate import quad
from tests.support import random_problem

from flockwise import (
    Logistic,
    Population,
    Problem,
    SimilarityGraph,
    angular_graph,
    linear_classification,
    random_graph,
    simulate,
)
from flockwise.data import Samples
from flockwise.errors import PrivacyError
from flockwise.method import Propagation, ReleaseOnce
from flockwise.method.rules import Descent, LocalAnchors
from flockwise.method.smoothing import noise_like, propagate, variances_of
from flockwise.objective import (
    CappedLogistic,
    Huber,
    LocalObjective,
    Objective,
    PropagationObjective,
    Quadratic,
    Softmax,
)
from flockwise.privacy import schedule
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.plan import Plan
from flockwise.protocol.propagation import (
    expected_correlations,
    precision_confidences,
    shrunken_mean,
    variance_around,
)
from flockwise.protocol.rows import AgentRows
from flockwise.release import (
    ObjectivePerturbation,
    OutputPerturbation,
    PointMean,
    Released,
)
from flockwise.release.model import bounded_problem, solved_within
from flockwise.release.tilted import tilt_scale
from flockwise.solve import solve_local_models

BUDGET = Budget(1.0, math.exp(-5))
# The least normal noise for BUDGET and sensitivity 1, from the exact curve (Balle and Wang 2018).
MULTIPLIER = 2.0043


def problem_of(features, targets, loss, counts=None, **settings):
    """Agents with the given samples one after the other, on a path."""
    counts = [len(targets)] if counts is None else counts
    offsets = np.concatenate([[0], np.cumsum(counts)])
    edges = [(k, k + 1) for k in range(len(counts) - 1)]
    graph = SimilarityGraph.from_edges(len(counts), np.array(edges).reshape(-1, 2))
    population = Population.packed(np.array(features, float), np.array(targets, float), offsets)
    return Problem(population, graph, Objective(loss, **settings))


def samples_held(problem, agent):
    return Samples(*(part.astype(np.float64) for part in problem.population.samples(agent)))


def handed_over(what, problem, agent=0):
    """What one agent's gate is given of its samples: the vector, and how far one sample may move it."""
    value = what.of(samples_held(problem, agent), problem.objective)
    plan = Plan.fitting(BUDGET, "gaussian", 1)
    event = value.event(plan, 1)
    return value.bounded(event, None), event.sensitivity


def without_noise(monkeypatch):
    monkeypatch.setattr(
        "flockwise.randomness.noise.standard_noise",
        lambda sampler, seed, agent, number, size: np.zeros(size),
    )


# What one sample can change.


def samples_of(random, count, dimension, loss):
    """Samples of all sizes, far beyond any bound included."""
    features = random.normal(size=(count, dimension)) * 10.0 ** random.uniform(-3, 6, (count, 1))
    if loss.metric == "rmse":
        return features, random.normal(size=count) * 10.0 ** random.uniform(-3, 6, count)
    return features, random.choice([-1.0, 1.0], count)


def moved(what, loss, bound, seed):
    """How far what is released moves when one sample is replaced, over its sensitivity."""
    random = np.random.default_rng(seed)
    features, targets = samples_of(random, 6, 3, loss)
    before, sensitivity = handed_over(what, problem_of(features, targets, loss, feature_bound=bound))
    features, targets = features.copy(), targets.copy()
    other_features, other_targets = samples_of(random, 6, 3, loss)
    features[2], targets[2] = other_features[2], other_targets[2]
    after, _ = handed_over(what, problem_of(features, targets, loss, feature_bound=bound))
    return np.linalg.norm(after - before) / sensitivity


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("what", "loss", "bound"),
    [
        (PointMean(), Logistic(), None),
        (OutputPerturbation(l2=0.1), Huber(0.7), 2.0),
        (OutputPerturbation(width=0.7, l2=0.1), Quadratic(), 2.0),
        (OutputPerturbation(l2=0.05), CappedLogistic(), 1.0),
        (OutputPerturbation(l2=0.1), Logistic(), 2.0),
    ],
)
def test_one_sample_moves_a_release_by_at_most_its_sensitivity(what, loss, bound, seed):
    assert moved(what, loss, bound, seed) <= 1


def test_the_sensitivity_of_the_mean_is_reached():
    one, sensitivity = handed_over(PointMean(), problem_of([[5.0], [0.1]], [1, 1], Logistic()))
    other, _ = handed_over(PointMean(), problem_of([[5.0], [0.1]], [1, -1], Logistic()))
    assert sensitivity == 1.0
    assert np.abs(one - other) == pytest.approx(1.0, rel=1e-12)


def test_the_sensitivity_of_output_perturbation_is_reached():
    """Huber far out has the constant slope C, so the minimum moves by C/(mλ) exactly."""
    features = [[3.0], [0.0], [0.0], [0.0]]
    (one, sensitivity), (other, _) = (
        handed_over(
            OutputPerturbation(l2=0.5), problem_of(features, [y, 0, 0, 0], Huber(0.2), feature_bound=3.0)
        )
        for y in (1e3, -1e3)
    )
    gradient_bound = 2 * 0.2 * 3.0
    assert np.abs(one - other) == pytest.approx(gradient_bound / (4 * 0.5), rel=1e-6)
    assert sensitivity == pytest.approx(gradient_bound / (4 * 0.5), rel=1e-5)
    # And the solver's tolerance is on top.
    assert sensitivity > gradient_bound / (4 * 0.5) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("what", "loss"),
    [(PointMean(), Logistic()), (OutputPerturbation(0.5, 0.1), Quadratic()), (OutputPerturbation(), Huber())],
)
def test_one_gate_is_given_what_all_agents_release(what, loss, monkeypatch):
    without_noise(monkeypatch)
    problem = random_problem(3, loss=loss, feature_bound=1.0, l2=0.3)
    released = what.release(problem, BUDGET, 0)
    for agent in np.flatnonzero(problem.population.sample_counts).tolist():
        vector, sensitivity = handed_over(what, problem, agent)
        np.testing.assert_allclose(released.vectors[agent], vector, rtol=1e-6, atol=1e-8)
        assert released.noise_variances[agent] == pytest.approx((MULTIPLIER * sensitivity) ** 2, rel=1e-3)


# The noise.


def test_noise_is_calibrated_once_per_distinct_budget(monkeypatch):
    asked = []

    class Counting(Plan):
        @classmethod
        def fitting(cls, budget, *arguments, **settings):
            asked.append(budget)
            return Plan.fitting(budget, *arguments, **settings)

    monkeypatch.setattr(schedule, "Plan", Counting)
    problem = random_problem(0, max_samples=8)
    counts = problem.population.sample_counts
    released = ReleaseOnce([BUDGET, Budget(0.5, 1e-5)] * 6).release(problem, 0)
    assert sorted(asked, key=lambda budget: budget.epsilon) == [Budget(0.5, 1e-5), BUDGET]
    assert np.isinf(released.noise_variances[counts == 0]).all()
    for agent in np.flatnonzero(counts[::2]) * 2:
        noise = MULTIPLIER * 2 / counts[agent]
        assert math.sqrt(released.noise_variances[agent]) == pytest.approx(noise, rel=1e-4)


def test_noise_has_the_size_that_is_told_to_everyone(monkeypatch):
    """400 agents × 30 coordinates: the sample variance is within 7 % (5 standard errors) of that told."""
    random = np.random.default_rng(0)
    problem = problem_of(random.normal(size=(1600, 30)), np.ones(1600), Logistic(), [4] * 400)
    noisy = ReleaseOnce(BUDGET).release(problem, 5)
    without_noise(monkeypatch)
    exact = ReleaseOnce(BUDGET).release(problem, 5)
    ratios = (noisy.vectors - exact.vectors) / np.sqrt(noisy.noise_variances)[:, None]
    assert ratios.var() == pytest.approx(1.0, abs=0.07)
    assert noisy.noise_variances[0] == pytest.approx((2 * MULTIPLIER / 4) ** 2, rel=1e-3)


@pytest.mark.parametrize("what", [PointMean(), OutputPerturbation(l2=0.5)])
def test_sampling_varies_less_than_its_public_bound(what, monkeypatch):
    """Agents alike in all but their samples: how their vectors spread is within what `variances` says."""
    without_noise(monkeypatch)
    random = np.random.default_rng(1)
    features = random.normal(size=(4000, 5))
    targets = np.where(features[:, 0] > 0, 1, -1)
    problem = problem_of(features, targets, CappedLogistic(), [10] * 400, feature_bound=1.0)
    result = what.release(problem, BUDGET, 0)
    assert result.vectors.var(axis=0).mean() < result.sampling_variances[0]


def test_one_seed_gives_one_release():
    problem = random_problem(1)
    first, again, other = (ReleaseOnce(BUDGET).release(problem, seed).vectors for seed in (3, 3, 4))
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
    # A tenth of the noise would not do for the worst pair, so the test can fail.
    if point[0] == other[0]:
        assert excess_mass(loss, point, other, l2, scale / 10, epsilon) > delta


def test_tilts_solve_their_equation():
    scale = tilt_scale(0.3, 0.7, 1e-4)
    tail = math.sqrt(2 * math.log(1e4))
    assert 0.3 * tail / scale + 0.3**2 / (2 * scale**2) == pytest.approx(0.7)


def test_a_tilted_minimum_is_one():
    problem = random_problem(2, feature_bound=1.0)
    task = bounded_problem(problem, replace(problem.objective, loss=CappedLogistic(), l2=0.3))
    tilts = np.random.default_rng(0).normal(size=(task.n_agents, task.dimension))
    models = solved_within(task, tilts, 1e-6)
    for agent in range(task.n_agents):
        gradient = LocalObjective.of_agent(task, agent).gradient(models[agent]) + tilts[agent]
        assert np.linalg.norm(gradient) <= 1e-6


def test_objective_perturbation_runs_within_each_budget():
    problem = random_problem(3, n_agents=20, loss=CappedLogistic(), feature_bound=1.0)
    run = simulate(problem, ReleaseOnce(BUDGET, ObjectivePerturbation(l2=1.0)), updates=3)
    assert np.isfinite(run.models).all()
    assert run.guarantee is not None
    assert run.guarantee.accountant == "basic"


# The smoothing.


@dataclass(frozen=True)
class Fixed(PointMean):
    """A release made before, so that what follows cannot see the data."""

    what: Released | None = None

    def release(self, problem, budgets, seed):
        assert self.what is not None
        return self.what


def test_all_but_the_release_is_blind_to_the_data():
    """Other samples, the same release: every message is the same."""
    problem = random_problem(4, density=0.6)
    fixed = ReleaseOnce(BUDGET, Fixed(ReleaseOnce(BUDGET).release(problem, 0)))
    population = problem.population
    swapped = population.with_samples(-7 * population.features, -population.targets)
    other = Problem(swapped, problem.graph, problem.objective)
    first, second = (simulate(each, fixed, updates=20).models for each in (problem, other))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("what", [PointMean(), OutputPerturbation(l2=0.5)])
def test_both_engines_run_it_to_the_minimum(what):
    problem = random_problem(5, density=0.6, feature_bound=1.0)
    method = ReleaseOnce(BUDGET, what)
    runs = [simulate(problem, method, engine=engine, updates=300) for engine in ("cpu", "reference")]
    np.testing.assert_allclose(runs[0].models, runs[1].models, rtol=1e-9, atol=1e-9)
    rule = method.prepare(problem, 0).rule
    assert isinstance(rule, Descent)
    assert isinstance(rule.local, LocalAnchors)
    goal = PropagationObjective(problem.neighbors, rule.local.anchors, rule.pulls)
    assert np.linalg.norm(goal.gradient(runs[0].models)) < 1e-3 * np.linalg.norm(goal.gradient(rule.start))
    assert runs[0].final.objective == pytest.approx(goal.value(runs[0].models))


def test_the_release_is_everyone_s_first_message():
    problem = random_problem(6, density=0.6)
    run = simulate(problem, ReleaseOnce(BUDGET), updates=3)
    assert run.records[0].vectors == problem.neighbors.neighbor_counts.sum()
    assert run.final.vectors == 4 * problem.neighbors.neighbor_counts.sum()


def test_a_release_with_less_noise_gets_more_confidence():
    confidences = precision_confidences(np.array([0.1, 0.4, np.inf]))
    np.testing.assert_allclose(confidences[:2], [1.0, 0.25])
    assert 0 < confidences[2] < 1e-3


def test_sweeps_reach_the_minimum_of_model_propagation():
    problem = random_problem(7, density=0.6)
    pulls = np.linspace(0.2, 1.0, problem.n_agents)
    anchors = np.random.default_rng(0).normal(size=(problem.n_agents, 50))
    goal = PropagationObjective(problem.neighbors, anchors, pulls).optimum()
    np.testing.assert_allclose(propagate(problem.neighbors, anchors, pulls), goal, atol=1e-2)


def test_public_noise_is_the_same_for_all_and_as_large_as_told():
    """200 columns: a variance is within 50 % (5 standard errors)."""
    variances = np.array([0.01, 1.0, 100.0])
    noise = noise_like(variances)
    np.testing.assert_array_equal(noise, noise_like(variances))
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
    noise = noise_like(variances)
    smoothed = AgentRows(*(propagate(graph, rows, pulls) for rows in (vectors, noise)))
    shares = 1 / variances / (1 / variances).sum()
    expected = expected_correlations(AgentRows(vectors, noise), smoothed, variances, shares, 1.0)
    after = smoothed.vectors
    return expected.mean(), np.mean((after * truth).sum(axis=1) / np.linalg.norm(after, axis=1))


@pytest.mark.parametrize("seed", range(5))
def test_releases_tell_whether_neighbors_are_alike(seed):
    expected, true = correlations_on(alike=True, seed=seed)
    assert expected == pytest.approx(true, abs=0.1)
    misled, worse = correlations_on(alike=False, seed=seed)
    assert misled == pytest.approx(worse, abs=0.15)
    assert misled < expected - 0.3


def test_agents_without_samples_learn_from_their_neighbors():
    random = np.random.default_rng(0)
    features = random.normal(size=(600, 2))
    problem = problem_of(features, np.sign(features[:, 0]), Logistic(), [200, 0, 200, 200])
    run = simulate(problem, ReleaseOnce(Budget(20.0, 0.01)), updates=50)
    own = run.own_models
    assert own is not None
    assert run.models[1, 0] > abs(run.models[1, 1])
    assert own[1, 0] > abs(own[1, 1])


@pytest.mark.parametrize("noise", [0.05, 20.0])
def test_how_far_neighbors_differ_is_told_from_releases(noise):
    """Around what was made without looking: the truths' own variance, 1, or too much to trust it."""
    random = np.random.default_rng(0)
    truths, columns = random.normal(size=(400, 6)), random.normal(size=(400, 200))
    releases = AgentRows(truths + noise * random.normal(size=truths.shape), noise * columns)
    nothing = AgentRows(np.zeros_like(truths), np.zeros_like(columns))
    found = variance_around(releases, nothing, np.full(400, 1 / 400))
    assert found == pytest.approx(1.0, abs=0.1) if noise < 1 else found > 5
    same = variance_around(releases, releases, np.full(400, 1 / 400))
    assert same == 0


def regression_on(graph, seed):
    """The paper's task with numbers to predict, and the models that made them."""
    task = linear_classification(80, 10, seed=seed, test_samples=0)
    features, counts = task.train.features, task.train.sample_counts
    noise = 0.3 * np.random.default_rng(seed).normal(size=len(features))
    targets = np.einsum("ij,ij->i", features, np.repeat(task.targets, counts, axis=0)) + noise
    population = task.train.with_samples(features, targets)
    edges = (
        angular_graph(task.profiles, source="profiles") if graph == "profiles" else random_graph(80, 10, 0)
    )
    return Problem(population, edges, Objective(Quadratic(), feature_bound=10**0.5)), task.targets


@pytest.mark.parametrize("epsilon", [10.0, 1.0, 0.1])
@pytest.mark.parametrize("graph", ["profiles", "random"])
def test_own_models_from_released_ones_are_not_far_worse_than_local(graph, epsilon):
    """Distances from the truth over those of local models; the worst measured is 1.02, on random edges."""
    ratios = []
    for seed in range(3):
        problem, truths = regression_on(graph, seed)
        method = ReleaseOnce(Budget(epsilon, 1e-5), OutputPerturbation(width=1.0, l2=0.5))
        own = np.asarray(simulate(problem, method, updates=50, seed=seed).own_models)
        local = solve_local_models(problem)
        ratios.append(np.linalg.norm(own - truths) / np.linalg.norm(local - truths))
    assert np.mean(ratios) < 1.05


def test_own_models_use_the_samples_as_they_are(monkeypatch):
    """What is released is made of scaled samples, and no other; the finish then has all of its own."""
    without_noise(monkeypatch)
    problem = random_problem(5, density=0.6, feature_bound=0.2, l2=0.5)
    scaled = Problem(problem.exchanged, problem.graph, problem.objective)
    method = ReleaseOnce(BUDGET, OutputPerturbation())
    one, other = (simulate(each, method, updates=5) for each in (problem, scaled))
    np.testing.assert_allclose(one.models, other.models, rtol=1e-9, atol=1e-12)
    assert np.abs(np.asarray(one.own_models) - np.asarray(other.own_models)).max() > 1e-3


# What is said, and what is refused.


def test_a_graph_from_private_data_is_not_covered():
    problem = random_problem(8)
    told = ReleaseOnce(BUDGET).prepare(problem, 0).guarantee
    assert told is not None
    assert told.not_covered == ()
    graph = SimilarityGraph.from_scipy(problem.neighbors.to_scipy(), source="targets")
    leaky = Problem(problem.population, graph, Objective(problem.loss))
    guarantee = ReleaseOnce([BUDGET] * 11 + [Budget(0.5, 1e-5)]).prepare(leaky, 0).guarantee
    assert guarantee is not None
    assert "graph, built from targets" in guarantee.explain()
    assert guarantee.not_covered == ("the graph, built from targets",)
    assert guarantee.epsilon == (0.5, 1.0)


@pytest.mark.parametrize(
    ("what", "loss", "settings", "message"),
    [
        (OutputPerturbation(l2=0.1), Quadratic(), {}, r"method\.width: missing.*does not bound the gradient"),
        (OutputPerturbation(0.5, 0.1), Huber(), {}, r"method\.width: only for a loss without"),
        (OutputPerturbation(), Huber(), {}, r"objective\.l2: missing; .* one number above 0"),
        (OutputPerturbation(), Huber(), {"l2": 0.0}, r"objective\.l2: got 0\.0; .* one number above 0"),
        (OutputPerturbation(), Huber(), {"l2": np.ones(12) / 8}, r"objective\.l2: got .* the same for all"),
        (OutputPerturbation(l2=0.1), Huber(), {"feature_bound": None}, r"objective\.feature_bound: missing"),
        (
            ObjectivePerturbation(0.1),
            Quadratic(),
            {},
            r"objective\.loss: got \"quadratic\".*bounded gradient",
        ),
        (ObjectivePerturbation(1e-4), Huber(), {}, "too small for objective perturbation"),
        (ObjectivePerturbation(0.1), Softmax(3), {}, "one score"),
        (ObjectivePerturbation(0.1), Huber(), {"feature_bound": None}, r"objective\.feature_bound: missing"),
        (PointMean(), Huber(), {}, "two classes"),
        (PointMean(), Softmax(3), {}, "two classes"),
    ],
)
def test_what_would_leak_is_refused(what, loss, settings, message):
    problem = random_problem(9, loss=loss, **{"feature_bound": 1.0, **settings})
    with pytest.raises(PrivacyError, match=message):
        simulate(problem, ReleaseOnce(BUDGET, what), updates=1)
    with pytest.raises(PrivacyError, match=message):
        what.release(problem, BUDGET, 0)


@pytest.mark.parametrize("statistic", [OutputPerturbation, ObjectivePerturbation])
@pytest.mark.parametrize("l2", [0.0, -1.0, math.inf, np.ones(3)])
def test_a_penalty_of_a_released_model_is_one_number_above_zero(statistic, l2):
    with pytest.raises(PrivacyError, match="l2 must be a number above 0"):
        statistic(l2=l2)


def test_objective_perturbation_is_no_release_of_a_gate():
    problem = random_problem(9, feature_bound=1.0)
    with pytest.raises(PrivacyError, match="a gate cannot do"):
        handed_over(ObjectivePerturbation(1.0), problem)


def test_normal_noise_needs_a_delta():
    with pytest.raises(PrivacyError, match="delta > 0"):
        ReleaseOnce(Budget(1.0)).prepare(random_problem(9), 0)


def test_budgets_must_fit_the_agents():
    with pytest.raises(PrivacyError, match="2 budgets for 12 agents"):
        ReleaseOnce([BUDGET, BUDGET]).prepare(random_problem(9), 0)


def test_a_tradeoff_must_be_positive():
    with pytest.raises(PrivacyError, match="tradeoff"):
        Propagation(tradeoff=0.0)


def test_nothing_to_release_is_refused():
    problem = problem_of(np.empty((0, 2)), [], Logistic(), [0, 0])
    with pytest.raises(PrivacyError, match="nothing to release"):
        ReleaseOnce(BUDGET).prepare(problem, 0)


@pytest.mark.parametrize("what", [PointMean(), OutputPerturbation(l2=0.5)])
def test_gates_release_what_the_simulation_says(what):
    """Each agent's own gate, with its own plan and stream of noise, against the release of all at once."""
    problem = random_problem(3, feature_bound=1.0)
    result = what.release(problem, BUDGET, 6)
    assert result.plan is not None
    for agent in range(problem.n_agents):
        samples = samples_held(problem, agent)
        if len(samples.targets) == 0:
            assert not result.vectors[agent].any()
            continue
        gate = Gate(result.plan, MemoryLedger("a"), SimulatedNoise(6, agent))
        release = gate.release(what.of(samples, problem.objective))
        np.testing.assert_allclose(release.vector, result.vectors[agent], rtol=1e-12, atol=1e-15)
        assert gate.is_spent


def test_the_rows_of_a_mean_are_of_length_one():
    samples = samples_held(random_problem(3), 4)
    rows = PointMean().of(samples, Objective())
    assert isinstance(rows, Rows)
    assert rows.clip == 1.0
    np.testing.assert_allclose(np.linalg.norm(np.asarray(rows.values), axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("target", [1e15, 1e20, 1e300, -1e308])
def test_no_target_makes_a_release_fail(target):
    """A refusal would tell of it; and the release moves no further than for any other sample."""
    what, features = OutputPerturbation(l2=0.5), [[1.0, 0.5], [0.3, -1.0], [0.2, 0.1]]
    usual, sensitivity = handed_over(
        what, problem_of(features, [0.5, -0.2, 0.1], Huber(0.7), feature_bound=2.0)
    )
    far, _ = handed_over(what, problem_of(features, [0.5, -0.2, target], Huber(0.7), feature_bound=2.0))
    assert np.linalg.norm(far - usual) <= sensitivity
