"""The sentence on top says what the numbers say; its light is green only where nothing stands beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flockwise.engine import simulate
from flockwise.method import Local, ReleaseOnce
from flockwise.privacy import Budget
from flockwise.report import Comparison, Gain, promise, verdicts
from flockwise.solve import Gap


@pytest.fixture(scope="module")
def private(task, problem):
    runs = [
        simulate(problem, Local(), test=task.test),
        simulate(problem, ReleaseOnce(Budget(1.0, 1e-5)), engine="reference", test=task.test, updates=3),
    ]
    return Comparison.of(problem, *runs)


def with_scores(comparison, name, scores, **changes):
    """The comparison where the agents of a run fare as given."""
    run = comparison.runs[name]
    of = "agent_metrics" if run.own_metrics is None else "own_metrics"
    final = replace(run.final, metric=float(np.nanmean(scores)))
    changed = replace(run, **{of: scores}, records=(*run.records[:-1], final), **changes)
    return Comparison(comparison.problem, {**comparison.runs, name: changed})


def test_the_gain_is_the_mean_with_its_standard_error_and_the_agents_are_counted():
    alone = np.full(5, 0.8)
    gains = np.array([0.02, 0.04, 0.0, -0.01, np.nan])
    gain = Gain.of(gains, alone, "accuracy")
    assert gain.mean == pytest.approx(1.25)
    assert gain.error == pytest.approx(np.std([2, 4, 0, -1], ddof=1) / 2)
    assert (gain.better, gain.equal, gain.worse) == (2, 1, 1)
    assert gain.words == "+1.2 ± 1.1 points of accuracy"
    assert gain.counts == "2 agents better, 1 equal, 1 worse"


def test_an_error_that_becomes_smaller_is_shown_as_a_negative_percentage():
    gain = Gain.of(np.array([0.2, 0.1]), np.array([2.0, 1.0]), "rmse")
    assert gain.words == "-10.0 ± 3.3 % error (RMSE)"
    assert gain.side == 1


def test_a_run_that_gains_says_so(comparison):
    alone = comparison.runs["local"].agent_metrics
    gains = np.linspace(-0.01, 0.06, len(alone))
    [verdict] = verdicts(with_scores(comparison, "collaborative", alone + gains))
    assert verdict.sentence.startswith("Collaboration helps: +2.5 ± 0.6 points of accuracy; ")
    assert f"{(gains > 0).sum()} agents better, 0 equal, {(gains < 0).sum()} worse" in verdict.sentence


def test_a_run_that_makes_agents_worse_is_red(comparison):
    alone = comparison.runs["local"].agent_metrics
    [verdict] = verdicts(with_scores(comparison, "collaborative", alone - 0.1))
    assert verdict.light == "red"
    assert verdict.sentence.startswith("Keep your local models: collaboration makes them worse, -10.0 ")


def test_a_difference_within_its_error_does_not_count_as_help(comparison):
    alone = comparison.runs["local"].agent_metrics
    noise = np.tile([0.1, -0.09], len(alone) // 2)
    [verdict] = verdicts(with_scores(comparison, "collaborative", alone + noise))
    assert verdict.light == "amber"
    assert verdict.sentence.startswith("Keep your local models: collaboration makes no clear difference")


def test_a_run_without_privacy_is_never_green(comparison):
    [verdict] = verdicts(comparison)
    assert verdict.light == "amber"
    assert any(reason.startswith("Not private") for reason in verdict.reasons)


def test_a_leak_or_an_assumption_or_foreign_word_beside_the_guarantee_is_amber_and_else_it_is_green(private):
    name = "private"
    better = private.alone + 0.1
    guarantee = private.runs[name].guarantee
    clean = replace(guarantee, not_covered=())
    for changed, light in (
        (clean, "green"),
        (guarantee, "amber"),  # its graph was built from targets
        (replace(clean, assumes=("only sums are opened",)), "amber"),
        (replace(clean, declared=("a package",)), "amber"),
        (replace(clean, if_all_collude=(5.0, 5.0)), "amber"),
    ):
        [verdict] = verdicts(with_scores(private, name, better, guarantee=changed))
        assert (verdict.light, bool(verdict.reasons)) == (light, light == "amber")


def test_a_run_that_stopped_far_from_the_optimum_is_named(comparison):
    better = comparison.runs["local"].agent_metrics + 0.1
    far = with_scores(comparison, "collaborative", better, certified=lambda models: Gap(0.1, 0.3))
    reasons = [reason for run in (far, comparison) for reason in verdicts(run)[0].reasons]
    [named] = [reason for reason in reasons if "far from the optimum" in reason]
    assert "by at least 0.1 and at most 0.3 of its value" in named


def test_a_pooled_model_that_does_better_is_named(comparison):
    best = np.ones(comparison.problem.n_agents)
    [verdict] = verdicts(with_scores(comparison, "global", best))
    assert any(reason.startswith("Better still") for reason in verdict.reasons)


def test_every_epsilon_stands_with_its_unit_and_adversary(private):
    [verdict] = verdicts(private)
    guarantee = private.runs["private"].guarantee
    assert verdict.promise == promise(guarantee)
    for part in ("ε = 1", "δ = 1e-05", guarantee.neighboring, "all others colluding"):
        assert part in promise(guarantee)


def test_without_test_samples_nothing_is_judged(comparison, problem):
    runs = {
        name: replace(run, records=(*run.records[:-1], replace(run.final, metric=np.nan)))
        for name, run in comparison.runs.items()
    }
    [verdict] = verdicts(Comparison(problem, runs))
    assert verdict.light == "amber"
    assert "no test samples" in verdict.sentence


def test_a_method_that_advises_to_keep_local_models_is_quoted_and_never_green(private):
    name = next(iter(private.guarantees))
    run = private.runs[name]
    scores = run.own_metrics + 0.05
    advised = with_scores(
        private, name, scores, settings={**run.settings, "advice": "keep the local models: noise"}
    )
    verdict = next(one for one in verdicts(advised) if one.run == name)
    assert verdict.sentence == "Keep the local models: noise."
    assert verdict.light == "amber"
    assert verdict.reasons[0] == "Agents use their local models."
