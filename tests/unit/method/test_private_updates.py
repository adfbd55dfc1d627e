"""Private coordinate descent: sensitivity, noise, and all that it refuses."""

import dataclasses
import math

import numpy as np
import pytest
from numba import njit
from tests.parity.test_private_engines import private_method, private_problem
from tests.support import LOSSES, named, random_problem

from flockwise.engine import simulate
from flockwise.engine.cpu.descent import slope_bounds
from flockwise.engine.cpu.kernels import Ahead, ClippedTerm, add_local_gradient
from flockwise.errors import PrivacyError, SimulationError
from flockwise.graph import SimilarityGraph, angular_graph
from flockwise.method import CoordinateDescent, PrivateUpdates, PublicModels, ReleaseOnce, WarmStart
from flockwise.method.private import CLIP_SHARE, tail_noise_variances
from flockwise.method.rules import Descent
from flockwise.objective import CappedLogistic, Quadratic, gradient_bound
from flockwise.privacy.budget import Budget
from flockwise.privacy.origin import Origin
from flockwise.privacy.tracked import tracked
from flockwise.results import Trajectory

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
@pytest.mark.parametrize("loss", LOSSES, ids=named)
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
    expected = problem.step_sizes * problem.pulls * privacy.noise(problem).stds()[:, 0]
    has_points = problem.population.sample_counts > 0
    ratios = run.models[has_points] / expected[has_points, None]
    assert ratios.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * ratios.size) + 0.02)
    # Agents without samples add none: what they have is a mean of what they heard, with less noise.
    heard = [run.models[problem.neighbors.neighbors_of(i)[0]] for i in np.flatnonzero(~has_points).tolist()]
    for model, others in zip(run.models[~has_points], heard, strict=True):
        assert np.abs(model).max() <= max(np.abs(others).max(initial=0.0), 1e-12)


def test_plans_spend_the_budget_and_no_more():
    problem = private_problem(7)
    counts = problem.population.sample_counts
    assert (counts == 0).any()
    budgets = [Budget(2.0, 1e-3) if agent == np.argmax(counts) else BUDGET for agent in range(12)]
    noise = PrivateUpdates(budgets, 3, 0.5, allocation=[1, 2, 3]).noise(problem)
    for agent, budget in enumerate(budgets):
        own = noise.plan_of(agent)
        if counts[agent] == 0:
            assert own is None
            continue
        assert own is not None
        assert own.budget == budget
        assert noise.events_of(agent, 1)[0].sensitivity == 2 * 0.5 / counts[agent]
        assert 0.999 * budget.epsilon <= own.epsilon_after(3) <= budget.epsilon
        # Three times the cost is a third of the noise.
        assert own.multipliers[0] == pytest.approx(3 * own.multipliers[2])
    alike = [noise.plan_of(agent) for agent in range(12) if counts[agent] and budgets[agent] == BUDGET]
    assert len(alike) > 1
    assert all(plan is alike[0] for plan in alike)


def test_noise_left_in_tail_averages_is_predicted():
    """Agents whose many neighbors' noise averages out: the measured variance is near the public formula."""
    problem = private_problem(3, n_agents=300, max_samples=4, density=0.2, n_features=10)
    privacy = PrivateUpdates(BUDGET, 8, 1e-9)
    predicted = tail_noise_variances(problem.step_sizes, problem.pulls, privacy.noise(problem).stds())
    run = simulate(problem, CoordinateDescent(privacy=privacy), seed=5)
    has_points = predicted > 0
    measured = (run.models[has_points] ** 2 / predicted[has_points, None]).mean()
    # λ pulls the models in, which the formula leaves out; neighbors add a little; the sampling error is 3 %.
    assert 0.5 < measured < 1.2


def test_the_start_must_be_public():
    problem = private_problem(1)
    for start, got in (("local", 'got "local"'), (np.zeros((12, 3)), "got an array")):
        with pytest.raises(PrivacyError, match=rf"method\.start: {got}.*would give it away without noise"):
            simulate(problem, private_method(12, start=start))
    run = simulate(problem, private_method(12, start=PublicModels(np.ones((12, 3)))))
    assert run.guarantee is not None


def test_a_warm_start_is_paid_for_in_the_same_plan():
    problem = private_problem(4, loss=CappedLogistic())
    # Twice the ε of one of four updates.
    warm = WarmStart(l2=0.5, share=0.5, tradeoff=None)
    method = CoordinateDescent(warm, PrivateUpdates(BUDGET, 4, 0.5))
    rule = method.prepare(problem, 2).rule
    assert isinstance(rule, Descent)
    assert rule.noise is not None
    agent = int(np.argmax(problem.population.sample_counts))
    own = rule.noise.plan_of(agent)
    assert own is not None
    assert len(own) == 5
    assert own.epsilon_after(5) <= BUDGET.epsilon
    # Twice the cost is half the noise for its sensitivity, which is that of the released model.
    first, second = rule.noise.events_of(agent, 2)
    assert second.multiplier == pytest.approx(2 * first.multiplier)
    assert first.sensitivity == warm.sensitivities(problem, "gaussian")[agent]
    assert second.sensitivity == 2 * 0.5 / problem.population.sample_counts[agent]
    cpu, reference = (simulate(problem, method, engine=name, seed=2) for name in ("cpu", "reference"))
    assert np.allclose(cpu.models, reference.models, atol=1e-10)
    assert cpu.final.vectors == 5 * problem.neighbors.neighbors.size  # the start is sent as well
    with pytest.raises(SimulationError, match="a released start spends a budget"):
        simulate(problem, CoordinateDescent(warm), updates=1)


def test_own_models_are_no_base_for_another_run():
    problem = private_problem(1)
    own = simulate(problem, private_method(12)).own_models
    with pytest.raises(PrivacyError, match="got an array"):
        simulate(problem, private_method(12, start=own))
    assert own is not None
    for disguised in (own, own[::-1].copy(), 0.5 * own, own + np.ones(3)):
        with pytest.raises(PrivacyError, match="own models, made of private data without noise"):
            PublicModels(disguised)


def test_models_of_a_run_without_privacy_are_no_start_for_a_private_one():
    run = simulate(private_problem(1), CoordinateDescent(), updates=2)
    with pytest.raises(PrivacyError, match="models of cd, made of private data without noise"):
        PublicModels(run.models)


def test_what_a_start_cost_is_added_to_the_guarantee():
    problem = private_problem(1)
    method = CoordinateDescent(privacy=PrivateUpdates(BUDGET, 3, 0.5))
    first = simulate(problem, method)
    chained = dataclasses.replace(method, start=PublicModels(first.models))
    second = simulate(problem, chained, seed=1)
    assert second.guarantee is not None
    assert second.guarantee.is_private
    assert second.guarantee.epsilon == (2.0, 2.0)
    assert second.guarantee.delta == (2e-3, 2e-3)
    assert "released before: the start, models released by cd" in second.guarantee.explain()


def test_a_seed_that_drew_the_noise_of_the_start_is_refused(tmp_path):
    """The difference of both runs would have no noise."""
    problem = private_problem(1)
    method = CoordinateDescent(privacy=PrivateUpdates(BUDGET, 3, 0.5))
    simulate(problem, method, seed=4).save(tmp_path / "run.npz")
    first = Trajectory.load(tmp_path / "run.npz")
    chained = dataclasses.replace(method, start=PublicModels(0.5 * first.models))
    second = simulate(problem, chained, seed=5)
    again = dataclasses.replace(method, start=PublicModels(second.models))
    for start, seed in ((chained, 4), (again, 4), (again, 5)):
        with pytest.raises(
            PrivacyError, match=f"seed={seed} drew the noise of the start or the graph as well"
        ):
            simulate(problem, start, seed=seed)


@pytest.mark.parametrize(
    "method",
    [CoordinateDescent(privacy=PrivateUpdates(BUDGET, 3, 0.5)), ReleaseOnce(BUDGET)],
    ids=["cd", "once"],
)
def test_a_graph_of_released_models_is_not_used_with_the_same_seed(method):
    problem = private_problem(1)
    first = simulate(problem, ReleaseOnce(BUDGET), updates=1, seed=3)
    on_models = dataclasses.replace(problem, graph=angular_graph(first.models, threshold=0))
    with pytest.raises(PrivacyError, match="seed=3 drew the noise of the start or the graph as well"):
        simulate(on_models, method, updates=1, seed=3)
    second = simulate(on_models, method, updates=1, seed=4)
    third = dataclasses.replace(problem, graph=angular_graph(second.models, threshold=0))
    with pytest.raises(PrivacyError, match="seed=3 drew"):
        simulate(third, method, updates=1, seed=3)


def test_what_a_start_cost_is_added_also_where_its_guarantee_has_gaps():
    """Otherwise two runs on one uncovered graph would state the cost of one."""
    problem = private_problem(1)
    unknown = dataclasses.replace(problem, graph=SimilarityGraph.from_scipy(problem.neighbors.to_scipy()))
    method = CoordinateDescent(privacy=PrivateUpdates(BUDGET, 3, 0.5))
    first = simulate(unknown, method)
    second = simulate(unknown, dataclasses.replace(method, start=PublicModels(first.models)), seed=1)
    assert second.guarantee is not None
    assert second.guarantee.epsilon == (2.0, 2.0)
    assert any(
        "models released by cd, whose guarantee leaves gaps" in one for one in second.guarantee.not_covered
    )


def test_a_start_of_unknown_origin_is_not_covered():
    problem, models = private_problem(1), np.ones((12, 3))
    for start, covered in ((PublicModels(models), False), (PublicModels(models, "a model of 2019"), True)):
        guarantee = simulate(problem, private_method(12, start=start)).guarantee
        assert guarantee is not None
        assert guarantee.is_private is covered
    unknown = tracked(models, Origin("a mixture", "unknown"))
    told = simulate(problem, private_method(12, start=PublicModels(unknown, "a model of 2019"))).guarantee
    assert told is not None
    assert told.not_covered == ("the start, a mixture, of unknown origin",)


def test_a_stop_on_the_objective_is_refused():
    with pytest.raises(PrivacyError, match=r"tolerance=0\.01"):
        simulate(private_problem(1), private_method(12), tolerance=0.01)


def test_steps_from_the_data_are_refused():
    with pytest.raises(PrivacyError, match=r"objective\.feature_bound: missing.*would leak"):
        simulate(random_problem(1), private_method(12))


def test_more_updates_than_planned_are_refused():
    with pytest.raises(PrivacyError, match="planned for 6"):
        simulate(private_problem(1), private_method(12), updates=7)


def test_fewer_updates_than_planned_are_fine():
    run = simulate(private_problem(1), private_method(12), updates=2)
    assert (run.updates == 2).all()


def test_settings_that_do_not_fit_are_refused():
    problem = private_problem(1)
    with pytest.raises(PrivacyError, match="11 budgets for 12 agents"):
        simulate(problem, private_method(11))
    with pytest.raises(PrivacyError, match="one number per update, got 1 for updates=3"):
        PrivateUpdates(BUDGET, 3, 1.0, allocation=[1.0])
    with pytest.raises(PrivacyError, match="clip must be a number above 0"):
        PrivateUpdates(BUDGET, 3, 0.0)
    with pytest.raises(PrivacyError, match="updates must be a whole number from 1 on"):
        PrivateUpdates(BUDGET, 0, 1.0)
    with pytest.raises(PrivacyError, match="no mechanism 'uniform'"):
        PrivateUpdates(BUDGET, 3, 1.0, "uniform")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"accountant": "theorem1"},
            r"privacy\.accountant: got \"theorem1\"; allowed for mechanism = \"gaus",
        ),
        ({"mechanism": "knorm", "accountant": "gdp"}, r"privacy\.accountant: got \"gdp\""),
        ({"allocation": "late"}, r"privacy\.contraction: missing"),
        ({"contraction": 0.5}, r"privacy\.contraction: only for allocation = \"late\""),
        (
            {"mechanism": "laplace", "accountant": "kov", "allocation": "late", "contraction": 0.5},
            "equal updates only",
        ),
    ],
)
def test_accounting_that_does_not_fit_the_noise_is_refused(settings, message):
    privacy = PrivateUpdates(BUDGET, 3, 0.5, **settings)
    with pytest.raises(PrivacyError, match=message):
        simulate(private_problem(1), CoordinateDescent(privacy=privacy))


def test_without_a_clip_a_share_of_the_largest_gradient_is_taken():
    problem = private_problem(1)
    bound = problem.objective.feature_bound
    assert bound is not None
    in_l2, in_l1 = (PrivateUpdates(BUDGET, 3, mechanism=kind) for kind in ("gaussian", "laplace"))
    assert in_l2.clip_for(problem) == CLIP_SHARE * gradient_bound(problem.loss, bound, "l2")
    longest = math.sqrt(problem.population.n_features) * bound
    assert in_l1.clip_for(problem) == CLIP_SHARE * gradient_bound(problem.loss, longest, "l1")
    with pytest.raises(PrivacyError, match=r"privacy\.clip_norm: missing; loss = \"quadratic\""):
        simulate(private_problem(1, loss=Quadratic()), CoordinateDescent(privacy=in_l2))


def test_later_updates_may_get_more_of_the_budget():
    noise = PrivateUpdates(BUDGET, 4, 0.5, allocation="late", contraction=0.3).noise(private_problem(1))
    stds = noise.stds()[noise.sensitivities > 0]
    assert (np.diff(stds, axis=1) < 0).all()
    assert noise.schedule.plans[0].epsilon_after(4) <= BUDGET.epsilon


def test_the_guarantee_is_stated_and_names_what_it_does_not_cover():
    problem = private_problem(1)
    centers = Origin("centers of the ratings", "private")
    population = dataclasses.replace(problem.population, origins=(centers,))
    problem = dataclasses.replace(problem, population=population)
    method = CoordinateDescent(privacy=PrivateUpdates(BUDGET, 3, 0.5))
    guarantee = method.prepare(problem, 0).guarantee
    assert guarantee is not None
    assert "ε = 1" in guarantee.explain()
    assert "NOT covered" in guarantee.explain()
    assert guarantee.not_covered == ("centers of the ratings",)
    assert not guarantee.is_private
    assert "the start" in guarantee.public
    assert CoordinateDescent().prepare(problem, 0).guarantee is None
    warm = CoordinateDescent(WarmStart(l2=0.5), method.privacy)
    told = warm.prepare(problem, 0).guarantee
    assert told is not None
    assert "output perturbation" in told.explain()
    assert "the start" not in told.public


def test_a_guarantee_is_found_for_any_delta():
    privacy = PrivateUpdates(Budget(1.0, 1e-12), 2, 0.5, "laplace", "theorem1")
    assert simulate(private_problem(1), CoordinateDescent(privacy=privacy)).guarantee is not None
