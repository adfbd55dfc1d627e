"""Private coordinate descent: sensitivity, noise, and all that it refuses."""

import dataclasses
import math

import numpy as np
import pytest
from numba import njit
from tests.parity.test_private_engines import private_method, private_problem
from tests.support import LOSSES, random_problem

from flockwise.engine import simulate
from flockwise.errors import PrivacyError
from flockwise.method import CoordinateDescent, PrivateUpdates, PublicModels, WarmStart
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.method.private_updates import tail_noise_variances
from flockwise.objective import CappedLogistic
from flockwise.objective.clipping import slope_bounds
from flockwise.objective.kernels import Ahead, ClippedTerm, add_local_gradient
from flockwise.privacy.budget import Budget
from flockwise.privacy.noise_plan import plan_noise

BUDGET = Budget(1.0, 1e-3)


@njit
def gradient_of(term, agent, model, gradient, scores, ahead):
    add_local_gradient(term, agent, model, gradient, scores, ahead)


def clipped_gradient(loss, features, targets, model, clip, norm):
    """What the compiled engine computes for one agent with these samples."""
    term = ClippedTerm(
        loss,
        features,
        targets,
        np.array([0, len(targets)]),
        np.zeros(1),
        slope_bounds(features, clip, norm),
        norm == "l1",
    )
    gradient = np.zeros(model.size)
    ahead = Ahead(0, model[None, :].copy(), np.zeros(1, np.int32), 0, 0)
    gradient_of(term, 0, model, gradient, np.zeros(64), ahead)
    return gradient


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(("samples", "size"), [(5, 4), (39, 37)])
def test_no_sample_moves_the_clipped_mean_further_than_its_sensitivity(loss, norm, samples, size):
    """Any sample, any message: also models so large that scores overflow."""
    random = np.random.default_rng(1)
    clip, order = 0.3, 1 if norm == "l1" else 2
    largest = 0.0
    for scale in (0.1, 3.0, 1e6, 1e160, 1e308):
        for _ in range(20):
            features, targets = random.normal(size=(samples, size)) * 3, np.zeros(samples)
            classes = [-1.0, 1.0] if loss.outputs == 1 else [0.0, 1.0, 2.0]
            targets[:] = random.choice(classes, samples)
            model = random.uniform(-1, 1, size * loss.outputs) * scale
            other = features.copy()
            other[samples // 2] = random.normal(size=size) * 10
            with np.errstate(all="ignore"):
                difference = clipped_gradient(loss, features, targets, model, clip, norm) - clipped_gradient(
                    loss, other, targets, model, clip, norm
                )
            assert np.isfinite(difference).all()
            largest = max(largest, np.linalg.norm(difference, ord=order))
    assert 0.5 * 2 * clip / samples < largest <= 2 * clip / samples


def test_each_update_adds_the_planned_noise():
    """Std of one coordinate over 400 agents, against the plan: within 4 standard errors (1 in 10^4)."""
    problem = private_problem(3, n_agents=400, max_samples=3, density=0.01, n_features=8)
    privacy = PrivateUpdates(BUDGET, 1, 1e-9)  # gradients as good as 0: what is left is noise
    run = simulate(problem, CoordinateDescent(privacy=privacy), seed=5)
    plan = privacy.plan(problem)
    expected = problem.step_sizes * problem.pulls * plan.noise_stds()[:, 0]
    has_points = problem.population.sample_counts > 0
    ratios = run.models[has_points] / expected[has_points, None]
    assert ratios.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * ratios.size) + 0.02)
    # Agents without samples add none: what they have is a mean of what they heard, with less noise.
    heard = [run.models[problem.graph.neighbors_of(i)[0]] for i in np.flatnonzero(~has_points).tolist()]
    for model, others in zip(run.models[~has_points], heard, strict=True):
        assert np.abs(model).max() <= max(np.abs(others).max(initial=0.0), 1e-12)


def test_plans_spend_the_budget_and_no_more():
    counts = np.array([3, 0, 10, 3])
    plan = plan_noise([BUDGET, BUDGET, Budget(2.0, 1e-3), BUDGET], counts, 0.5, [1, 2, 3], dimension=4)
    assert plan.plan_of(1) is None
    for agent, epsilon in ((0, 1.0), (2, 2.0)):
        own = plan.plan_of(agent)
        assert own is not None
        assert own.events[0].sensitivity == 2 * 0.5 / counts[agent]
        assert 0.999 * epsilon <= own.epsilon_spent(3) <= epsilon
    assert plan.plan_of(0) is plan.plan_of(3)


def test_noise_left_in_tail_averages_is_predicted():
    """Agents whose many neighbors' noise averages out: the measured variance is near the public formula."""
    problem = private_problem(3, n_agents=300, max_samples=4, density=0.2, n_features=10)
    privacy = PrivateUpdates(BUDGET, 8, 1e-9)
    predicted = tail_noise_variances(problem, privacy.plan(problem))
    run = simulate(problem, CoordinateDescent(privacy=privacy), seed=5)
    has_points = predicted > 0
    measured = (run.models[has_points] ** 2 / predicted[has_points, None]).mean()
    # λ pulls the models in, which the formula leaves out; neighbors add a little; the sampling error is 3 %.
    assert 0.5 < measured < 1.2


def test_the_start_must_be_public():
    problem = private_problem(1)
    for start in ("local", np.zeros((12, 3))):
        with pytest.raises(PrivacyError, match="cannot start from"):
            simulate(problem, private_method(12, start=start))
    run = simulate(problem, private_method(12, start=PublicModels(np.ones((12, 3)))))
    assert run.guarantee is not None


def test_a_warm_start_is_paid_for_in_the_same_plan():
    problem = private_problem(4)
    warm = WarmStart(OutputPerturbation(l2=0.5, feature_bound=2.0, loss=CappedLogistic()), cost=2.0)
    method = CoordinateDescent(warm, PrivateUpdates(BUDGET, 4, 0.5))
    plan = method.prepare(problem).noise
    assert plan is not None
    agent = int(np.argmax(problem.population.sample_counts))
    own = plan.plan_of(agent)
    assert own is not None
    assert len(own.events) == 5
    assert own.epsilon_spent(5) <= BUDGET.epsilon
    # Twice the cost is half the noise for its sensitivity, which is that of the released model.
    assert own.events[1].multiplier == pytest.approx(2 * own.events[0].multiplier)
    assert own.events[0].sensitivity == warm.kind.sensitivities(problem)[agent]
    cpu, reference = (simulate(problem, method, engine=name, seed=2) for name in ("cpu", "reference"))
    assert np.allclose(cpu.models, reference.models, atol=1e-10)
    assert cpu.final.vectors == 5 * problem.graph.neighbors.size  # the start is sent as well
    with pytest.raises(PrivacyError, match="spends a budget"):
        simulate(problem, CoordinateDescent(warm), updates=1)
    with pytest.raises(PrivacyError, match="use mechanism='gaussian'"):
        simulate(problem, CoordinateDescent(warm, PrivateUpdates(BUDGET, 4, 0.5, "laplace", "pld")))


def test_own_models_are_no_base_for_another_run():
    problem = private_problem(1)
    own = simulate(problem, private_method(12)).own_models
    with pytest.raises(PrivacyError, match="cannot start from an array"):
        simulate(problem, private_method(12, start=own))
    assert own is not None
    for disguised in (own, own[::-1].copy(), 0.5 * own):
        with pytest.raises(PrivacyError, match="own models are made of private data"):
            PublicModels(disguised)


def test_a_stop_on_the_objective_is_refused():
    with pytest.raises(PrivacyError, match=r"tolerance=0\.01"):
        simulate(private_problem(1), private_method(12), tolerance=0.01)


def test_steps_from_the_data_are_refused():
    with pytest.raises(PrivacyError, match="smoothness='exact'"):
        simulate(random_problem(1), private_method(12))


def test_more_updates_than_planned_are_refused():
    with pytest.raises(PrivacyError, match="planned for 6"):
        simulate(private_problem(1), private_method(12), updates=7)


def test_budgets_must_fit_the_agents():
    with pytest.raises(PrivacyError, match="got 11 for 12 agents"):
        simulate(private_problem(1), private_method(11))
    with pytest.raises(PrivacyError, match="one number per update"):
        PrivateUpdates(BUDGET, 3, 1.0, costs=[1.0])
    with pytest.raises(PrivacyError, match="clip must be"):
        simulate(private_problem(1), CoordinateDescent(privacy=PrivateUpdates(BUDGET, 3, 0.0)))


def test_the_guarantee_is_stated_and_names_leaks():
    problem = dataclasses.replace(private_problem(1), derived=("centres of the ratings",))
    method = CoordinateDescent(privacy=PrivateUpdates(BUDGET, 3, 0.5))
    guarantee = method.guarantee(problem)
    assert guarantee is not None
    assert "ε = 1" in guarantee.explain()
    assert "NOT covered, because derived from private data: centres of the ratings" in guarantee.explain()
    assert "the start" in guarantee.public
    assert CoordinateDescent().guarantee(problem) is None
    warm = CoordinateDescent(WarmStart(OutputPerturbation(0.5, 2.0, CappedLogistic())), method.privacy)
    told = warm.guarantee(problem)
    assert told is not None
    assert "output perturbation" in told.explain()
    assert "the start" not in told.public


def test_a_guarantee_is_found_for_any_delta():
    privacy = PrivateUpdates(Budget(1.0, 1e-12), 2, 0.5, "laplace", "theorem1")
    assert simulate(private_problem(1), CoordinateDescent(privacy=privacy)).guarantee is not None
