"""What is compared, for which facts."""

import pytest

from flockwise import CappedLogistic, Huber, Logistic, Quadratic, Softmax
from flockwise.method import CoordinateDescent, candidates
from flockwise.method.base import check_method
from flockwise.method.coordinate_descent import TRADEOFF
from flockwise.privacy.accounting import default_accountant


def families(facts):
    return list(dict.fromkeys(one.method.name for one in candidates(facts) if not one.sends_nothing))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"loss": Logistic()}, ["lowpass", "release_once"]),
        ({"loss": Logistic(), "feature_bound": 1.0}, ["cd", "lowpass", "release_once"]),
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


def test_a_tradeoff_that_was_given_is_kept(facts):
    def tradeoffs(known):
        return {one.tradeoff for one in candidates(known) if isinstance(one.method, CoordinateDescent)}

    assert tradeoffs(facts(feature_bound=1.0, tradeoff=0.3)) == {0.3}
    assert tradeoffs(facts(feature_bound=1.0)) == {TRADEOFF}


def test_without_delta_the_noise_is_pure(facts):
    found = candidates(facts(feature_bound=1.0, delta=0.0))
    descents = [one.method.privacy for one in found if isinstance(one.method, CoordinateDescent)]
    assert {one.mechanism for one in descents if one} == {"knorm"}
    assert default_accountant("knorm", 0.0) == "basic"


def test_learning_alone_is_always_there(facts, ring, problem):
    (alone,) = candidates(facts(delta=0.0))
    assert alone.sends_nothing
    task = problem(ring(5, 1))
    assert alone.problem(task) is task
