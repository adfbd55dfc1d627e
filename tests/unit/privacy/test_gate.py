"""The gate: bounded sensitivity, noise, charge, and only then a release; nothing else comes out."""

import dataclasses
from typing import cast

import numpy as np
import pytest
from tests.unit.privacy.proven import (
    events_of,
    every_integer_version,
    every_mechanism,
    every_proof,
    noise_for,
)

from flockwise.errors import BudgetSpent, LedgerError, PrivacyError
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Bounded, Gate, Rows, check_entries
from flockwise.privacy.grid import grid_for, rounded_sensitivity
from flockwise.privacy.ledger import Entry, Ledger, MemoryLedger, read_statement
from flockwise.privacy.mechanisms import Gaussian, Laplace
from flockwise.privacy.messages import decode
from flockwise.privacy.noise import SecureNoise, SimulatedNoise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, 1e-5)
SAMPLES, DIMENSION, CLIP = 8, 3, 1.5
SENSITIVITY = 2 * CLIP / SAMPLES
POINTS = np.random.default_rng(7).normal(size=(SAMPLES, DIMENSION))
ROWS, ZEROS = Rows.of(POINTS, CLIP), Rows.of(POINTS * 0, CLIP)
GRID = grid_for(SENSITIVITY, SAMPLES)
COSTS = [1.0, 2.0, 3.0]


def planned(releases=3, mechanism="gaussian", *, on_grid=True, accountant=None):
    return Plan.fitting(BUDGET, mechanism, releases, accountant=accountant, on_grid=on_grid)


def gate_for(releases=3, **options):
    return Gate(planned(releases), MemoryLedger("anna"), SecureNoise(), **options)


def planned_events(plan, samples=SAMPLES):
    """What the releases of ROWS are."""
    return events_of(plan, [samples] * len(plan), CLIP, DIMENSION)


def rows_at(function):
    """Rows that are a function of the released model."""
    return Rows(function, CLIP, SAMPLES, DIMENSION)


def clipped(points, norm, bound=CLIP):
    lengths = np.linalg.norm(points, 1 if norm == "l1" else 2, axis=1, keepdims=True)
    assert (lengths > bound).any()
    return points * np.minimum(1, bound / lengths)


class NoNoise(SecureNoise):
    """To see what is under the noise."""

    def draw(self, event, number):
        return np.zeros(event.dimension, dtype=np.int64)


class CountingNoise(SecureNoise):
    """Remembers what was drawn, and when."""

    def __init__(self):
        self.draws = []

    def draw(self, event, number):
        self.draws.append(super().draw(event, number))
        return self.draws[-1]


def test_a_release_is_the_clipped_mean_with_noise_on_the_grid():
    gate = gate_for(1)
    release = gate.release(ROWS)
    (event,) = planned_events(planned(1))
    steps = release.vector / GRID
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.abs(release.vector - POINTS.mean(axis=0)).max() < 8 * event.scale  # by chance once in 10¹⁴
    assert decode(release.payload) == (1, pytest.approx(release.vector, rel=0, abs=0))


@every_integer_version
def test_under_the_noise_lies_the_mean_of_the_clipped_rows(kind):
    release = Gate(planned(1, kind.name), MemoryLedger("anna"), NoNoise()).release(ROWS)
    expected = clipped(POINTS, kind.norm).mean(axis=0)
    np.testing.assert_allclose(release.vector, expected, atol=SENSITIVITY * 2**-19, rtol=0)


@every_mechanism
def test_under_simulated_noise_lies_the_mean_of_the_clipped_rows(kind):
    plan, noise = planned(1, kind.name, on_grid=False), SimulatedNoise(0, 0)
    release = Gate(plan, MemoryLedger("anna"), noise).release(ROWS)
    (event,) = planned_events(plan)
    expected = clipped(POINTS, kind.norm).mean(axis=0) + noise.draw(event, 1)
    np.testing.assert_allclose(release.vector, expected, rtol=1e-12)


def test_the_noise_has_the_size_that_the_plan_says():
    """χ² of 400 releases of 3 coordinates, 1200 degrees of freedom: fails by chance once in 10⁹ runs."""
    plan = planned(400)
    gate = Gate(plan, MemoryLedger("anna"), SecureNoise())
    values = np.array([gate.release(ZEROS).vector for _ in plan.multipliers])
    assert np.mean(values**2) == pytest.approx((plan.multipliers[0] * SENSITIVITY) ** 2, rel=0.3)


def test_releases_are_consumed_once_in_order_and_then_there_is_silence():
    uneven = Plan.fitting(BUDGET, "gaussian", COSTS, accountant="zcdp", on_grid=True)
    ledger = MemoryLedger("anna")
    gate = Gate(uneven, ledger, SecureNoise())
    assert gate.epsilon_spent == 0
    for consumed in (1, 2, 3):
        assert not gate.is_spent
        assert gate.release(ROWS).number == consumed == gate.consumed
        assert gate.epsilon_spent == uneven.epsilon_after(consumed)
    assert gate.is_spent
    assert gate.epsilon_spent <= BUDGET.epsilon
    assert tuple(entry.event for entry in ledger.entries) == planned_events(uneven)

    def touched(released):
        raise AssertionError("private data were read for a release that cannot be made")

    with pytest.raises(BudgetSpent, match=r"agent 'anna': all 3 releases .*go on learning"):
        gate.release(rows_at(touched))
    with pytest.raises(BudgetSpent):
        gate.release(Bounded(np.zeros(3), 1.0))
    with pytest.raises(BudgetSpent):
        gate.prepare(ROWS)
    assert gate.consumed == 3


@every_integer_version
def test_the_sensitivity_of_a_vector_includes_its_rounding(kind):
    ledger = MemoryLedger("anna")
    gate = Gate(planned(2, kind.name), ledger, NoNoise())
    vector, grid = np.array([0.123, -4.56, 7.0]), grid_for(0.4, DIMENSION)
    released = gate.release(Bounded(vector, 0.4)).vector
    np.testing.assert_allclose(released, vector, atol=grid / 2, rtol=0)
    gate.release(Bounded(np.zeros(4), 0.4))
    for entry, dimension in zip(ledger.entries, (DIMENSION, 4), strict=True):
        step = grid_for(0.4, dimension)
        assert (entry.event.grid, entry.event.dimension) == (step, dimension)
        assert entry.event.sensitivity == rounded_sensitivity(0.4, dimension, step, kind.norm) > 0.4


@every_mechanism
def test_a_vector_in_a_simulation_is_released_with_the_noise_of_its_event(kind):
    plan = planned(1, kind.name, on_grid=False)
    gate = Gate(plan, MemoryLedger("anna"), SimulatedNoise(1, 2))
    expected = POINTS[0] + SimulatedNoise(1, 2).draw(plan.event(1, 0.4, DIMENSION), 1)
    np.testing.assert_array_equal(gate.release(Bounded(POINTS[0], 0.4)).vector, expected)


@every_proof
@pytest.mark.parametrize("clip", [CLIP * 2, CLIP / 2, CLIP * (1 + 1e-9)])
def test_the_noise_follows_the_clipping_bound(mechanism, on_grid, accountant, clip):
    """Twice the bound is twice the sensitivity, and needs twice the noise for the same cost."""
    plan = planned(2, mechanism, on_grid=on_grid, accountant=accountant)
    ledger = MemoryLedger("anna")
    Gate(plan, ledger, noise_for(plan)).release(Rows.of(POINTS, clip))
    event = ledger.entries[0].event
    assert event.sensitivity == 2 * clip / SAMPLES
    assert event.multiplier >= plan.multipliers[0]
    assert event.scale == pytest.approx(plan.multipliers[0] * event.sensitivity, rel=1e-15)


def test_fewer_rows_get_more_noise():
    """A mean of fewer rows moves more when one is replaced."""
    ledger = MemoryLedger("anna")
    gate = Gate(planned(2), ledger, SecureNoise())
    gate.release(ROWS)
    gate.release(Rows.of(POINTS[1:], CLIP))
    more, fewer = (entry.event for entry in ledger.entries)
    assert (more.sensitivity, fewer.sensitivity) == (2 * CLIP / 8, 2 * CLIP / 7)
    assert fewer.scale == pytest.approx(more.scale * 8 / 7)


@pytest.mark.parametrize("values", [POINTS[1:], POINTS[:, 1:], lambda released: POINTS[1:]])
def test_rows_are_as_many_and_as_long_as_was_said(values):
    """Their number sets the noise before anyone looks at them."""
    gate = gate_for()
    with pytest.raises(PrivacyError, match=r"rows must have shape \(8, 3\), got \([78], [23]\)"):
        gate.release(Rows(values, CLIP, SAMPLES, DIMENSION))
    assert gate.consumed == 0


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (Rows(POINTS, 0.0, SAMPLES, DIMENSION), "clip must be positive"),
        (Rows(POINTS, np.inf, SAMPLES, DIMENSION), "clip must be positive"),
        (Rows(POINTS, CLIP, 0, DIMENSION), "samples must be positive"),
        (Rows(POINTS, CLIP, SAMPLES, 0), "dimension must be at least 1"),
        (Bounded(POINTS[0], 0.0), "sensitivity must be positive"),
        (Bounded(POINTS[0], np.nan), "sensitivity must be positive"),
        (Bounded(POINTS, 1.0), "vector must have 1 dimension"),
        (Bounded([], 1.0), "dimension must be positive"),
    ],
)
def test_what_has_no_bounded_sensitivity_is_refused_and_costs_nothing(value, complaint):
    gate = gate_for()
    with pytest.raises(PrivacyError, match=complaint):
        gate.release(value)
    assert gate.consumed == 0
    assert gate.release(ROWS).number == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_input_that_is_not_finite_is_refused_with_the_same_words_whatever_it_is(bad):
    gate = gate_for()
    points = POINTS.copy()
    points[3, 1] = bad
    for release in (
        lambda: gate.release(Rows.of(points, CLIP)),
        lambda: gate.release(Rows(points, CLIP, SAMPLES, DIMENSION)),
    ):
        with pytest.raises(PrivacyError) as caught:
            release()
        assert str(caught.value) == (
            "rows must be finite: a value is infinite or not a number; clean the data first"
        )
    with pytest.raises(PrivacyError, match="vector must be finite"):
        gate.release(Bounded(points[3], 1.0))
    assert gate.consumed == 0


def test_rows_and_post_processing_get_the_last_released_model_and_no_other():
    seen = []

    def gradients(released):
        seen.append(("rows", released))
        return POINTS

    def post(noisy, released):
        seen.append(("post", released))
        return released - 0.1 * noisy

    start = np.ones(DIMENSION)
    gate = gate_for(2, start=start)
    first = gate.release(rows_at(gradients), post)
    second = gate.release(rows_at(gradients), post)
    for (_, model), expected in zip(seen, [start, start, first.vector, first.vector], strict=True):
        np.testing.assert_array_equal(model, expected)
        with pytest.raises(ValueError, match="read-only"):
            model[0] = 5.0
    np.testing.assert_array_equal(gate.released, second.vector)


def test_there_is_no_way_to_name_another_base():
    """An agent's own (finished) model as the base of a release would carry its data outside without noise."""
    own_model = np.full(DIMENSION, 9.0)
    gate = gate_for(start=np.zeros(DIMENSION))
    with pytest.raises(AttributeError, match="no setter"):
        gate.released = own_model  # type: ignore[misc]
    with pytest.raises(TypeError, match="unexpected keyword"):
        gate.release(ROWS, base=own_model)  # type: ignore[call-arg]


def test_there_is_no_way_to_name_another_event():
    """What a release costs is the plan's to say."""
    with pytest.raises(TypeError, match="unexpected keyword"):
        gate_for().release(ROWS, event=Gaussian(SENSITIVITY, 1e-9, GRID))  # type: ignore[call-arg]


def test_without_a_start_there_is_no_model_before_the_first_release():
    gate = gate_for(1)
    assert gate.released is None
    assert gate.last_release() is None
    release = gate.release(rows_at(lambda released: POINTS if released is None else []))
    assert gate.last_release() is release


@pytest.mark.parametrize("fault", ["raises", "not finite", "not a vector"])
def test_a_release_whose_noisy_value_was_seen_is_spent_whatever_happens_then(fault):
    """Otherwise post-processing could look at one noisy value after the other for the price of one."""
    ledger = MemoryLedger("anna")
    gate = Gate(planned(2), ledger, SecureNoise())

    def post(noisy, released):
        if fault == "raises":
            raise RuntimeError("no such luck")
        return noisy * np.nan if fault == "not finite" else noisy[None]

    with pytest.raises(RuntimeError if fault == "raises" else PrivacyError):
        gate.release(ROWS, post)
    assert gate.consumed == 1
    assert ledger.entries[0].payload is None
    assert gate.last_release() is None
    assert gate.release(ROWS).number == 2
    with pytest.raises(BudgetSpent):
        gate.release(ROWS)


def test_useless_post_processing_is_told_what_to_return():
    with pytest.raises(PrivacyError) as caught:
        gate_for().release(ROWS, lambda noisy, released: noisy * np.nan)
    assert str(caught.value) == (
        "agent 'anna': post-processing must return a vector of finite numbers, got shape (3,); "
        "nothing was sent, and release 1 is spent all the same"
    )


def test_a_ledger_has_one_gate():
    """Two would draw noise under the same number."""
    ledger = MemoryLedger("anna")
    first = Gate(planned(3), ledger, SecureNoise())
    with pytest.raises(LedgerError, match=r"agent 'anna': its ledger has a gate already"):
        Gate(planned(3), ledger, SecureNoise())
    assert first.release(ROWS).number == 1


def test_a_gate_that_was_refused_leaves_the_ledger_to_another():
    ledger = MemoryLedger("anna")
    with pytest.raises(PrivacyError):
        Gate(planned(3), ledger, SecureNoise(), start=[[0.0]])
    assert Gate(planned(2), ledger, SecureNoise()).consumed == 0


def test_what_is_spent_is_what_the_ledger_says():
    """Entries that came into the ledger without the gate count like its own."""
    uneven = Plan.fitting(BUDGET, "gaussian", COSTS, accountant="zcdp", on_grid=True)
    ledger, events = MemoryLedger("anna"), planned_events(uneven)
    gate = Gate(uneven, ledger, SecureNoise())
    ledger.record(Entry.now(1, events[0], None))
    assert gate.epsilon_spent == uneven.epsilon_after(1)
    assert gate.release(ROWS).number == 2
    assert tuple(entry.event for entry in ledger.entries) == events[:2]
    ledger.record(Entry.now(3, events[2], None))
    assert gate.epsilon_spent == pytest.approx(BUDGET.epsilon, rel=0.01)
    with pytest.raises(BudgetSpent):
        gate.release(ROWS)


@pytest.mark.parametrize(
    "again",
    [
        lambda gate, post: gate.release(ROWS, post),
        lambda gate, post: gate.release(Bounded(POINTS[0], SENSITIVITY), post),
        lambda gate, post: gate.prepare(ROWS),
    ],
    ids=["rows", "vector", "prepare"],
)
def test_post_processing_cannot_release_again(again):
    """It would see two noisy values for the price of one."""
    gate, seen = gate_for(3), []

    def post(noisy, released):
        seen.append(noisy)
        with pytest.raises(
            PrivacyError, match=r"agent 'anna': release\(\) was called inside another release"
        ):
            again(gate, post)
        return noisy

    for number in (1, 2):
        assert gate.release(ROWS, post).number == number == len(seen) == gate.consumed


def test_rows_cannot_release_either():
    """The multiplier that was taken for them would be spent twice."""
    ledger = MemoryLedger("anna")
    uneven = Plan.fitting(BUDGET, "gaussian", [3.0, 1.0], accountant="zcdp", on_grid=True)
    gate = Gate(uneven, ledger, SecureNoise())

    def rows(released):
        gate.release(ROWS)
        return POINTS

    with pytest.raises(PrivacyError, match=r"release\(\) was called inside another release"):
        gate.release(rows_at(rows))
    assert gate.consumed == 0  # no noisy value was made
    for _ in uneven.multipliers:
        gate.release(ROWS)
    assert tuple(entry.event for entry in ledger.entries) == planned_events(uneven)


@pytest.mark.parametrize("start", [[np.nan], [[0.0]], []])
def test_a_gate_that_cannot_start_is_granted_nothing(start):
    """A plan is granted for ever: one that was never used would be lost."""
    ledger = MemoryLedger("anna")
    with pytest.raises(PrivacyError, match="start must"):
        Gate(planned(2), ledger, SecureNoise(), start=start)
    assert ledger.plan is None


def test_noise_that_was_drawn_for_another_number_is_not_used():
    plan = planned(2, on_grid=False)
    ledger, events = MemoryLedger("anna"), planned_events(plan)
    gate = Gate(plan, ledger, SimulatedNoise(0, 0))
    gate.prepare(ROWS)
    ledger.record(Entry.now(1, events[0], None))
    expected = SimulatedNoise(0, 0).draw(events[1], 2)
    np.testing.assert_array_equal(gate.release(ZEROS).vector, expected)


def test_noise_is_drawn_ahead_and_used_once():
    noise = CountingNoise()
    gate = Gate(planned(3), MemoryLedger("anna"), noise)
    gate.prepare(ROWS)
    assert len(noise.draws) == 1
    first = gate.release(ZEROS)
    assert len(noise.draws) == 1
    np.testing.assert_array_equal(first.vector, noise.draws[0] * GRID)
    second = gate.release(ZEROS)
    assert len(noise.draws) == 2
    np.testing.assert_array_equal(second.vector, noise.draws[1] * GRID)


@pytest.mark.parametrize(
    "other",
    [
        Rows(POINTS, CLIP, SAMPLES, DIMENSION + 1),
        Rows(POINTS, CLIP, SAMPLES + 1, DIMENSION),
        Rows(POINTS, 2 * CLIP, SAMPLES, DIMENSION),
        Bounded(POINTS[0], SENSITIVITY),
    ],
    ids=["dimension", "samples", "clip", "vector"],
)
def test_noise_that_was_drawn_for_another_value_is_not_used(other):
    noise = CountingNoise()
    gate = Gate(planned(3), MemoryLedger("anna"), noise)
    gate.prepare(other)
    release = gate.release(ZEROS)
    assert len(noise.draws) == 2
    np.testing.assert_array_equal(release.vector, noise.draws[1] * GRID)


def test_a_real_agent_cannot_use_simulated_noise(tmp_path):
    with (
        Ledger.create(tmp_path, "anna") as ledger,
        pytest.raises(
            PrivacyError, match=r"agent 'anna': a real agent .*cannot use SimulatedNoise.*use SecureNoise"
        ),
    ):
        Gate(planned(1, on_grid=False), ledger, SimulatedNoise(0, 0))
    assert read_statement(tmp_path).account.plan is None


@every_mechanism
def test_real_valued_plans_and_secure_noise_do_not_meet(kind):
    ledger = MemoryLedger("anna")
    with pytest.raises(PrivacyError, match="drawn on an integer grid and the event has none"):
        Gate(planned(1, kind.name, on_grid=False), ledger, SecureNoise())
    assert ledger.plan is None
    if kind.grid_accountants:
        with pytest.raises(PrivacyError, match="plan without a grid"):
            Gate(planned(1, kind.name), ledger, SimulatedNoise(0, 0))
        assert ledger.plan is None


@pytest.mark.parametrize("accountant", ["gdp", "remark", "pld"])
def test_integer_normal_noise_is_accounted_by_zcdp_alone(accountant):
    with pytest.raises(PrivacyError, match="not proven for gaussian noise on a grid; use zcdp"):
        planned(1, accountant=accountant)
    with pytest.raises(PrivacyError, match="not proven for gaussian noise on a grid; use zcdp"):
        Plan(BUDGET, "gaussian", accountant, planned(1).multipliers, on_grid=True)
    assert planned(1).accountant == "zcdp"


def test_after_a_restart_the_same_bytes_come_again_and_nothing_is_charged(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(planned(2), ledger, SecureNoise(), start=np.zeros(DIMENSION))
        first = gate.release(ROWS, lambda noisy, released: released - noisy)
    with Ledger.open(tmp_path, "anna") as ledger:
        again = Gate(planned(2), ledger, SecureNoise(), start=np.zeros(DIMENSION))
        last = again.last_release()
        assert last is not None
        assert (last.number, last.payload) == (1, first.payload)
        np.testing.assert_array_equal(again.released, first.vector)
        assert again.consumed == 1
        second = again.release(ROWS, lambda noisy, released: released - noisy)
        assert second.number == 2
    with Ledger.open(tmp_path, "anna") as ledger:
        assert ledger.plan is not None
        again = Gate(Plan.from_json(ledger.plan), ledger, SecureNoise())
        last = again.last_release()
        assert last is not None
        assert last.payload == second.payload
        with pytest.raises(BudgetSpent):
            again.release(ROWS)


def test_another_plan_after_a_restart_is_refused(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        Gate(planned(2), ledger, SecureNoise()).release(ROWS)
    with Ledger.open(tmp_path, "anna") as ledger:
        for other in (
            planned(3),
            planned(2, "laplace"),
            Plan.fitting(BUDGET, "gaussian", [1, 2], on_grid=True),
        ):
            with pytest.raises(LedgerError, match="never replaced"):
                Gate(other, ledger, SecureNoise())
        assert Gate(planned(2), ledger, SecureNoise()).consumed == 1


UNEVEN = Plan.fitting(BUDGET, "gaussian", COSTS, on_grid=True)
EVENTS = planned_events(UNEVEN)
# What a ledger may hold that UNEVEN did not lead to.
FOREIGN = {
    "less noise": [dataclasses.replace(EVENTS[0], scale=EVENTS[0].scale * (1 - 1e-12))],
    "more noise": [dataclasses.replace(EVENTS[0], scale=EVENTS[0].scale * (1 + 1e-12))],
    "a larger sensitivity": [dataclasses.replace(EVENTS[0], sensitivity=2 * SENSITIVITY)],
    "another mechanism": [Laplace(SENSITIVITY, EVENTS[0].scale, GRID, DIMENSION)],
    "no grid": [Gaussian(SENSITIVITY, EVENTS[0].scale, None, DIMENSION)],
    "the releases of another plan": planned_events(planned(3)),
    "releases in another order": [EVENTS[0], EVENTS[2], EVENTS[1]],
    "one release too many": [*EVENTS, EVENTS[2]],
}


@pytest.mark.parametrize("events", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_ledger_whose_entries_are_not_those_of_its_plan_is_refused(tmp_path, events):
    """Entries that are sealed as they should be, but spend something else than planned."""
    with Ledger.create(tmp_path, "anna") as ledger:
        ledger.grant(UNEVEN.to_json())
        for number, event in enumerate(events, start=1):
            ledger.record(Entry.now(number, event, None))
    with Ledger.open(tmp_path, "anna") as ledger:
        with pytest.raises(
            LedgerError, match=r"agent 'anna': entry \d in its ledger is not a release of its plan"
        ):
            Gate(UNEVEN, ledger, SecureNoise())
        with pytest.raises(LedgerError, match="is not a release of its plan"):
            check_entries(UNEVEN, "anna", ledger.entries)


def test_a_ledger_whose_entries_are_those_of_its_plan_is_accepted():
    """Whatever the sensitivities and dimensions were."""
    ledger = MemoryLedger("anna")
    ledger.grant(UNEVEN.to_json())
    for number, (samples, dimension) in enumerate([(8, 3), (20, 3), (5, 40)], start=1):
        event = Rows(POINTS, CLIP, samples, dimension).event(UNEVEN, number)
        ledger.record(Entry.now(number, event, None))
    gate = Gate(UNEVEN, ledger, SecureNoise())
    assert gate.is_spent
    assert gate.epsilon_spent == UNEVEN.epsilon_after(3)


def test_nothing_is_released_when_the_ledger_cannot_write(tmp_path):
    noise = CountingNoise()
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(planned(2), ledger, noise)
        first = gate.release(ROWS)
        ledger._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(LedgerError, match="nothing was sent"):
            gate.release(ROWS)
        assert gate.last_release() is first
        drawn = len(noise.draws)
        for again in (gate.prepare, gate.release):
            with pytest.raises(PrivacyError, match="last charge could not be written"):
                again(ROWS)  # or post-processing would see noisy values that nobody charges
        assert len(noise.draws) == drawn
    with Ledger.open(tmp_path, "anna") as ledger:
        again = Gate(planned(2), ledger, noise)
        assert again.consumed == 1
        assert again.release(ROWS).number == 2


def test_a_huge_message_makes_no_release_leak_the_data():
    """Rows that overflow count as 0: a refusal, or silence, would tell which samples overflow."""

    def rows(model):
        return [[np.inf, 1.0, 0.0], [0.5, np.nan, 0.0], *[[0.0] * DIMENSION] * (SAMPLES - 2)]

    noiseless = Gate(planned(1), MemoryLedger("anna"), NoNoise(), start=np.zeros(DIMENSION))
    np.testing.assert_array_equal(noiseless.release(rows_at(rows)).vector, 0.0)
    with pytest.raises(PrivacyError, match="rows must be finite"):
        gate_for(1).release(Rows(rows(None), CLIP, SAMPLES, DIMENSION))


def test_type_checkers_refuse_a_subclass_of_the_gate():
    """One that took its events from elsewhere would be a gate by its type."""
    assert getattr(Gate, "__final__", False)


def test_sizes_may_be_numbers_of_numpy(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(Plan.fitting(Budget(1.0, 1e-5), "gaussian", 1, on_grid=True), ledger, SecureNoise())
        samples, dimension = (cast(int, np.int64(size)) for size in (4, 3))
        rows = Rows(lambda model: np.ones((4, 3)), 1.0, samples, dimension)
        assert gate.release(rows).vector.shape == (3,)
