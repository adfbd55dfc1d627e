"""A learned prior without a graph: both engines, absent agents, own budgets, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import ks_2samp

from flockwise.data import Population
from flockwise.engine import ENGINES, Conditions, RunSettings, simulate
from flockwise.errors import ConfigError, FlockwiseWarning, PrivacyError, SimulationError
from flockwise.graph import complete_graph
from flockwise.method import CoordinateDescent, LearnedPrior, PrivateUpdates, PublicModels
from flockwise.method.base import PublicFacts, candidates, deployment_of
from flockwise.objective import Huber, Logistic, Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.protocol.conversation import SumRequest
from flockwise.protocol.prior import Around
from flockwise.solve import choose_l2, solve_local_models
from flockwise.solve.penalty import CHOSEN, CHOSEN_ALONE

BUDGET = Budget(1.0, 1e-5)
AROUND = Around(np.array([0.1, -0.2, 0.3]), np.eye(3), 0.1)
TRUTH = np.array([0.5, -0.25, 0.2])


def grouped_problem(n_agents=60, samples=40, loss=None, seed=0):
    """Agents whose models differ around TRUTH; the last feature is an intercept."""
    random = np.random.default_rng(seed)
    counts = random.integers(1, 2 * samples, n_agents)
    models = np.repeat(TRUTH + random.normal(0, 0.15, (n_agents, 3)), counts, axis=0)
    features = random.uniform(-1, 1, (counts.sum(), 2))
    scores = (features * models[:, :2]).sum(axis=1) + models[:, 2]
    if isinstance(loss, Logistic):
        targets = np.where(random.random(len(scores)) < 1 / (1 + np.exp(-4 * scores)), 1.0, -1.0)
        objective = Objective(loss, feature_bound=1.8)
    else:
        targets = scores + random.normal(0, 0.2, len(scores))
        objective = Objective(Quadratic(), feature_bound=1.8, target_range=(-2.0, 2.0))
    owners = np.repeat(np.arange(n_agents), counts)
    return Problem(Population.from_arrays(features, targets, owners).with_intercept(), None, objective)


def unrelated_problem():
    """600 agents of 20 samples; models in all directions."""
    random = np.random.default_rng(2)
    owners = np.repeat(np.arange(600), 20)
    features = random.uniform(-1, 1, (len(owners), 2))
    models = 0.4 * random.normal(size=(600, 3))[owners]
    targets = (features * models[:, :2]).sum(axis=1) + models[:, 2] + random.normal(0, 0.2, len(owners))
    objective = Objective(Quadratic(), feature_bound=1.8, target_range=(-2.0, 2.0))
    return Problem(Population.from_arrays(features, targets, owners).with_intercept(), None, objective)


def single_samples(alone=0):
    """4,000 samples of as many agents, but for two each of the first agents."""
    random = np.random.default_rng(4)
    owners = np.concatenate([np.arange(4000), np.arange(alone)])
    features = random.uniform(-1, 1, (len(owners), 2))
    targets = features @ TRUTH[:2] + TRUTH[2] + random.normal(0, 0.2, len(owners))
    objective = Objective(Quadratic(), feature_bound=1.8, target_range=(-2.0, 2.0))
    return Problem(Population.from_arrays(features, targets, owners).with_intercept(), None, objective)


LOSSES = pytest.mark.parametrize("loss", [Quadratic(), Logistic()], ids=["quadratic", "logistic"])


def rule_of(problem, method) -> Any:
    return method.prepare(problem, 0).rule


def run_of(problem, method, **options) -> Any:
    return simulate(problem, method, **options)


class TestTwoEngines:
    @LOSSES
    @pytest.mark.parametrize("spread", ["number", "numbers", "matrix"])
    def test_before_noise_parts_add_up_to_the_whole_to_the_last_digit(self, loss, spread):
        problem = grouped_problem(loss=loss)
        budgets = [BUDGET] * 50 + [Budget(0.5, 1e-6)] * 10
        sums = rule_of(problem, LearnedPrior(budgets, spread)).sums
        present = np.delete(np.arange(60), [3, 17, 55])
        around = AROUND if spread == "matrix" else AROUND._replace(basis=AROUND.basis[:, :1])
        for request in (SumRequest("moments"), SumRequest("spread", around)):
            parts = [sums.part(position, request) for position in present.tolist()]
            whole = sums.whole(present, request)
            assert np.abs(whole).max() > 1e4
            np.testing.assert_array_equal(np.sum(parts, axis=0), whole)

    def test_with_noise_they_agree_in_distribution(self):
        """60 seeds: two samples of one law differ so much in one of a thousand cases."""
        rule = rule_of(grouped_problem(30, 60), LearnedPrior(BUDGET, "number"))
        found = {}
        for engine in ("reference", "cpu"):
            models = []
            for seed in range(60):
                noise = replace(rule.sums.noise, seed=seed)
                seeded = replace(rule, sums=rule.sums._replace(noise=noise))
                models.append(ENGINES[engine].start(seeded, RunSettings()).result().models[0])
            found[engine] = np.array(models)
        for reference, cpu in zip(found["reference"].T, found["cpu"].T, strict=True):
            test: Any = ks_2samp(reference, cpu)
            assert test.pvalue > 1e-3
            assert not np.array_equal(reference, cpu)

    def test_everyone_who_talks_learns_the_same(self):
        problem = grouped_problem(30)
        rule = rule_of(problem, LearnedPrior(BUDGET))
        heard = {}
        seen = replace(
            rule, collect=lambda results, traffic: heard.update(results) or rule.collect(results, traffic)
        )
        ENGINES["reference"].start(seen, RunSettings())
        assert len(heard) == 30
        for learned in heard.values():
            np.testing.assert_array_equal(learned.mean, heard[0].mean)


class TestWhatIsLearned:
    def test_with_little_noise_it_is_the_regression_of_all_samples_together(self):
        """Weighted by 1/(‖x‖² + ½) in the units of the release; NumPy's least squares is the oracle."""
        problem = grouped_problem(400, 40)
        run = run_of(problem, LearnedPrior(Budget(12.0, 1e-3)))
        features, targets = problem.population.features / 1.8, problem.population.targets / 2
        root = 1 / np.sqrt((features**2).sum(axis=1) + 0.5)
        expected = np.linalg.lstsq(features * root[:, None], targets * root)[0] * 2 / 1.8
        np.testing.assert_allclose(np.asarray(run.models)[0], expected, atol=0.01)
        np.testing.assert_allclose(run.prior.mean, TRUTH, atol=0.05)
        assert run.prior.dispersion == pytest.approx(2 * 0.2**2, rel=1.0), "it includes how agents differ"

    @pytest.mark.parametrize("bound", [1.0, 0.5])
    def test_rows_beyond_the_bound_do_not_inflate_coefficients(self, bound):
        """With an intercept they are all beyond it; targets lie around 10, the center of their range."""
        problem = grouped_problem(400, 40)
        far = problem.population.with_samples(problem.population.features, problem.population.targets + 10)
        objective = replace(problem.objective, feature_bound=bound, target_range=(8.0, 12.0))
        run = run_of(Problem(far, None, objective), LearnedPrior(Budget(12.0, 1e-3)))
        np.testing.assert_allclose(run.prior.mean - [0, 0, 10], TRUTH, atol=0.05)
        assert np.square(np.asarray(run.own_models) - run.prior.mean).mean() < 0.15**2

    def test_two_classes_whose_rows_are_all_beyond_the_bound_come_with_a_warning(self):
        problem = grouped_problem(400, 40, Logistic())
        short = replace(problem, objective=replace(problem.objective, feature_bound=1.0))
        with pytest.warns(FlockwiseWarning, match=r"objective\.feature_bound = 1 .*give √\(1 \+ r²\)"):
            run_of(short, LearnedPrior(BUDGET))

    @LOSSES
    def test_own_models_are_nearer_to_the_truth_than_local_ones(self, loss):
        problem = grouped_problem(300, 8, loss)
        random = np.random.default_rng(0)
        counts = random.integers(1, 16, 300)
        truth = TRUTH + random.normal(0, 0.15, (300, 3))
        assert counts.sum() == problem.population.n_samples
        scale = 4.0 if isinstance(loss, Logistic) else 1.0
        run = run_of(problem, LearnedPrior(BUDGET))
        errors = [
            np.square(np.asarray(models) - scale * truth).mean()
            for models in (run.own_models, solve_local_models(problem))
        ]
        assert errors[0] < 0.6 * errors[1]

    def test_scaling_features_and_targets_with_their_bounds_changes_nothing(self):
        problem = grouped_problem()
        population = problem.population
        scaled = Population.packed(4 * population.features, 8 * population.targets, population.offsets)
        objective = replace(problem.objective, feature_bound=4 * 1.8, target_range=(-16.0, 16.0))
        plain = Population.packed(population.features, population.targets, population.offsets)
        one = run_of(Problem(plain, None, problem.objective), LearnedPrior(BUDGET))
        other = run_of(Problem(scaled, None, objective), LearnedPrior(BUDGET))
        np.testing.assert_allclose(np.asarray(other.own_models), 2 * np.asarray(one.own_models), rtol=1e-6)


class TestAbsentAgents:
    def test_a_sum_of_those_who_are_there_is_opened(self):
        problem = grouped_problem()
        away = Conditions(leaves={0: 0.5, 7: 0.5})
        for engine in ("reference", "cpu"):
            run = run_of(problem, LearnedPrior(BUDGET), engine=engine, conditions=away)
            assert run.prior is not None
            assert run.settings["vectors_by_stage"] == {"moments": 58, "spread": 2 * 58}

    @pytest.mark.parametrize("engine", ["reference", "cpu"])
    def test_with_more_absent_than_planned_nothing_is_opened_and_local_models_stay(self, engine):
        problem = grouped_problem()
        away = Conditions(leaves=dict.fromkeys(range(7), 0.5))
        run = run_of(problem, LearnedPrior(BUDGET), engine=engine, conditions=away)
        assert run.prior is None
        assert "too many agents were absent to open a sum" in run.settings["advice"]
        np.testing.assert_array_equal(np.asarray(run.own_models), solve_local_models(problem))
        np.testing.assert_array_equal(np.asarray(run.models), 0)
        assert run_of(problem, LearnedPrior(BUDGET, absent=0.2), conditions=away).prior is not None

    def test_some_may_miss_the_second_sum_alone(self):
        problem = grouped_problem()
        late = Conditions(leaves=dict.fromkeys(range(7), 1.5))
        method = LearnedPrior(BUDGET, "number")
        run = run_of(problem, method, conditions=late)
        assert run.prior is None
        assert run.settings["vectors_by_stage"] == {"moments": 60, "spread": 53}

    @pytest.mark.parametrize("spread", ["number", "numbers", "matrix"])
    def test_where_only_agents_with_one_sample_are_there_local_models_stay(self, spread):
        away = Conditions(leaves=dict.fromkeys(range(10), 1.5))
        run = run_of(single_samples(alone=10), LearnedPrior(BUDGET, spread), conditions=away)
        assert run.prior is None
        assert "no agent with two samples was there" in run.settings["advice"]

    def test_delays_and_losses_have_no_meaning_for_sums(self):
        for conditions in (Conditions(delay=1.0), Conditions(loss=0.1)):
            with pytest.raises(SimulationError, match="cannot use conditions"):
                run_of(grouped_problem(), LearnedPrior(BUDGET), conditions=conditions)


class TestTheGuarantee:
    def test_it_says_against_whom_what_it_assumes_and_what_is_left_if_all_collude(self):
        words = run_of(grouped_problem(), LearnedPrior(BUDGET)).guarantee.explain()
        for part in (
            "with up to 20 of the 60 agents colluding, learns almost the same",
            "(ε = 1, δ = 1e-05) differential privacy",
            "Assumed: only sums are opened: secure aggregation, which is not simulated.",
            "Assumed: a sum is opened only if at least 54 of 60 agents deliver.",
            "a malicious one can spoil a sum",
            "If all others collude, ε = ",
            "This is a simulation",
            "own model is for itself",
        ):
            assert part in words, part

    def test_agents_with_budgets_of_their_own_are_covered_by_them(self):
        budgets = [BUDGET] * 30 + [Budget(0.5, 1e-6)] * 30
        guarantee = run_of(grouped_problem(), LearnedPrior(budgets, "number")).guarantee
        assert guarantee.per_agent == tuple(budgets)
        alone = run_of(grouped_problem(), LearnedPrior(budgets[-1], "number")).guarantee
        assert guarantee.noise_multiplier == pytest.approx(alone.noise_multiplier, rel=1e-9)
        assert (guarantee.epsilon, guarantee.delta) == ((0.5, 1.0), (1e-6, 1e-5))
        least, largest = guarantee.if_all_collude
        assert 0.5 < least < largest

    def test_a_run_that_builds_on_it_is_kept_from_no_more_than_it_is(self, tmp_path):
        problem = grouped_problem()
        problem = replace(problem, graph=complete_graph(problem.n_agents))
        first = run_of(problem, LearnedPrior(BUDGET))
        first.to_parquet(tmp_path / "models.parquet", which="released")
        for models in (first.models, pq.read_table(tmp_path / "models.parquet")):
            second = run_of(
                problem, CoordinateDescent(PublicModels(models), PrivateUpdates(BUDGET, 1, 1.0)), seed=2
            )
            assert second.guarantee.epsilon == (2.0, 2.0)
            assert second.guarantee.against == first.guarantee.against
            assert second.guarantee.assumes == first.guarantee.assumes
            least, largest = first.guarantee.if_all_collude
            assert second.guarantee.if_all_collude == (1 + least, 1 + largest)

    def test_penalties_that_agents_chose_alone_stay_at_home(self):
        problem = grouped_problem()
        alone, together = choose_l2(problem, alone=True), choose_l2(problem)
        run = run_of(alone, LearnedPrior(BUDGET))
        assert run.guarantee.is_private
        np.testing.assert_array_equal(run.models, run_of(problem, LearnedPrior(BUDGET)).models)
        assert CHOSEN.words in run_of(together, LearnedPrior(BUDGET)).guarantee.not_covered
        assert CHOSEN_ALONE in alone.origins, "for methods that send what depends on them"

    def test_it_covers_everything_that_leaves_the_agents(self):
        assert run_of(grouped_problem(), LearnedPrior(BUDGET)).guarantee.is_private


class TestRefusals:
    def test_where_noise_hides_everything_nothing_is_released(self):
        problem = grouped_problem(10, 5)
        run = run_of(problem, LearnedPrior(BUDGET))
        assert "keep the local models: with 3 features the noise would hide" in run.settings["advice"]
        np.testing.assert_array_equal(np.asarray(run.models), 0)
        np.testing.assert_array_equal(np.asarray(run.own_models), solve_local_models(problem))
        assert "vectors_by_stage" not in run.settings

    def test_the_rule_is_public_and_plans_follow_it(self):
        """With as many samples as the advice asks for it is a run, and with a few fewer it is none."""
        few, many = (PublicFacts.of(grouped_problem(*size), BUDGET) for size in ((10, 5), (200, 20)))
        method = LearnedPrior(BUDGET)
        assert [type(one.method) for one in candidates(few)].count(LearnedPrior) == 0
        assert [type(one.method) for one in candidates(many)].count(LearnedPrior) == 1
        advice = method.refusal(few)
        assert advice is not None
        needed = int(re.findall(r"about ([\d,]+) samples", advice)[0].replace(",", ""))
        for factor, runs in ((1.02, True), (0.98, False)):
            counts = np.array([round(factor * needed), *[0] * 9])
            assert (method.refusal(replace(few, sample_counts=counts)) is None) == runs

    def test_a_spread_that_is_unusual_is_followed_where_it_is_measured(self):
        """Half of the variance lies between agents; a tenth is usual. What is left within them is less."""
        random = np.random.default_rng(1)
        owners = np.repeat(np.arange(400), 12)
        features = random.uniform(-1, 1, (len(owners), 2))
        targets = features[:, 0] + 0.3 * (random.normal(size=400)[owners] + random.normal(size=len(owners)))
        population = Population.from_arrays(features, targets, owners).with_intercept()
        problem = Problem(population, None, grouped_problem().objective)
        asked, guessed = (
            run_of(problem, LearnedPrior(BUDGET, spread)).prior for spread in ("number", "default")
        )
        assert asked.residual_variance == pytest.approx(0.09, rel=0.15)
        assert asked.covariance[-1, -1] == pytest.approx(0.09, rel=0.25)
        assert 1.2 * 0.09 < guessed.residual_variance < 0.18, (
            "what is not measured is taken as wide as on average"
        )
        assert 0.03 < guessed.covariance[-1, -1] < 0.06

    def test_agents_without_anything_in_common_get_a_prior_as_wide_as_they_differ(self):
        """Their mean is zero; a prior of usual width would draw them there."""
        problem = unrelated_problem()
        for spread in ("number", "numbers"):
            prior = run_of(problem, LearnedPrior(BUDGET, spread)).prior
            assert np.abs(prior.mean).max() < 0.05
            # Each coefficient differs by a variance of .16. One number for all does not say where it lies.
            np.testing.assert_allclose(
                np.diag(prior.covariance), 0.16, rtol=0.3 if spread == "numbers" else 0.6
            )

    def test_what_features_of_whole_agents_hide_is_not_taken_for_slopes(self):
        """Intercepts alone differ, and a feature is the same for all samples of an agent."""
        random = np.random.default_rng(3)
        owners = np.repeat(np.arange(600), 20)
        features = np.column_stack([random.uniform(-1, 1, 600)[owners], random.uniform(-1, 1, len(owners))])
        own = 0.15 * random.normal(size=600)[owners]
        targets = 0.5 * features[:, 1] + own + random.normal(0, 0.3, len(owners))
        population = Population.from_arrays(features, targets, owners).with_intercept()
        problem = Problem(population, None, grouped_problem().objective)
        prior = run_of(problem, LearnedPrior(BUDGET, "numbers")).prior
        assert prior.covariance[-1, -1] == pytest.approx(0.15**2, rel=0.3)
        # As they were measured slopes would differ by .013 each.
        assert np.diag(prior.covariance)[:2].max() < 0.01

    def test_between_the_two_limits_it_runs_with_a_warning(self):
        """With as many samples as the warning asks for there is none, and with a few fewer there is one."""
        problem, budget = grouped_problem(60, 5), Budget(0.5, 1e-5)
        facts, method = PublicFacts.of(problem, budget), LearnedPrior(budget)
        with pytest.warns(FlockwiseWarning, match=r"hides much of what \d+ samples have in common") as caught:
            assert run_of(problem, method).prior is not None
        words = str(caught[0].message)
        assert (method.caution(facts) or "nothing") in words
        needed = int(re.findall(r"about ([\d,]+) samples", words)[0].replace(",", ""))
        for factor, silent in ((1.02, True), (0.98, False)):
            counts = np.array([round(factor * needed), *[0] * 59])
            assert (method.caution(replace(facts, sample_counts=counts)) is None) == silent

    def test_a_plan_does_not_try_it_blind_to_how_far_agents_differ(self):
        """The noise would not hide the common model; but drawn to it, who differs much would be worse off."""
        facts = PublicFacts.of(grouped_problem(200, 5), BUDGET)
        assert LearnedPrior(BUDGET).refusal(facts) is None
        assert LearnedPrior in [
            type(one.method) for one in candidates(replace(facts, budgets=Budget(4.0, 1e-5)))
        ]
        assert LearnedPrior not in [type(one.method) for one in candidates(facts)]
        assert "a look at how far agents differ" in (LearnedPrior.reason_against(facts) or "")

    def test_a_plan_does_not_try_it_with_so_little_noise_that_its_grid_would_show(self):
        facts = PublicFacts.of(grouped_problem(30), Budget(50.0, 1e-3))
        assert LearnedPrior not in [type(one.method) for one in candidates(facts)]
        assert "the grid of a sum" in (LearnedPrior.reason_against(facts) or "")

    def test_other_losses_and_missing_bounds_are_refused_by_name(self):
        problem = grouped_problem()
        for objective, words in (
            (
                replace(problem.objective, loss=Huber()),
                'objective.loss: got "huber"; a private learned prior is',
            ),
            (replace(problem.objective, feature_bound=None), "objective.feature_bound: missing"),
            (replace(problem.objective, target_range=None), "objective.target_range: missing"),
        ):
            with pytest.raises(PrivacyError, match=words):
                run_of(Problem(problem.population, None, objective), LearnedPrior(BUDGET))

    @pytest.mark.parametrize("spread", ["number", "numbers", "matrix"])
    def test_what_only_two_samples_of_an_agent_tell_is_not_asked_where_nobody_has_two(self, spread):
        problem = single_samples()
        with pytest.raises(PrivacyError, match=f'spread="{spread}".*say spread="default"'):
            run_of(problem, LearnedPrior(BUDGET, spread))
        assert run_of(problem, LearnedPrior(BUDGET)).prior is not None

    def test_real_agents_cannot_run_it_and_are_told_so(self):
        with pytest.raises(ConfigError, match=r'method\.name: real agents cannot run "learned_prior"'):
            deployment_of(LearnedPrior(BUDGET), grouped_problem(), None)

    def test_an_error_shows_nothing_of_the_samples(self):
        """A part that cannot be added up is named by public sizes alone."""
        sums = rule_of(grouped_problem(), LearnedPrior(BUDGET)).sums
        with pytest.raises(PrivacyError, match=r"^sum 9 of 10 numbers was not planned") as caught:
            sums.noise.share(0, 9, "moments", 10)
        assert "." not in str(caught.value), "no number but counts"


def test_numbers_for_intercepts_and_slopes_need_both():
    problem = grouped_problem()
    people = problem.population
    slopes = Population.packed(np.ascontiguousarray(people.features[:, :2]), people.targets, people.offsets)
    without = replace(problem, population=slopes)
    with pytest.raises(PrivacyError, match=r"numbers.*give the population an intercept"):
        run_of(without, LearnedPrior(BUDGET, spread="numbers"))
