"""The number of samples may change between releases: their cost does not, and nothing drifts.

What was spent is computed anew here: from the number of rows that each release was made of, and from the
noise that its entry in the ledger states.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from tests.unit.privacy.proven import every_integer_version, every_mechanism, every_proof, noise_for

from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import Ledger, MemoryLedger
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, 1e-5)
GROWING = (20, 23, 40, 41, 80)
SHRINKING = GROWING[::-1]
DIMENSION, CLIP = 3, 1.5
changing = pytest.mark.parametrize(
    "counts", [GROWING, SHRINKING, (7,) * 5], ids=["growing", "shrinking", "same"]
)


def rows_of(count):
    return Rows.of(np.random.default_rng(count).normal(size=(count, DIMENSION)), CLIP)


def spend(plan, counts, ledger=None):
    """The entries of a ledger after one release for each number of rows."""
    ledger = ledger or MemoryLedger("anna")
    gate = Gate(plan, ledger, noise_for(plan))
    for count in counts:
        gate.release(rows_of(count))
    return ledger.entries


def true_epsilons(plan, entries, counts):
    """The ε after each release: replacing a row moves the mean of m rows by 2·clip/m, whatever is stated."""
    events = [
        dataclasses.replace(entry.event, sensitivity=2 * CLIP / count)
        for entry, count in zip(entries, counts, strict=True)
    ]
    accountant = ACCOUNTANTS[plan.accountant]
    return [accountant.epsilon(events[:number], plan.budget.delta) for number in range(1, len(events) + 1)]


def check_costs(plan, entries, counts):
    """Every release costs what was planned: no more, and no less."""
    spent = true_epsilons(plan, entries, counts)
    assert max(spent) <= plan.budget.epsilon
    assert spent == pytest.approx([plan.epsilon_after(k) for k in range(1, len(spent) + 1)], rel=1e-12)


@every_proof
@changing
def test_releases_cost_what_was_planned_however_many_samples(mechanism, on_grid, accountant, counts):
    plan = Plan.fitting(BUDGET, mechanism, 5, accountant=accountant, on_grid=on_grid)
    check_costs(plan, spend(plan, counts), counts)


@every_integer_version
def test_a_real_agent_that_restarts_between_releases_spends_what_was_planned(tmp_path, kind):
    """Unequal releases, a ledger on disk, and a process that ends after each of them."""
    plan = Plan.fitting(BUDGET, kind.name, [1.0, 1.0, 2.0, 3.0, 5.0], on_grid=True)
    Ledger.create(tmp_path, "anna").close()
    for count in GROWING:
        with Ledger.open(tmp_path, "anna") as ledger:
            gate = Gate(plan, ledger, SecureNoise())
            gate.release(rows_of(count))
            assert gate.epsilon_spent == plan.epsilon_after(gate.consumed)
    with Ledger.open(tmp_path, "anna") as ledger:
        check_costs(plan, ledger.entries, GROWING)
        assert Gate(plan, ledger, SecureNoise()).is_spent


def test_more_samples_mean_less_noise_for_the_same_cost():
    plan = Plan.fitting(BUDGET, "gaussian", 5, on_grid=True)
    scales = [entry.event.scale for entry in spend(plan, GROWING)]
    assert [scale * count for scale, count in zip(scales, GROWING, strict=True)] == pytest.approx(
        [scales[0] * GROWING[0]] * 5
    )


@every_mechanism
@changing
def test_a_gate_that_keeps_the_sensitivity_of_its_first_release_is_found(monkeypatch, kind, counts):
    """A seeded bug. With fewer rows than before its noise is too small, with more it is too large."""
    honest = Rows.event

    def stale(rows, plan, number):
        return honest(dataclasses.replace(rows, samples=counts[0]), plan, number)

    plan = Plan.fitting(BUDGET, kind.name, 5)
    monkeypatch.setattr(Rows, "event", stale)
    entries = spend(plan, counts)
    if len(set(counts)) == 1:
        check_costs(plan, entries, counts)  # where the number never changes, nothing is wrong
        return
    with pytest.raises(AssertionError):
        check_costs(plan, entries, counts)
    is_too_much = max(true_epsilons(plan, entries, counts)) > BUDGET.epsilon
    assert is_too_much == (counts == SHRINKING)


@every_integer_version
@pytest.mark.parametrize("on_grid", [False, True])
def test_rows_are_clipped_to_what_is_accounted_even_if_their_number_is_wrong(monkeypatch, kind, on_grid):
    """With the same bug: no mean moves by more than the sensitivity that its event states."""
    honest = Rows.event
    monkeypatch.setattr(
        Rows, "event", lambda rows, plan, number: honest(dataclasses.replace(rows, samples=80), plan, number)
    )
    plan = Plan.fitting(BUDGET, kind.name, 5, on_grid=on_grid)
    values = np.zeros((20, DIMENSION))
    ends = []
    for sign in (1, -1):
        values[0] = sign * 100.0, 0.0, 0.0
        rows = Rows.of(values, CLIP)
        event = rows.event(plan, 1)
        ends.append(rows.bounded(event, None) * (event.grid or 1.0))
    moved = np.abs(ends[0] - ends[1]).sum()
    assert 0.99 * event.sensitivity < moved <= event.sensitivity == 2 * CLIP / 80


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(GROWING[:3], 2)])
def test_noise_that_was_drawn_for_another_number_of_samples_is_not_used(before, after):
    class Remembering(SecureNoise):
        def __init__(self):
            self.drawn = []

        def draw(self, event, number):
            self.drawn.append(event)
            return super().draw(event, number)

    noise, ledger = Remembering(), MemoryLedger("anna")
    gate = Gate(Plan.fitting(BUDGET, "laplace", 2, on_grid=True), ledger, noise)
    gate.prepare(rows_of(before))
    gate.release(rows_of(after))
    assert [event.sensitivity for event in noise.drawn] == [2 * CLIP / before, 2 * CLIP / after]
    assert ledger.entries[0].event == noise.drawn[1]
