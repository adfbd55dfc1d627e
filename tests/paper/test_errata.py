"""Each error of the paper, demonstrated: the printed statement fails, and the corrected one holds.

docs/errata.md tells them in order and quotes the numbers that are asserted here.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, laplace, norm
from tests.noisy_descent import clipped_in_l1, descend, even_problem, exact_expected_gaps, quadratic_form

from flockwise.data import Population, linear_classification
from flockwise.graph import GraphSource, SimilarityGraph, angular_graph
from flockwise.objective import Huber, LocalObjective, Logistic, Objective, Problem, Quadratic, gradient_bound
from flockwise.privacy.budget import default_delta
from flockwise.theory.utility import utility_theory

PUBLISHED_DELTA = math.exp(-5)


def largest_log_ratio(center, other, scale):
    """The largest |log p(z)/q(z)| of Laplace noise of one scale around two vectors, at the z that has it."""
    output = center + np.sign(center - other)
    return laplace.logpdf(output, center, scale).sum() - laplace.logpdf(output, other, scale).sum()


def root(function, low, high) -> float:
    return float(brentq(function, low, high))  # pyright: ignore[reportArgumentType]


# Theorem 2, Prop. 2 and supplement B: what the noise costs


def with_exact_convexity(problem):
    """Theorem 2 with the true σ of a quadratic problem, the best that any reading of it could use."""
    theory = utility_theory(problem)
    sigma = float(np.linalg.eigvalsh(quadratic_form(problem)[0])[0])
    constants = dataclasses.replace(
        theory.convergence, strong_convexity=sigma, published_strong_convexity=sigma
    )
    return dataclasses.replace(theory, convergence=constants)


def test_late_noise_stays_and_early_noise_is_forgotten():
    """Theorem 2 weighs the noise of tick t by C^t; unrolling its own recursion gives C^(T−1−t).

    With p = 1, noise in the last tick alone costs millions of times what the printed bound allows; the
    same noise costs 95,000 times as much in the last third of a run as in the first.
    """
    problem = even_problem(n_agents=4, dimension=1, tradeoff=5.0)
    theory, (_, optimum), n_ticks = with_exact_convexity(problem), quadratic_form(problem), 60
    last_tick = np.zeros((4, n_ticks))
    last_tick[:, -1] = 1.0
    gap = exact_expected_gaps(problem, optimum, last_tick)[-1]
    printed = theory.published_bounds(0.0, theory.published_costs(last_tick, n_ticks, counted="ticks"))[-1]
    corrected = theory.bounds(0.0, theory.costs(last_tick, n_ticks, counted="ticks"))[-1]
    assert gap > 4e6 * printed
    assert gap == pytest.approx(corrected, rel=1e-9)

    first_third, last_third = np.zeros((4, n_ticks)), np.zeros((4, n_ticks))
    first_third[:, :20], last_third[:, 40:] = 1.0, 1.0
    early = exact_expected_gaps(problem, optimum, first_third)[-1]
    late = exact_expected_gaps(problem, optimum, last_third)[-1]
    assert late / early == pytest.approx(95_200, rel=0.001)


def test_the_published_allocation_is_worse_than_none():
    """Prop. 2 gives late updates less of the budget; the recursion asks for more, ε(t) ∝ C^((T−1−t)/3).

    Under basic composition the published schedule ends 14 times farther from the optimum than equal
    shares do, the corrected one at .31 of their distance.
    """
    problem = even_problem(n_agents=4, dimension=2, tradeoff=5.0)
    contraction, n_ticks = with_exact_convexity(problem).convergence.contraction, 30
    ticks = np.arange(n_ticks)
    shares = {
        "published": contraction ** (ticks / 3),
        "uniform": np.ones(n_ticks),
        "corrected": contraction ** ((n_ticks - 1 - ticks) / 3),
    }
    gaps = {}
    for name, share in shares.items():
        step_epsilons = share / share.sum()
        stds = np.tile(math.sqrt(2) * 0.01 / step_epsilons, (4, 1))
        gaps[name] = exact_expected_gaps(problem, np.zeros((4, 2)), stds)[-1]
    assert gaps["published"] / gaps["uniform"] == pytest.approx(14.3, abs=0.05)
    assert gaps["corrected"] / gaps["uniform"] == pytest.approx(0.311, abs=0.001)


@pytest.mark.parametrize("dimension", [1, 100])
def test_the_noise_of_p_coordinates_counts_p_times(dimension):
    """Theorem 2 takes E‖η‖² = 2s²; p independent coordinates have 2·p·s².

    From the optimum one tick costs exactly p times what is printed, so that the bound is violated for
    p > 1, and so is its limit a/ρ in supplement B.
    """
    problem = even_problem(n_agents=3, dimension=dimension)
    theory, (_, optimum) = with_exact_convexity(problem), quadratic_form(problem)
    scale = 0.3
    stds = np.full((3, 1), math.sqrt(2) * scale)
    gap = exact_expected_gaps(problem, optimum, stds)[-1]
    factors = problem.tradeoff * problem.neighbors.degrees * problem.confidences * scale
    printed = (factors**2).sum() / (3 * problem.block_smoothness.min())
    assert gap / printed == pytest.approx(dimension, rel=1e-9)
    assert theory.published_costs(stds[:, 0], 1)[0] == pytest.approx(printed, rel=1e-12)
    assert gap <= theory.bounds(0.0, theory.costs(stds[:, 0], 1))[-1] * (1 + 1e-12)
    rate = 1 - theory.convergence.published_contraction
    assert theory.noise_limit(stds[:, 0]) == pytest.approx(dimension * printed / rate, rel=1e-9)


def test_agents_that_stop_leave_theorem_2():
    """Agents stop after T_i = T/n updates, while Theorem 2 lets every agent that wakes descend.

    Clocks are random: in 1000 ticks of 100 agents, one tick in eight wakes an agent that has already
    made its 10 updates.
    """
    updates = np.arange(11, 1001)
    idle_ticks = 100 * ((updates - 10) * binom.pmf(updates, 1000, 1 / 100)).sum()
    assert idle_ticks / 1000 == pytest.approx(0.125, abs=0.001)


# Theorem 1 and its remark: what an update costs


def test_lipschitz_in_l1_bounds_the_largest_coordinate_only():
    """Lemma 1: a loss that is L0-Lipschitz in the L1 norm has ‖∇ℓ‖_∞ ≤ L0; its proof needs ‖∇ℓ‖₁ ≤ L0.

    The logistic loss on [−1, 1]^100 is 1-Lipschitz in L1. Flipping the label of a typical point still
    costs 25 times the ε of the theorem, and a worst pair of points 99 times.
    """
    p, m, epsilon = 100, 50, 1.0
    scale = 2 * 1.0 / (epsilon * m)  # as printed, with L0 = 1

    points = linear_classification(5, p, seed=0, test_samples=1).train.features
    typical = [largest_log_ratio(-0.5 * x / m, 0.5 * x / m, scale) for x in points]  # θ = 0, y = ±1
    assert np.mean(typical) == pytest.approx(25.0, abs=0.5)

    # Two points of label +1 that the model gets badly wrong: the gradients are −x and −x'.
    last_alone = np.append(np.zeros(p - 1), 1.0)
    model, first, second = -50 * last_alone, np.ones(p), 2 * last_alone - np.ones(p)
    gradients = [
        LocalObjective(Logistic(), x[None], np.ones(1), 0.0).gradient(model) for x in (first, second)
    ]
    assert max(np.abs(gradient).max() for gradient in gradients) <= 1
    assert largest_log_ratio(gradients[0] / m, gradients[1] / m, scale) == pytest.approx(99.0)

    clipped = clipped_in_l1(np.array(gradients), 1.0)
    assert largest_log_ratio(clipped[0] / m, clipped[1] / m, scale) <= epsilon * (1 + 1e-9)
    assert gradient_bound(Logistic(), feature_bound=p, norm="l1") == p


def test_the_clip_has_to_be_in_the_norm_of_the_noise():
    """Supplement D clips "the norm" at C and refers to clipping in L2; Laplace noise needs the L1 norm.

    With p = 20 and an L2 clip one update costs √20 = 4.5 times the ε of the theorem.
    """
    p, m, epsilon, clip = 20, 30, 1.0, 10.0
    gradient = np.full(p, clip / math.sqrt(p))
    assert np.linalg.norm(gradient) == pytest.approx(clip)
    scale = 2 * clip / (epsilon * m)
    assert largest_log_ratio(gradient / m, -gradient / m, scale) == pytest.approx(math.sqrt(20) * epsilon)
    in_l1 = clipped_in_l1(np.array([gradient, -gradient]), clip) / m
    assert largest_log_ratio(in_l1[0], in_l1[1], scale) == pytest.approx(epsilon)


def composition_terms(step_epsilon, updates, delta):
    """The three terms of Theorem 1 for equal steps."""
    drift = updates * step_epsilon * math.tanh(step_epsilon / 2)
    variance = 2 * updates * step_epsilon**2
    second = math.sqrt(variance * math.log(math.e + math.sqrt(variance / 2) / delta))
    third = math.sqrt(variance * math.log(1 / delta))
    return updates * step_epsilon, drift + second, drift + third


def gaussian_delta(multiplier, epsilon):
    """The exact δ of normal noise for a sensitivity of 1 (Balle and Wang, 2018)."""
    shift, reach = 1 / (2 * multiplier), epsilon * multiplier
    return norm.cdf(shift - reach) - math.exp(epsilon) * norm.cdf(-shift - reach)


def exact_multiplier(epsilon, delta):
    return root(lambda multiplier: gaussian_delta(multiplier, epsilon) - delta, 0.05, 1000)


def test_the_gaussian_remark_has_no_sample_count_and_a_wrong_constant():
    """Supplement A: s = 2L0·√(2 ln(2/δ))/ε for every ε > 0, but the sensitivity is 2L0/m_i.

    As printed it is m_i times too much noise. Divided by m_i it is still 1.32 times too much at
    (1, 1e-5), and too little for large ε: at ε = 10 its true δ is 1.36e-5 and not 1e-5.
    """

    def remark(epsilon, delta):
        return math.sqrt(2 * math.log(2 / delta)) / epsilon

    m = 50
    sensitivity, printed = 2 / m, 2 * remark(1.0, 1e-5)
    assert printed / sensitivity == pytest.approx(m * remark(1.0, 1e-5))
    assert remark(1.0, 1e-5) / exact_multiplier(1.0, 1e-5) == pytest.approx(1.324, abs=0.001)
    assert gaussian_delta(remark(10.0, 1e-5), 10.0) == pytest.approx(1.36e-5, rel=0.01)
    assert gaussian_delta(exact_multiplier(10.0, 1e-5), 10.0) == pytest.approx(1e-5, rel=1e-6)


def test_a_step_size_from_the_data_leaks_it():
    """The proof of Theorem 1 takes the gradient as the only thing that depends on the data; so may α.

    This takes a step that is computed from the data, and a dishonest neighbor: one that sends 100 reads off
    which of two neighboring data sets it is facing. An update that claims ε = 1 has δ = .98. With a public
    bound on the smoothness it costs .23, whatever is sent.
    """
    m, l2, pull, epsilon, message = 10, 0.1, 1.0, 1.0, 100.0
    first = np.full((m, 1), 0.1)
    second = np.vstack(([[1.0]], first[1:]))
    scale = 2 * 1.0 / (epsilon * m)
    public = 1 / (1 + pull * (Logistic().curvature * 1.0**2 + 2 * l2))
    outputs = np.linspace(70, 90, 200_001)

    def log_density(features, step_size):
        objective = LocalObjective(Logistic(), features, np.ones(m), l2)
        step_size = step_size or 1 / (1 + pull * objective.smoothness)
        center = step_size * (message - pull * objective.gradient(np.zeros(1))[0])
        return laplace.logpdf(outputs, center, step_size * pull * scale)

    one, other = log_density(first, None), log_density(second, None)
    excess = np.maximum(np.exp(one) - math.exp(epsilon) * np.exp(other), 0)
    assert np.trapezoid(excess, outputs) > 0.98
    one, other = log_density(first, public), log_density(second, public)
    assert np.abs(one - other).max() == pytest.approx(0.225, abs=1e-6)


def largest_change(catalog, rated, ratings, model, center, clip):
    """How far one replaced rating moves the clipped gradient of a user, as a multiple of 2·clip/m."""

    def clipped_sum(movies, values):
        residuals = catalog[movies] @ model - values
        return clipped_in_l1(2 * residuals[:, None] * catalog[movies], clip)

    before, largest = clipped_sum(rated, ratings - center(ratings)).sum(axis=0), 0.0
    for position in range(len(rated)):
        kept = np.arange(len(rated)) != position
        for rating in (1.0, 5.0):
            changed = np.where(kept, ratings, rating)
            others = clipped_sum(rated[kept], ratings[kept] - center(changed)).sum(axis=0)
            any_movie = clipped_sum(np.arange(len(catalog)), np.full(len(catalog), rating - center(changed)))
            largest = max(largest, np.abs(others + any_movie - before).sum(axis=1).max())
    return largest / (2 * clip)


@pytest.mark.parametrize(
    ("feature_size", "with_own_mean"), [(0.1, 0.80), (0.15, 0.93), (0.2, 1.11), (0.3, 1.46)]
)
def test_centring_by_the_users_own_mean_breaks_the_sensitivity(feature_size, with_own_mean):
    """Supplement D subtracts a user's mean rating: one changed rating moves every residual of that user.

    How far depends on the features: among 10 generated users the worst replacement moves the clipped
    gradient .80 to 1.46 times as far as 2C/m allows, so that 2C/m is no bound. With a public constant
    it never moves farther, whatever the features are.
    """
    random = np.random.default_rng(0)
    catalog = feature_size * (random.normal(size=20) + random.normal(size=(100, 20)))
    own_mean, public = [], []
    for _ in range(10):
        rated, model = random.choice(100, 20, replace=False), 0.5 * random.normal(size=20)
        ratings = np.clip(np.round(3.5 + catalog[rated] @ model + random.normal(size=20)), 1, 5)
        own_mean.append(largest_change(catalog, rated, ratings, model, np.mean, clip=10.0))
        public.append(largest_change(catalog, rated, ratings, model, lambda _: 3.5, clip=10.0))
    assert max(own_mean) == pytest.approx(with_own_mean, abs=0.01)
    assert max(public) <= 1 + 1e-12


def test_output_perturbation_needs_a_penalty_that_does_not_shrink_with_the_data():
    """Supplement C starts from noisy local models; with λ_i = 1/m_i their sensitivity is L0 for every m_i.

    The sum form printed there makes it L0·m_i; a constant λ makes it L0/(m_i·λ).
    """

    def moved(m, l2_penalty):
        """How far θ^loc moves when one of m points that all pull one way pulls the other way."""
        features, up = np.ones((m, 1)), np.full(m, 1e9)
        down = np.where(np.arange(m) == 0, -1e9, 1e9)
        minima = []
        for targets in (up, down):
            objective = LocalObjective(Huber(0.5), features, targets, l2_penalty)
            minima.append(root(lambda x, o=objective: o.gradient(np.array([x]))[0], -1e8, 1e8))
        return minima[0] - minima[1]

    assert gradient_bound(Huber(0.5), feature_bound=1.0, norm="l2") == 1.0
    for m in (10, 1000):
        assert moved(m, 1 / m) == pytest.approx(1.0)
        assert moved(m, 1 / m**2) == pytest.approx(m)  # the sum form is the mean form with λ/m
        assert moved(m, 0.2) == pytest.approx(1 / (0.2 * m))


def test_publishing_a_random_point_in_the_clear_satisfies_the_published_delta():
    """δ = e⁻⁵ = .0067 exceeds 1/m from 149 points on: showing one point chosen at random is (0, 1/m)-DP.

    The synthetic agents of the paper have at most 100 points, where it is not permitted. The default here is
    min(1e-5, 1/m²), which rules that out for every m.
    """

    def delta_of_showing_a_random_point(m):
        """Total variation between the points shown for two data sets that differ in their first point."""
        shown, shown_after = np.arange(m), np.append([m], np.arange(1, m))
        laws = [np.bincount(points, minlength=m + 1) / m for points in (shown, shown_after)]
        return np.maximum(laws[0] - laws[1], 0).sum()

    assert delta_of_showing_a_random_point(100) > PUBLISHED_DELTA
    assert delta_of_showing_a_random_point(148) > PUBLISHED_DELTA > delta_of_showing_a_random_point(149)
    for m in (2, 149, 590, 100_000):
        assert default_delta(m) < delta_of_showing_a_random_point(m)


# What the theorem does not cover


def nearest(ratings, agent):
    """The agent with the most similar ratings (cosine); 0 stands for a movie that was not rated."""
    lengths = np.linalg.norm(ratings, axis=1)
    similarities = ratings @ ratings[agent] / (lengths * lengths[agent])
    similarities[agent] = -np.inf
    return int(np.argmax(similarities))


def test_a_graph_from_ratings_shows_a_changed_rating():
    """The MovieLens graph is computed from private ratings; one of them can decide whom an agent writes to.

    Among 50 generated agents, 44 get another nearest neighbor when the right one of their ratings
    changes. Who talks to whom is visible without reading a message, so that no noise hides it.
    """
    random = np.random.default_rng(0)
    ratings = random.integers(1, 6, (50, 40)) * (random.random((50, 40)) < 0.4).astype(float)

    def gives_itself_away(agent):
        for movie in np.flatnonzero(ratings[agent]):
            for rating in range(1, 6):
                changed = ratings.copy()
                changed[agent, movie] = rating
                if nearest(changed, agent) != nearest(ratings, agent):
                    return True
        return False

    assert sum(map(gives_itself_away, range(50))) == 44
    assert GraphSource("ratings").private


def test_confidences_relative_to_the_largest_agent_tell_its_size():
    """c_i = m_i/max_j m_j: a point more for the largest agent changes the confidence of every other agent.

    The guarantee takes m_i as public. A public cap instead of the maximum keeps others out of it.
    """

    def confidences_of_others(largest, cap):
        counts = (5, 3, largest)
        population = Population.packed(
            np.ones((sum(counts), 1)), np.ones(sum(counts)), np.concatenate(([0], np.cumsum(counts)))
        )
        graph = SimilarityGraph.from_edges(3, [(0, 1), (1, 2)])
        return Problem(population, graph, Objective(max_samples=cap)).confidences[:2]

    assert (confidences_of_others(10, None) != confidences_of_others(11, None)).all()
    assert (confidences_of_others(10, 20) == confidences_of_others(11, 20)).all()


def test_a_number_of_updates_tuned_on_the_data_tells_about_it():
    """T_i and μ are "tuned on a validation set" of the agents' own points, outside any privacy budget.

    Here one replaced point turns the better of two choices around: the number of messages gives it away.
    """

    def tuned_updates(validation_targets):
        errors = {updates: np.abs(validation_targets - 0.1 * updates).mean() for updates in (4, 8)}
        return min(errors, key=lambda updates: errors[updates])

    targets = np.array([0.4, 0.4, 0.8, 0.8, 0.5])
    assert tuned_updates(targets) == 4
    assert tuned_updates(np.append(targets[:-1], 0.9)) == 8


# The objective and the experiments


def test_the_penalty_has_a_factor_two():
    """λ‖θ‖² has the gradient 2λθ and adds 2λ to smoothness and strong convexity; it is easy to drop the 2.

    With the smoothness λ instead, a step of 1/λ turns θ into −θ: no progress at all.
    """
    penalty, model = 0.3, np.array([1.0, -2.0])
    without_data = LocalObjective(Quadratic(), np.empty((0, 2)), np.empty(0), penalty)
    np.testing.assert_allclose(without_data.gradient(model), 2 * penalty * model)
    assert without_data.smoothness == 2 * penalty
    np.testing.assert_allclose(model - without_data.gradient(model) / penalty, -model)
    np.testing.assert_allclose(model - without_data.gradient(model) / without_data.smoothness, 0)


def test_sum_and_mean_of_the_losses_are_different_local_models():
    """Supplement C sums the losses where Eq. (1) averages them; the experiments have λ_i = 1/m_i.

    The sum form is the mean form with λ_i/m_i: nearly no penalty. On generated data with more
    coordinates than an agent can learn, its error is 1.6 times that of the mean form.
    """
    random, m, p = np.random.default_rng(0), 25, 20
    errors = {"mean": [], "sum": []}
    for _ in range(50):
        truth, features = random.normal(size=p) / math.sqrt(p), random.normal(size=(m, p))
        targets = features @ truth + random.normal(size=m)
        for form, penalty in (("mean", 1 / m), ("sum", 1 / m**2)):
            gram = features.T @ features / m + penalty * np.eye(p)
            model = np.linalg.solve(gram, features.T @ targets / m)
            gradient = LocalObjective(Quadratic(), features, targets, penalty).gradient(model)
            assert np.abs(gradient).max() < 1e-12
            errors[form].append(np.sum((model - truth) ** 2))
    assert math.sqrt(np.mean(errors["sum"]) / np.mean(errors["mean"])) == pytest.approx(1.58, abs=0.01)


@pytest.fixture(scope="module")
def synthetic_task():
    task = linear_classification(100, 100, seed=0, test_samples=100)
    graph = angular_graph(task.targets, threshold=0.01, source="targets")
    return Problem(task.train, graph, Objective(Logistic())), task.test


def mean_accuracy(models, test):
    per_agent = []
    for agent, model in enumerate(models):
        features, labels = test.samples(agent)
        per_agent.append(np.mean(np.where(features @ model >= 0, 1, -1) == labels))
    return np.mean(per_agent)


def in_larger_box(problem, factor):
    """The same points, farther from the origin."""
    population = problem.population
    scaled = population.with_samples(factor * population.features, population.targets)
    return dataclasses.replace(problem, population=scaled)


def test_the_printed_tradeoff_has_a_poor_minimum(synthetic_task):
    """μ = 0.04 and points of [−1, 1]^p: at the minimum nearly all agents share one model.

    A run as long as that of Fig. 1, 15 updates per agent, has not come near the minimum and is good
    for that reason; μ = 3 is good at its minimum. So is μ = 0.04 on points of [−10, 10]^p.
    """
    problem, test = synthetic_task
    printed, fitting = problem.with_tradeoff(0.04), problem.with_tradeoff(3.0)
    assert mean_accuracy(descend(printed, 15), test) == pytest.approx(0.87, abs=0.015)
    assert mean_accuracy(descend(printed, 320), test) < 0.65
    assert mean_accuracy(descend(fitting, 15), test) == pytest.approx(0.89, abs=0.015)
    assert mean_accuracy(descend(fitting, 60), test) == pytest.approx(0.90, abs=0.015)
    larger = in_larger_box(printed, 10)
    assert mean_accuracy(descend(larger, 15), test) == pytest.approx(0.90, abs=0.015)
    assert mean_accuracy(descend(larger, 60), test) == pytest.approx(0.90, abs=0.015)


def step_epsilon_by_theorem_1(total_epsilon, updates):
    def excess(step_epsilon):
        return min(composition_terms(step_epsilon, updates, PUBLISHED_DELTA)) - total_epsilon

    return root(excess, 1e-4, 2 * total_epsilon)


def test_the_private_accuracies_of_figure_2c_need_less_noise_than_theorem_1(synthetic_task):
    """At μ = 0.04, with ‖∇ℓ‖₁ ≤ 1 and the noise of Theorem 1, p = 100 and ε = 1 give chance, not .85.

    That is the best of 1, 2, 4 and 8 updates per agent on clean labels, for points of [−1, 1]^p and of
    [−10, 10]^p. Without clipping, so that nothing is guaranteed, it stays below .70 on the first, and
    passes .84 on the others. Noise divided by m_i once more, as for a mean but added to the gradient of a
    sum, passes .85 on the first. What the authors did is not known.
    """
    problem, test = synthetic_task
    problem, counts = problem.with_tradeoff(0.04), problem.population.sample_counts
    larger = in_larger_box(problem, 10)
    best = dict.fromkeys(("enforced", "not clipped", "divided twice", "larger", "larger, enforced"), 0.0)
    for updates in (1, 2, 4, 8):
        scales = 2 / (step_epsilon_by_theorem_1(1.0, updates) * counts)
        models = {
            "enforced": descend(problem, updates, noise_scales=scales, clip=1.0),
            "not clipped": descend(problem, updates, noise_scales=scales),
            "divided twice": descend(problem, updates, noise_scales=scales / counts),
            "larger": descend(larger, updates, noise_scales=scales),
            "larger, enforced": descend(larger, updates, noise_scales=scales, clip=1.0),
        }
        best = {name: max(best[name], mean_accuracy(models[name], test)) for name in best}
    assert best["enforced"] < 0.55
    assert best["not clipped"] < 0.70
    assert best["divided twice"] > 0.85
    assert best["larger"] > 0.84
    assert best["larger, enforced"] < 0.55


def test_the_document_and_the_tests_name_the_same_errors():
    """docs/errata.md names every test of this file, and none that is not here."""
    document = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
    own_name = "test_the_document_and_the_tests_name_the_same_errors"
    named = set(re.findall(r"`(test_\w+)`", document))
    here = {name for name in globals() if name.startswith("test_")} - {own_name}
    assert named == here
