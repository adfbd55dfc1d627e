"""What is compared, for which facts."""

from dataclasses import replace

import numpy as np
import pytest

from flockwise import (
    Budget,
    CappedLogistic,
    Huber,
    LearnedPrior,
    Logistic,
    Objective,
    Population,
    Problem,
    Quadratic,
    Softmax,
)
from flockwise.method import Candidate, CoordinateDescent, PublicFacts, candidates
from flockwise.method.base import check_method
from flockwise.method.coordinate_descent import TRADEOFFS
from flockwise.planner.trials import outcome
from flockwise.privacy.accounting import default_accountant

# The table below is about these, offered or not; a new method states its own candidates beside itself.
FAMILIES = ("admm", "cd", "global", "learned_prior", "local_dp", "lowpass", "propagation", "release_once")


def families(facts):
    found = dict.fromkeys(one.method.name for one in candidates(facts) if not one.sends_nothing)
    return [name for name in found if name in FAMILIES]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"loss": Logistic()}, ["lowpass", "release_once"]),
        ({"loss": Logistic(), "feature_bound": 1.0}, ["cd", "learned_prior", "lowpass", "release_once"]),
        ({"loss": CappedLogistic(), "feature_bound": 1.0}, ["cd", "lowpass", "release_once"]),
        ({"loss": Logistic(), "feature_bound": 1.0, "delta": 0.0}, ["cd"]),
        ({"loss": Logistic(), "delta": 0.0}, []),
        ({"loss": Softmax(2), "feature_bound": 1.0}, ["cd", "release_once"]),
        ({"loss": Huber(), "feature_bound": 1.0}, ["cd", "lowpass", "release_once"]),
        ({"loss": Quadratic(), "feature_bound": 1.0}, []),
        (
            {"loss": Quadratic(), "feature_bound": 1.0, "residual_scale": 2.0},
            ["cd", "lowpass", "release_once"],
        ),
        ({"loss": Quadratic(), "residual_scale": 2.0}, []),
    ],
)
def test_candidates_follow_from_the_public_facts(facts, settings, expected):
    assert families(facts(**settings)) == expected


def test_every_candidate_is_called_differently(facts):
    words = [one.words for one in candidates(facts(feature_bound=1.0))]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("loss", [Logistic(), CappedLogistic(), Softmax(2), Huber(), Quadratic()])
def test_every_candidate_fits_the_problem_that_it_is_for(facts, problem, ring, loss):
    task = problem(ring(40, 3), loss=loss, feature_bound=1.0)
    for one in candidates(facts(loss=loss, feature_bound=1.0, residual_scale=2.0)):
        check_method(one.method, one.problem(task))


@pytest.mark.parametrize("stops", [{"updates": 50}, {"ticks": 2000}, {"time": 50.0}])
def test_a_candidate_may_stop_by_updates_ticks_or_time(facts, problem, ring, stops):
    """Each agent of 40 sends its release and the models of 50 updates to its 6 neighbors."""
    known = facts()
    candidate = next(one for one in candidates(known) if one.method.name == "release_once")
    made = outcome(replace(candidate, stops=stops), problem(ring(40, 3)), 0)
    assert made.vectors == 40 * 6 * 51


def test_a_tradeoff_that_was_given_is_kept(facts):
    def tradeoffs(known):
        return {one.tradeoff for one in candidates(known) if isinstance(one.method, CoordinateDescent)}

    assert tradeoffs(facts(feature_bound=1.0, tradeoff=0.3)) == {0.3}
    assert tradeoffs(facts(feature_bound=1.0)) == set(TRADEOFFS)


def test_without_delta_the_noise_is_pure(facts):
    found = candidates(facts(feature_bound=1.0, delta=0.0))
    descents = [one.method.privacy for one in found if isinstance(one.method, CoordinateDescent)]
    assert {one.mechanism for one in descents if one} == {"knorm"}
    assert default_accountant("knorm", 0.0) == "basic"


def test_learning_alone_is_always_there(facts, ring, problem):
    (alone,) = (one for one in candidates(facts(delta=0.0)) if one.sends_nothing)
    task = problem(ring(5, 1))
    assert alone.problem(task) is task


def test_a_trial_says_nothing_of_what_its_method_warns_of():
    """ρ is between the two limits here; the advice says so once."""
    random = np.random.default_rng(0)
    population = Population.packed(
        random.uniform(-1, 1, (900, 2)), random.uniform(-1, 1, 900), np.arange(0, 901, 15)
    ).with_intercept()
    problem = Problem(population, None, Objective(Quadratic(), feature_bound=2.0, target_range=(-1.0, 1.0)))
    method = LearnedPrior(Budget(0.2, 1e-5))
    assert method.caution(PublicFacts.of(problem, Budget(0.2, 1e-5)))
    outcome(Candidate("learned prior", method), problem, 0)
