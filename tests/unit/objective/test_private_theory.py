"""Theorem 2 corrected, against expectations taken exactly and against sampled runs of Eq. (6)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from tests.noisy_descent import even_problem, exact_expected_gaps, quadratic_form

from flockwise.errors import ObjectiveError
from flockwise.objective import Logistic, Quadratic
from flockwise.privacy.accounting import calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import Gaussian, Laplace
from flockwise.protocol.descent import descent_update
from flockwise.theory import best_updates, utility_theory


def test_constants_follow_their_definitions(make_problem):
    problem = make_problem(Logistic(), tradeoff=0.4)
    theory = utility_theory(problem)
    factors = (0.4 * problem.neighbors.degrees * problem.confidences) ** 2
    expected = problem.dimension * factors / (2 * problem.n_agents * problem.block_smoothness)
    np.testing.assert_allclose(theory.noise_weights, expected, rtol=1e-14)
    published = factors / (2 * problem.n_agents * problem.block_smoothness.min())
    np.testing.assert_allclose(theory.published_noise_weights, published, rtol=1e-14)


def test_published_costs_are_the_printed_formula(make_problem):
    """1/(n L_min) Σ (μ D_ii c_i s_i)² for Laplace noise of scale s_i, whose standard deviation is √2·s_i."""
    problem = make_problem(Quadratic(), tradeoff=2.0)
    scales = np.array([0.3, 0.0, 1.1, 0.2, 2.0])
    factors = (2.0 * problem.neighbors.degrees * problem.confidences * scales) ** 2
    printed = factors.sum() / (problem.n_agents * problem.block_smoothness.min())
    costs = utility_theory(problem).published_costs(math.sqrt(2) * scales, 3)
    np.testing.assert_allclose(costs, [printed] * 3, rtol=1e-13)


def test_the_recursion_unrolls_to_late_heavy_weights(make_problem):
    theory = utility_theory(make_problem(Quadratic()))
    costs = np.random.default_rng(1).random(40)
    contraction, ages = theory.convergence.contraction, np.arange(40)[::-1]
    expected = contraction**40 * 3.0 + (contraction**ages * costs).sum()
    assert theory.bounds(3.0, costs)[-1] == pytest.approx(expected, rel=1e-12)
    assert theory.bounds(3.0, costs)[0] == 3.0


@pytest.mark.parametrize("seed", range(4))
def test_exact_expectations_stay_below_the_bound(make_problem, seed):
    """No sampling: second moments of the quadratic problem, with noise that differs by agent and tick."""
    problem = make_problem(Quadratic(), tradeoff=1.5, seed=seed)
    stds = np.random.default_rng(seed).gamma(1.0, 1.0, (problem.n_agents, 60))
    gaps = exact_expected_gaps(problem, np.zeros((problem.n_agents, problem.dimension)), stds)
    theory = utility_theory(problem)
    bounds = theory.bounds(gaps[0], theory.costs(stds, 60, counted="ticks"))
    assert (gaps <= bounds * (1 + 1e-12)).all()


def test_one_step_of_noise_costs_just_its_bound():
    """Where every block of ∇²Q is L_i times the identity the corrected constants cannot be improved."""
    problem = even_problem(n_agents=4, dimension=5)
    _, optimum = quadratic_form(problem)
    stds = np.array([[0.5], [1.0], [2.0], [0.0]])
    theory = utility_theory(problem)
    cost = theory.costs(stds, 1, counted="ticks")[0]
    assert exact_expected_gaps(problem, optimum, stds)[-1] == pytest.approx(cost, rel=1e-12)


def test_closed_form_of_supplement_b_equals_the_recursion(make_problem):
    theory = utility_theory(make_problem(Quadratic()))
    stds = np.array([0.3, 0.0, 1.1, 0.2, 2.0])
    unrolled = theory.bounds(7.0, theory.costs(stds, 500))
    np.testing.assert_allclose(theory.constant_noise_bound(7.0, stds, np.arange(501)), unrolled, rtol=1e-11)
    rate = 1 - theory.convergence.contraction
    assert theory.noise_limit(stds) == pytest.approx(theory.costs(stds, 1)[0] / rate, rel=1e-9)
    assert float(theory.constant_noise_bound(7.0, stds, 1e9)) == pytest.approx(theory.noise_limit(stds))


def with_contraction(theory, contraction):
    """The same with another C than the proven one."""
    constants = theory.convergence
    sigma = (1 - contraction) * constants.n_agents * constants.largest_block_smoothness
    return replace(theory, convergence=replace(constants, strong_convexity=sigma))


def test_without_strong_convexity_noise_adds_up(make_problem):
    theory = utility_theory(make_problem(Logistic(), l2=0.0))
    flat = with_contraction(theory, 1.0)
    cost = flat.costs(1.0, 1)[0]
    assert float(flat.constant_noise_bound(2.0, 1.0, 30)) == pytest.approx(2 + 30 * cost)
    assert flat.noise_limit(1.0) == math.inf
    assert flat.noise_limit(0.0) == 0


def test_noise_by_update_is_averaged_over_who_woke_before(make_problem):
    problem = make_problem(Quadratic())
    theory = utility_theory(problem)
    stds = np.random.default_rng(0).random((problem.n_agents, 6))
    by_update = theory.costs(stds, 9)
    for tick in range(9):
        share = binom.pmf(np.arange(6), tick, 1 / problem.n_agents)
        expected = (theory.noise_weights[:, None] * stds**2 * share).sum()
        assert by_update[tick] == pytest.approx(expected, rel=1e-12)
    # Rows that never run out and never change are constant noise.
    np.testing.assert_allclose(theory.costs(np.ones((problem.n_agents, 9)), 9), theory.costs(1.0, 9))


def sampled_gap(problem, stds, n_ticks, random):
    """Eq. (6) with normal noise from zero models: the last gap, and whether an agent ran out of updates."""
    hessian, optimum = quadratic_form(problem)
    neighbors = problem.neighbors.to_scipy().toarray() / problem.neighbors.degrees[:, None]
    samples = [problem.population.samples(agent) for agent in range(problem.n_agents)]
    models, updates = np.zeros(optimum.shape), np.zeros(problem.n_agents, int)
    for agent in random.integers(0, problem.n_agents, n_ticks):
        if updates[agent] == stds.shape[1]:
            return 0.0, True
        (features, targets), model = samples[agent], models[agent]
        slopes = 2 * (features @ model - targets)
        gradient = slopes @ features / max(len(targets), 1) + 2 * problem.l2_penalties[agent] * model
        noisy = gradient + stds[agent, updates[agent]] * random.normal(size=model.shape)
        models[agent] = descent_update(
            model, neighbors[agent] @ models, noisy, problem.step_sizes[agent], problem.pulls[agent]
        )
        updates[agent] += 1
    distance = (models - optimum).ravel()
    return 0.5 * distance @ hessian @ distance, False


def test_sampled_runs_stay_below_the_prediction(make_problem):
    """600 runs with noise by update. If the bound were tight, the mean would pass it by four standard
    errors with probability below 1e-4; the gap of a run in which an agent ran out counts as 0."""
    problem = make_problem(Quadratic(), tradeoff=1.5)
    random = np.random.default_rng(5)
    stds = np.linspace(1.0, 3.0, 12) * np.ones((problem.n_agents, 1))
    runs = [sampled_gap(problem, stds, 30, random) for _ in range(600)]
    gaps = np.array([gap for gap, _ in runs])
    theory = utility_theory(problem)
    hessian, optimum = quadratic_form(problem)
    start = 0.5 * optimum.ravel() @ hessian @ optimum.ravel()
    bound = theory.bounds(start, theory.costs(stds, 30))[-1]
    assert 0 < sum(ran_out for _, ran_out in runs) < 120
    assert gaps.mean() <= bound + 4 * gaps.std(ddof=1) / math.sqrt(len(gaps))
    # The prediction is of use: within a factor 10 of what happens.
    assert gaps.mean() >= bound / 10


def test_best_updates_is_the_smallest_of_all_bounds(make_problem):
    theory = utility_theory(make_problem(Quadratic()))

    def noise(updates):
        return 0.05 * updates  # basic composition: ε/updates each

    choice = best_updates(theory, 10.0, noise)
    everything = [
        float(theory.constant_noise_bound(10.0, noise(updates), updates * theory.n_agents))
        for updates in range(1, 1001)
    ]
    assert choice.n_updates == 1 + int(np.argmin(everything))
    assert choice.bound == min(everything)
    assert 1 < choice.n_updates < len(choice.table) < 1000
    without_noise = best_updates(theory, 10.0, lambda updates: 0.0)
    assert len(without_noise.table) == 1000
    assert without_noise.n_updates > choice.n_updates


def stds_under(accountant, epsilon, samples):
    """Noise of one clipped mean gradient per update, calibrated to (ε, 1e-5)."""
    event = Laplace(2 / samples, 1.0) if accountant == "basic" else Gaussian(2 / samples, 1.0)

    def noise(updates):
        return calibrate(Budget(epsilon, 1e-5), event, accountant, updates)[0].noise_std

    return noise


def test_best_updates_under_real_accountants():
    """A larger budget pays for more updates, a tighter accountant never for fewer."""
    problem = even_problem(n_agents=4, dimension=3, samples=30, tradeoff=2.0)
    theory = utility_theory(problem)
    tight = [best_updates(theory, 1.4, stds_under("gdp", epsilon, 30)) for epsilon in (1.0, 10.0, 100.0)]
    loose = [best_updates(theory, 1.4, stds_under("zcdp", epsilon, 30)) for epsilon in (1.0, 10.0, 100.0)]
    assert tight[0].n_updates < tight[1].n_updates < tight[2].n_updates
    for with_gdp, with_zcdp in zip(tight, loose, strict=True):
        assert with_gdp.bound < with_zcdp.bound
        assert with_gdp.n_updates >= with_zcdp.n_updates


def test_the_predicted_number_of_updates_is_near_the_best():
    """Against exact expectations, not the bound. The proven contraction, which knows of no curvature in
    the data, asks for several times too many updates; the true one for nearly as many as are best."""
    problem = even_problem(n_agents=4, dimension=3, samples=30, tradeoff=2.0)
    noise, start = stds_under("basic", 100.0, 30), np.zeros((4, 3))
    hessian, _ = quadratic_form(problem)

    def expected_gap(updates):
        return exact_expected_gaps(problem, start, np.full((4, 4 * updates), noise(updates)))[-1]

    theory, gap = utility_theory(problem), exact_expected_gaps(problem, start, np.zeros((4, 0)))[0]
    true_contraction = 1 - np.linalg.eigvalsh(hessian)[0] / problem.block_smoothness.sum()
    best = min(range(1, 50), key=expected_gap)
    proven = best_updates(theory, gap, noise).n_updates
    predicted = best_updates(with_contraction(theory, true_contraction), gap, noise).n_updates
    assert best <= predicted <= 1.5 * best < proven


def test_noise_of_the_wrong_shape_or_sign_is_refused(make_problem):
    theory = utility_theory(make_problem(Quadratic()))
    with pytest.raises(ObjectiveError, match="one row per agent"):
        theory.costs(np.ones(3), 4)
    with pytest.raises(ObjectiveError, match="finite and at least 0"):
        theory.costs(-1.0, 4)
    with pytest.raises(ObjectiveError, match="n_ticks=4 columns, got 3"):
        theory.costs(np.ones((5, 3)), 4, counted="ticks")
    with pytest.raises(ObjectiveError, match="use costs and bounds"):
        theory.noise_limit(np.ones((5, 3)))
    with pytest.raises(ObjectiveError, match="less noise than for fewer updates"):
        best_updates(theory, 10.0, lambda updates: 1 / updates)
