"""The guarantee says all of it, and says so plainly when there is none."""

from __future__ import annotations

import dataclasses

import pytest

from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import USUALLY_PUBLIC, Guarantee
from flockwise.privacy.mechanisms import Gaussian, Laplace, Mechanism
from flockwise.privacy.plan import Plan

GAUSSIAN: Mechanism = Gaussian(0.1, 1.0)


def plan(epsilon, event: Mechanism = GAUSSIAN, accountant="gdp"):
    return Plan.fitting(Budget(epsilon, 1e-5), event, accountant=accountant, updates=3)


@pytest.fixture
def guarantee():
    return Guarantee.of([plan(0.5), plan(1.0), plan(1.0)])


def test_it_states_everything(guarantee):
    words = guarantee.explain()
    assert "ε from 0.5 to 1" in words
    assert "δ = 1e-05" in words
    for part in (
        "Gaussian noise",
        "gdp",
        "one sample of one agent is replaced",
        "simulation",
        *USUALLY_PUBLIC,
    ):
        assert part in words
    assert "not differentially private" not in words.lower()
    assert guarantee.is_private
    assert "ε from 0.5 to 1, δ = 1e-05" in guarantee.label
    assert "\n" not in guarantee.label


def test_lines_are_few():
    assert 4 <= len(Guarantee.of([plan(1.0)]).explain().splitlines()) <= 8


def test_without_enforced_sensitivity_it_begins_with_that(guarantee):
    none = dataclasses.replace(guarantee, enforced=False)
    assert none.explain().startswith("NOT DIFFERENTIALLY PRIVATE")
    assert none.label.startswith("not differentially private")
    assert not none.is_private


def test_leaks_are_named(guarantee):
    leaking = dataclasses.replace(guarantee, leaks=("the graph, built from local models",))
    assert "NOT covered" in leaking.explain()
    assert "the graph, built from local models" in leaking.explain()
    assert leaking.label.endswith("leaks apart: the graph, built from local models")
    assert not leaking.is_private


def test_one_budget_is_no_range():
    assert "ε = 1, δ" in Guarantee.of([plan(1.0)]).label


def test_mixtures_name_all_mechanisms_and_accountants():
    mixed = Guarantee.of([plan(1.0), plan(1.0, Laplace(0.1, 1.0), "pld")], simulated=False)
    assert "Gaussian noise and Laplace noise" in mixed.label
    assert "gdp and pld" in mixed.label
    assert "simulation" not in mixed.explain()
