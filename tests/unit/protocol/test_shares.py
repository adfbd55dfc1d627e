"""How much lies between agents, before anything is asked and after."""

import tracemalloc

import numpy as np
import pytest

from flockwise.protocol.shares import Found, likely_shares


def answers(*values, std=1e-3):
    return [Found(np.array([value]), std, 1e4) for value in values]


def shares_of(found, *, unrelated=False, together=False, n_slopes=3):
    return likely_shares(found, n_slopes, 0.5, unrelated=unrelated, together=together)


def test_without_an_answer_agents_differ_as_usual_or_a_little_more():
    """Too wide a prior costs less than too narrow a one."""
    shares = shares_of([])
    assert 0.1 < shares.intercepts < 0.25
    assert 0.025 < shares.slopes < 0.05
    assert shares.alike < 0.03


@pytest.mark.parametrize(("intercepts", "slopes"), [(0.1, 0.02), (0.6, 0.03), (0.05, 0.3)])
def test_clear_answers_are_followed(intercepts, slopes):
    shares = shares_of(answers(intercepts, slopes), n_slopes=1)
    assert shares.intercepts + shares.alike / 2 == pytest.approx(intercepts, abs=0.02)
    assert shares.slopes + shares.alike / 2 == pytest.approx(slopes, rel=0.2)


def test_one_number_for_all_coefficients_says_how_much_there_is_and_not_where():
    shares = shares_of(answers(0.5), unrelated=True, together=True)
    assert sum(shares) == pytest.approx(0.5, abs=0.01)
    assert shares.alike > max(shares.intercepts, shares.slopes)


def test_unrelated_agents_are_thought_to_differ_alike_in_all_coefficients():
    found = answers(0.3, 0.3, std=0.05)
    assert shares_of(found, unrelated=True).alike > 0.5
    assert sum(shares_of([], unrelated=True)) > sum(shares_of([]))


def test_as_much_in_slopes_as_in_intercepts_may_be_a_feature_that_does_not_vary():
    """It may be that agents differ in everything as well, so some of it is believed."""
    shares = shares_of(answers(0.1, 0.1, std=0.02))
    assert 0.02 < shares.slopes + shares.alike / 2 < 0.08


def test_noisy_answers_are_hardly_believed():
    assert shares_of(answers(0.9, 0.6, std=2.0)) == pytest.approx(shares_of([]), abs=0.05)


def test_many_features_take_no_more_memory():
    tracemalloc.start()
    many = shares_of(answers(0.1, 0.02), n_slopes=400)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150e6
    assert many == pytest.approx(shares_of(answers(0.1, 0.02), n_slopes=40), rel=1e-9)
