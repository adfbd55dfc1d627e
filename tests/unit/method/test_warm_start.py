"""A released start: one budget for start and updates, propagation for free, any noise, both engines."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.parity.test_private_engines import private_problem

from flockwise.data import linear_classification
from flockwise.engine import simulate
from flockwise.errors import ConfigError, PrivacyError
from flockwise.graph import angular_graph
from flockwise.method import CoordinateDescent, PrivateUpdates, PublicModels, ReleaseOnce, WarmStart
from flockwise.method.base import PublicFacts, deployment_of
from flockwise.method.private import tail_noise_variances
from flockwise.method.rules import Descent
from flockwise.objective import CappedLogistic, Objective, Problem, Quadratic
from flockwise.planner.trials import outcome
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.schedule import Schedule
from flockwise.results import Trajectory

BUDGET = Budget(1.0, 1e-3)
NOISES = [("gaussian", "gdp"), ("laplace", "theorem1"), ("laplace", "basic"), ("knorm", "basic")]


def rule_of(problem: Problem, method: CoordinateDescent, seed: int = 0) -> Descent:
    rule = method.prepare(problem, seed).rule
    assert isinstance(rule, Descent)
    return rule


def noise_of(problem: Problem, method: CoordinateDescent) -> Any:
    noise = rule_of(problem, method).noise
    assert noise is not None
    return noise


def fresh_task(seed: int, dimension: int = 20) -> tuple[Problem, Callable[[Any], float]]:
    """The paper's task, and the accuracy of models on clean test points."""
    task = linear_classification(100, dimension, seed=seed, test_samples=200)
    objective = Objective(tradeoff=3.0, max_samples=100, feature_bound=math.sqrt(dimension))
    problem = Problem(task.train, angular_graph(task.targets, source="targets"), objective)
    features = task.test.features.reshape(100, 200, dimension)
    labels = task.test.targets.reshape(100, 200)

    def accuracy(models: Any) -> float:
        scores = np.einsum("aij,aj->ai", features, models)
        return float((np.where(scores >= 0, 1, -1) == labels).mean())

    return problem, accuracy


@pytest.mark.parametrize(("mechanism", "accountant"), NOISES)
def test_start_and_updates_together_spend_the_budget_and_no_more(mechanism, accountant):
    problem = private_problem(4, loss=CappedLogistic())
    method = CoordinateDescent(WarmStart(l2=0.5), PrivateUpdates(BUDGET, 4, 0.5, mechanism, accountant))
    noise = noise_of(problem, method)
    agent = int(np.argmax(problem.population.sample_counts))
    events = noise.events_of(agent, 5)
    total = ACCOUNTANTS[accountant].epsilon(events, BUDGET.delta)
    assert 0.999 * BUDGET.epsilon <= total <= BUDGET.epsilon
    # Without the start, or with the updates alone, it is less: both are counted.
    assert ACCOUNTANTS[accountant].epsilon(events[1:], BUDGET.delta) < 0.999 * BUDGET.epsilon
    guarantee = method.prepare(problem, 0).guarantee
    assert guarantee is not None
    assert guarantee.epsilon == (BUDGET.epsilon, BUDGET.epsilon)
    assert "for the start, propagated" in guarantee.explain()


def test_a_start_of_a_twentieth_beside_a_half_is_the_split_of_the_paper():
    """ε = .05 for the start and .5 for all updates: exactly so where the ε of Laplace noise add up."""
    problem = private_problem(4, loss=CappedLogistic())
    privacy = PrivateUpdates(Budget(0.55, 0.0), 4, 0.5, "laplace", "basic")
    noise = noise_of(problem, CoordinateDescent(WarmStart(share=0.05 / 0.55), privacy))
    start, *updates = 1 / noise.schedule.multipliers[0]
    assert start == pytest.approx(0.05, rel=1e-6)
    assert sum(updates) == pytest.approx(0.5, rel=1e-6)


def test_a_share_is_in_inverse_noise_and_not_in_epsilon():
    """The same split under gdp, at δ = e⁻⁵: ε = .014 for the release alone, and not .05."""
    problem, budget = private_problem(4, loss=CappedLogistic()), Budget(0.55, math.exp(-5))
    share = 0.05 / 0.55
    method = CoordinateDescent(WarmStart(share=share), PrivateUpdates(budget, 4, 0.5, "gaussian", "gdp"))
    noise = noise_of(problem, method)
    start, *updates = 1 / noise.schedule.multipliers[0]
    assert start / math.hypot(*updates) == pytest.approx(share / (1 - share), rel=1e-9)
    events = noise.events_of(0, 1)
    assert ACCOUNTANTS["gdp"].epsilon(events, budget.delta) == pytest.approx(0.014, abs=5e-4)


def test_in_l1_the_start_may_move_by_the_root_of_p_more():
    problem = private_problem(4, loss=CappedLogistic())
    warm = WarmStart(l2=0.5)
    in_l2, in_l1 = (warm.sensitivities(problem, name) for name in ("gaussian", "laplace"))
    assert in_l1 == pytest.approx(math.sqrt(problem.dimension) * in_l2)


def test_no_replaced_sample_moves_the_released_model_farther_in_l1():
    """The largest change that random and extreme replacements make, as a share of what is claimed."""
    generator, largest = np.random.default_rng(0), 0.0
    problem = private_problem(4, loss=CappedLogistic())
    warm, bound = WarmStart(l2=0.5), problem.objective.feature_bound
    assert bound is not None
    claimed = warm.sensitivities(problem, "laplace")
    before = warm.statistic(problem).models(problem)
    rows = problem.population.offsets[:-1][problem.population.sample_counts > 0]
    for _ in range(40):
        features, targets = problem.population.features.copy(), problem.population.targets.copy()
        features[rows] = generator.choice([-1, 1], (len(rows), features.shape[1])) * bound
        targets[rows] = generator.choice([-1, 1], len(rows))
        other = dataclasses.replace(problem, population=problem.population.with_samples(features, targets))
        moved = np.abs(warm.statistic(other).models(other) - before).sum(axis=1)
        assert (moved <= claimed * (1 + 1e-9)).all()
        largest = max(largest, float((moved / claimed).max()))
    assert largest > 0.2


@pytest.mark.parametrize(("mechanism", "accountant"), NOISES)
def test_both_engines_run_it_alike(mechanism, accountant):
    problem = private_problem(4, loss=CappedLogistic())
    method = CoordinateDescent(WarmStart(l2=0.5), PrivateUpdates(BUDGET, 4, 0.5, mechanism, accountant))
    cpu, reference = (simulate(problem, method, engine=name, seed=2) for name in ("cpu", "reference"))
    np.testing.assert_allclose(cpu.models, reference.models, atol=1e-9)
    assert cpu.final.vectors == 5 * problem.neighbors.neighbors.size


def test_propagation_makes_the_start_better_on_fresh_instances():
    """ε = ½ for the start alone; six instances that nothing was chosen on."""
    alone, together = [], []
    for seed in range(3_000_000, 3_000_006):
        problem, accuracy = fresh_task(seed)
        schedule = Schedule.fitting(Budget(0.5, 1e-3), 100, "gaussian", 1)
        for tradeoff, found in ((None, alone), (WarmStart().tradeoff, together)):
            found.append(accuracy(WarmStart(tradeoff=tradeoff).models(problem, schedule, seed)))
    gains = np.subtract(together, alone)
    assert gains.min() > 0.02
    assert gains.mean() > 0.08
    assert np.mean(alone) > 0.5


def test_the_start_is_made_of_releases_alone():
    """With noise beyond all measure, other samples make no difference to it."""
    problem, _ = fresh_task(3_000_010)
    other, _ = fresh_task(3_000_011)
    other = dataclasses.replace(problem, population=other.population)
    counts = (problem.population.sample_counts, other.population.sample_counts)
    same = counts[0] == counts[1]
    schedule = Schedule.fitting(Budget(1e-7, 1e-12), 100, "gaussian", 1)
    one, two = (WarmStart(tradeoff=None).models(p, schedule, 5)[same] for p in (problem, other))
    assert same.any()
    np.testing.assert_allclose(one, two, rtol=1e-3)


def test_a_run_that_starts_from_one_release_states_the_sum():
    """Release once at ε = .05, then descend at ε = .5: together ε = .55."""
    problem, _ = fresh_task(3_000_020)
    first = simulate(problem, ReleaseOnce(Budget(0.05, 1e-6)), updates=5, engine="reference")
    method = CoordinateDescent(PublicModels(first.models), PrivateUpdates(Budget(0.5, 1e-6), 1))
    guarantee = method.prepare(problem, 1).guarantee
    assert guarantee is not None
    assert guarantee.epsilon == pytest.approx((0.55, 0.55))
    assert guarantee.delta == pytest.approx((2e-6, 2e-6))


class TestShownModels:
    """Which of the models that an agent released a run shows."""

    def runs(self, engine: str) -> dict[str, Trajectory]:
        problem = private_problem(4)
        found = {}
        for shown in ("tail", "last"):
            privacy = PrivateUpdates(BUDGET, 5, 0.5, models=shown)  # type: ignore[arg-type]
            found[shown] = simulate(problem, CoordinateDescent(privacy=privacy), engine=engine, seed=3)
        return found

    @pytest.mark.parametrize("engine", ["cpu", "reference"])
    def test_the_last_is_what_each_agent_sent_last(self, engine):
        runs = self.runs(engine)
        sent = [run.state["models"] for run in runs.values()]
        np.testing.assert_array_equal(sent[0], sent[1])
        np.testing.assert_allclose(np.asarray(runs["last"].models), sent[0], rtol=1e-14)
        assert not np.allclose(runs["tail"].models, sent[0])

    def test_a_result_says_which(self, tmp_path):
        runs = self.runs("reference")
        assert "the mean of the later half" in runs["tail"].models_are
        assert "the last that each agent released" in runs["last"].models_are
        assert "the mean of the later half" in runs["tail"]._repr_html_()
        runs["last"].save(tmp_path / "run.npz")
        assert Trajectory.load(tmp_path / "run.npz").models_are == runs["last"].models_are
        plain = simulate(private_problem(4), CoordinateDescent(), updates=1, engine="reference")
        assert plain.models_are == "models"

    def test_the_last_has_more_noise_and_own_models_know_it(self):
        problem = private_problem(4)
        noise = PrivateUpdates(BUDGET, 6, 0.5).noise(problem)
        known = problem.step_sizes, problem.pulls, noise.stds()
        has_samples = noise.sensitivities > 0
        tail, last = tail_noise_variances(*known), tail_noise_variances(*known, 5)
        assert (last[has_samples] > tail[has_samples]).all()
        runs = self.runs("reference")
        assert not np.allclose(np.asarray(runs["tail"].own_models), np.asarray(runs["last"].own_models))

    def test_real_agents_show_the_tail(self):
        method = CoordinateDescent(privacy=PrivateUpdates(BUDGET, 5, 0.5, models="last"))
        with pytest.raises(ConfigError, match=r"privacy\.models: real agents show the tail"):
            deployment_of(method, private_problem(4), None)


def test_what_does_not_fit_is_refused_in_words():
    problem = private_problem(4, loss=Quadratic())
    for start, accountant, words in (
        (WarmStart(), "gdp", r"method\.start_width: missing"),
        (WarmStart(width=1.0), "kov", r"privacy\.accountant: got \"kov\"; it composes equal releases only"),
    ):
        mechanism = "laplace" if accountant == "kov" else "gaussian"
        method = CoordinateDescent(start, PrivateUpdates(BUDGET, 3, 0.5, mechanism, accountant))
        with pytest.raises(PrivacyError, match=words):
            simulate(problem, method)
    with pytest.raises(PrivacyError, match="share must be a number between 0 and 1"):
        WarmStart(share=1.0)


@pytest.mark.parametrize(
    ("start", "got"),
    [
        (WarmStart(), '"propagated", which only simulations have'),
        (PublicModels(np.zeros((3, 2)), source="zeros"), "a PublicModels"),
        ("local", '"local"'),
    ],
)
def test_real_agents_start_from_zeros(start, got):
    with pytest.raises(ConfigError) as caught:
        deployment_of(CoordinateDescent(start, PrivateUpdates(BUDGET, 5, 0.5)), private_problem(4), None)
    assert str(caught.value) == f'method.start: real agents start from "zeros", got {got}'


def test_the_origin_of_a_copy_is_the_callers_word():
    """`run.models` brings its ε along; a plain array does not, and with a source it counts as public."""
    problem, _ = fresh_task(3_000_021)
    first = simulate(problem, ReleaseOnce(Budget(0.05, 1e-6)), updates=5, engine="reference")
    privacy = PrivateUpdates(Budget(0.5, 1e-6), 1)
    found = {}
    for name, models in (
        ("known", PublicModels(first.models)),
        ("copy", PublicModels(np.asarray(first.models))),
        ("word", PublicModels(np.asarray(first.models), source="a model published in 2019")),
    ):
        found[name] = CoordinateDescent(models, privacy).prepare(problem, 1).guarantee
        assert found[name] is not None
    assert found["known"].epsilon == pytest.approx((0.55, 0.55))
    assert found["copy"].epsilon == found["word"].epsilon == (0.5, 0.5)
    assert any("the start" in words for words in found["copy"].not_covered)
    assert not any("the start" in words for words in found["word"].not_covered)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_plan_may_try_it(delta):
    """Those that start from a release can be prepared and state the whole budget; the shortest is run."""
    problem, _ = fresh_task(3_000_030)
    facts = PublicFacts.of(problem, Budget(0.7, delta))
    warm = [one for one in CoordinateDescent.candidates(facts) if isinstance(one.method.start, WarmStart)]
    assert warm
    for candidate in warm:
        guarantee = candidate.method.prepare(problem, 0).guarantee
        assert guarantee is not None
        assert guarantee.epsilon == (0.7, 0.7)
        assert guarantee.delta == (delta, delta)
    shortest = min(warm, key=lambda one: one.stops["updates"])
    made = outcome(shortest, problem, 0)
    assert made.guarantee is not None
    assert made.guarantee.epsilon == (0.7, 0.7)
    assert np.isfinite(made.own).all()
    assert not np.array_equal(made.own, made.released)
