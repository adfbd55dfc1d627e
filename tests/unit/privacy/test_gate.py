"""The gate: bounded sensitivity, noise, charge, and only then a release; nothing else comes out."""

import dataclasses

import numpy as np
import pytest

from flockwise.errors import BudgetSpent, LedgerError, PrivacyError
from flockwise.privacy.budget import Budget
from flockwise.privacy.entries import Entry
from flockwise.privacy.filters import GdpFilter, PureFilter, ZcdpFilter
from flockwise.privacy.gate import Gate
from flockwise.privacy.grid import grid_for_mean, grid_for_vector, rounded_sensitivity
from flockwise.privacy.ledger import Ledger, MemoryLedger
from flockwise.privacy.ledger_file import read_statement
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace, Mechanism
from flockwise.privacy.messages import decode
from flockwise.privacy.noise import SecureNoise, SimulatedNoise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, 1e-5)
SAMPLES, DIMENSION, CLIP = 8, 3, 1.5
SENSITIVITY = 2 * CLIP / SAMPLES
POINTS = np.random.default_rng(7).normal(size=(SAMPLES, DIMENSION))
GRID = grid_for_mean(SENSITIVITY, SAMPLES)
ON_GRID = Gaussian(SENSITIVITY, 1.0, GRID)


def planned(updates=3, event: Mechanism = ON_GRID, accountant="zcdp"):
    return Plan.fitting(BUDGET, event, accountant=accountant, updates=updates)


def gate_for(updates=3, event=ON_GRID, accountant="zcdp", **options):
    return Gate(planned(updates, event, accountant), MemoryLedger("anna"), SecureNoise(), **options)


class NoNoise(SecureNoise):
    """To see what is under the noise."""

    def draw(self, event, dimension, number):
        return np.zeros(dimension, dtype=np.int64)


class CountingNoise(SecureNoise):
    """Remembers what was drawn, and when."""

    def __init__(self):
        self.draws = []

    def draw(self, event, dimension, number):
        self.draws.append(super().draw(event, dimension, number))
        return self.draws[-1]


def test_a_release_is_the_clipped_mean_with_noise_on_the_grid():
    gate = gate_for(1)
    release = gate.release_mean(POINTS, CLIP)
    event = planned(1).events[0]
    steps = release.vector / GRID
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.abs(release.vector - POINTS.mean(axis=0)).max() < 8 * event.scale  # by chance once in 10¹⁴
    assert decode(release.payload) == (1, pytest.approx(release.vector, rel=0, abs=0))


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_under_the_noise_lies_the_mean_of_the_clipped_points(kind):
    event = dataclasses.replace(kind(SENSITIVITY, 1.0), grid=GRID)
    plan = planned(1, event, "basic" if kind is Laplace else "zcdp")
    release = Gate(plan, MemoryLedger("anna"), NoNoise()).release_mean(POINTS, CLIP)
    lengths = np.linalg.norm(POINTS, 1 if kind is Laplace else 2, axis=1, keepdims=True)
    assert (lengths > CLIP).any()
    expected = (POINTS * np.minimum(1, CLIP / lengths)).mean(axis=0)
    np.testing.assert_allclose(release.vector, expected, atol=SENSITIVITY * 2**-19, rtol=0)


def test_under_simulated_noise_too():
    plan = planned(1, Gaussian(SENSITIVITY, 1.0), "gdp")
    noise = SimulatedNoise(0, 0)
    release = Gate(plan, MemoryLedger("anna"), noise).release_mean(POINTS, CLIP)
    lengths = np.linalg.norm(POINTS, axis=1, keepdims=True)
    mean = (POINTS * np.minimum(1, CLIP / lengths)).mean(axis=0)
    np.testing.assert_allclose(release.vector, mean + noise.draw(plan.events[0], DIMENSION, 1), rtol=1e-12)


def test_the_noise_has_the_size_that_the_plan_says():
    """χ² of 400 releases of 3 coordinates, 1200 degrees of freedom: fails by chance once in 10⁹ runs."""
    plan = planned(400)
    gate = Gate(plan, MemoryLedger("anna"), SecureNoise())
    values = np.array([gate.release_mean(POINTS * 0, CLIP).vector for _ in plan.events])
    assert np.mean(values**2) == pytest.approx(plan.events[0].scale ** 2, rel=0.3)


def test_events_are_consumed_once_in_order_and_then_there_is_silence():
    uneven = Plan.fitting(BUDGET, ON_GRID, accountant="zcdp", costs=[1.0, 2.0, 3.0])
    ledger = MemoryLedger("anna")
    gate = Gate(uneven, ledger, SecureNoise())
    assert gate.epsilon_spent == 0
    for consumed in (1, 2, 3):
        assert gate.release_mean(POINTS, CLIP).number == consumed == gate.consumed
        assert gate.epsilon_spent == uneven.epsilon_spent(consumed)
    assert gate.epsilon_spent <= BUDGET.epsilon
    assert tuple(entry.event for entry in ledger.entries) == uneven.events

    def touched(released):
        raise AssertionError("private data were read for a release that cannot be made")

    with pytest.raises(BudgetSpent, match=r"agent 'anna': all 3 events .*go on learning"):
        gate.release_mean(touched, CLIP)
    with pytest.raises(BudgetSpent):
        gate.release_vector(np.zeros(3), 1.0)
    with pytest.raises(BudgetSpent):
        gate.prepare(DIMENSION)
    assert gate.consumed == 3


def test_release_vector_includes_rounding_in_the_sensitivity():
    grid = grid_for_vector(0.4, DIMENSION)
    event = Gaussian(rounded_sensitivity(0.4, DIMENSION, grid, "l2"), 1.0, grid)
    gate = Gate(planned(2, event), MemoryLedger("anna"), NoNoise())
    vector = np.array([0.123, -4.56, 7.0])
    np.testing.assert_allclose(gate.release_vector(vector, 0.4).vector, vector, atol=grid / 2, rtol=0)
    with pytest.raises(PrivacyError, match="plan for the release that is made"):
        gate.release_vector(vector, event.sensitivity)
    with pytest.raises(PrivacyError, match="rounded in 4 coordinates"):
        gate.release_vector(np.zeros(4), 0.4)
    assert gate.consumed == 1


def test_release_vector_in_a_simulation():
    plan = planned(1, KNorm(0.4, 1.0, dimension=DIMENSION), "basic")
    gate = Gate(plan, MemoryLedger("anna"), SimulatedNoise(1, 2))
    expected = POINTS[0] + SimulatedNoise(1, 2).draw(plan.events[0], DIMENSION, 1)
    np.testing.assert_array_equal(gate.release_vector(POINTS[0], 0.4).vector, expected)


@pytest.mark.parametrize("clip", [CLIP * 2, CLIP / 2, CLIP * (1 + 1e-9)])
def test_another_sensitivity_than_the_planned_one_is_refused(clip):
    gate = gate_for()
    with pytest.raises(PrivacyError, match=r"agent 'anna': event 1 is accounted for sensitivity=.*2·clip/m"):
        gate.release_mean(POINTS, clip)
    assert gate.consumed == 0


def test_another_number_of_points_than_the_planned_one_is_refused():
    """A mean of fewer points moves more when one is replaced."""
    with pytest.raises(PrivacyError, match="m=7"):
        gate_for().release_mean(POINTS[1:], CLIP)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_input_that_is_not_finite_is_refused_with_the_same_words_whatever_it_is(bad):
    gate = gate_for()
    points = POINTS.copy()
    points[3, 1] = bad
    with pytest.raises(PrivacyError) as caught:
        gate.release_mean(points, CLIP)
    assert str(caught.value) == (
        "points must be finite: a value is infinite or not a number; clean the data first"
    )
    with pytest.raises(PrivacyError, match="vector must be finite"):
        gate.release_vector(points[3], 1.0)
    assert gate.consumed == 0


def test_points_and_post_processing_get_the_last_released_model_and_no_other():
    seen = []

    def gradients(released):
        seen.append(("points", released))
        return POINTS

    def post(noisy, released):
        seen.append(("post", released))
        return released - 0.1 * noisy

    start = np.ones(DIMENSION)
    gate = gate_for(2, start=start)
    first = gate.release_mean(gradients, CLIP, post)
    second = gate.release_mean(gradients, CLIP, post)
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
        gate.release_mean(POINTS, CLIP, base=own_model)  # type: ignore[call-arg]


def test_without_a_start_there_is_no_model_before_the_first_release():
    gate = gate_for(1)
    assert gate.released is None
    assert gate.last_release() is None
    release = gate.release_mean(lambda released: POINTS if released is None else [], CLIP)
    assert gate.last_release() is release


@pytest.mark.parametrize("fault", ["raises", "not finite", "not a vector"])
def test_an_event_whose_noisy_value_was_seen_is_spent_whatever_happens_then(fault):
    """Otherwise post-processing could look at one noisy value after the other for the price of one."""
    ledger = MemoryLedger("anna")
    gate = Gate(planned(2), ledger, SecureNoise())

    def post(noisy, released):
        if fault == "raises":
            raise RuntimeError("no such luck")
        return noisy * np.nan if fault == "not finite" else noisy[None]

    with pytest.raises(RuntimeError if fault == "raises" else PrivacyError):
        gate.release_mean(POINTS, CLIP, post)
    assert gate.consumed == 1
    assert ledger.entries[0].payload is None
    assert gate.last_release() is None
    assert gate.release_mean(POINTS, CLIP).number == 2
    with pytest.raises(BudgetSpent):
        gate.release_mean(POINTS, CLIP)


def test_useless_post_processing_is_told_what_to_return():
    with pytest.raises(PrivacyError) as caught:
        gate_for().release_mean(POINTS, CLIP, lambda noisy, released: noisy * np.nan)
    assert str(caught.value) == (
        "agent 'anna': post-processing must return a vector of finite numbers, got shape (3,); "
        "nothing was sent, and event 1 is spent all the same"
    )


@pytest.mark.parametrize("policy", [planned(3), ZcdpFilter(BUDGET)], ids=["plan", "filter"])
@pytest.mark.parametrize("again", ["new", "resumed"])
def test_a_ledger_has_one_gate(policy, again):
    """With a filter each would spend the whole budget; with a plan both would draw under the same number."""
    ledger = MemoryLedger("anna")
    first = Gate(policy, ledger, SecureNoise())
    with pytest.raises(LedgerError, match=r"agent 'anna': its ledger has a gate already"):
        Gate(policy, ledger, SecureNoise()) if again == "new" else Gate.resume(ledger, SecureNoise())
    event = ON_GRID.with_multiplier(30.0) if isinstance(policy, ZcdpFilter) else None
    assert first.release_mean(POINTS, CLIP, event=event).number == 1


def test_a_gate_that_was_refused_leaves_the_ledger_to_another():
    ledger = MemoryLedger("anna")
    with pytest.raises(PrivacyError):
        Gate(planned(3), ledger, SecureNoise(), start=[[0.0]])
    assert Gate(planned(2), ledger, SecureNoise()).consumed == 0


def test_what_is_spent_is_what_the_ledger_says():
    """Entries that came into the ledger without the gate count like its own."""
    event = dataclasses.replace(ON_GRID, scale=1.001 * planned(2).events[0].scale)
    ledger = MemoryLedger("anna")
    gate = Gate(ZcdpFilter(BUDGET), ledger, SecureNoise())
    gate.release_mean(POINTS, CLIP, event=event)
    ledger.record(Entry.now(2, event, None))
    assert gate.epsilon_spent == pytest.approx(BUDGET.epsilon, rel=0.01)
    with pytest.raises(BudgetSpent):
        gate.release_mean(POINTS, CLIP, event=event)
    ledger.record(Entry.now(3, event, None))
    with pytest.raises(LedgerError, match="more than its filter allows"):
        gate.release_mean(POINTS, CLIP, event=event)


def test_a_plan_follows_the_ledger_too():
    ledger = MemoryLedger("anna")
    uneven = Plan.fitting(BUDGET, ON_GRID, accountant="zcdp", costs=[1.0, 2.0, 3.0])
    gate = Gate(uneven, ledger, SecureNoise())
    ledger.record(Entry.now(1, uneven.events[0], None))
    gate.release_mean(POINTS, CLIP)
    assert tuple(entry.event for entry in ledger.entries) == uneven.events[:2]
    ledger.record(Entry.now(3, uneven.events[0], None))
    with pytest.raises(LedgerError, match="the 3 events in its ledger are not the first of its plan"):
        gate.release_mean(POINTS, CLIP)


@pytest.mark.parametrize(
    "again",
    [
        lambda gate, post: gate.release_mean(POINTS, CLIP, post),
        lambda gate, post: gate.release_vector(POINTS[0], SENSITIVITY, post),
        lambda gate, post: gate.prepare(DIMENSION),
    ],
    ids=["release_mean", "release_vector", "prepare"],
)
def test_post_processing_cannot_release_again(again):
    """It would see two noisy values for the price of one."""
    gate, seen = gate_for(3), []

    def post(noisy, released):
        seen.append(noisy)
        with pytest.raises(PrivacyError, match="agent 'anna': a release is being made"):
            again(gate, post)
        return noisy

    for number in (1, 2):
        assert gate.release_mean(POINTS, CLIP, post).number == number == len(seen) == gate.consumed


def test_points_cannot_release_either():
    """The event that was taken for them would be spent twice."""
    ledger = MemoryLedger("anna")
    uneven = Plan.fitting(BUDGET, ON_GRID, accountant="zcdp", costs=[3.0, 1.0])
    gate = Gate(uneven, ledger, SecureNoise())

    def rows(released):
        gate.release_mean(POINTS, CLIP)
        return POINTS

    with pytest.raises(PrivacyError, match="a release is being made"):
        gate.release_mean(rows, CLIP)
    assert gate.consumed == 0  # no noisy value was made
    for _ in uneven.events:
        gate.release_mean(POINTS, CLIP)
    assert tuple(entry.event for entry in ledger.entries) == uneven.events


@pytest.mark.parametrize("start", [[np.nan], [[0.0]], []])
def test_a_gate_that_cannot_start_is_granted_nothing(start):
    """A plan is granted for ever: one that was never used would be lost."""
    ledger = MemoryLedger("anna")
    with pytest.raises(PrivacyError, match="start must"):
        Gate(planned(2), ledger, SecureNoise(), start=start)
    assert ledger.policy is None


def test_noise_that_was_drawn_for_another_number_is_not_used():
    plan = planned(2, Gaussian(SENSITIVITY, 1.0), "gdp")
    ledger = MemoryLedger("anna")
    gate = Gate(plan, ledger, SimulatedNoise(0, 0))
    gate.prepare(DIMENSION)
    ledger.record(Entry.now(1, plan.events[0], None))
    expected = SimulatedNoise(0, 0).draw(plan.events[1], DIMENSION, 2)
    np.testing.assert_array_equal(gate.release_mean(POINTS * 0, CLIP).vector, expected)


def test_noise_is_drawn_ahead_and_used_once():
    noise = CountingNoise()
    gate = Gate(planned(3), MemoryLedger("anna"), noise)
    gate.prepare(DIMENSION)
    assert len(noise.draws) == 1
    first = gate.release_mean(POINTS * 0, CLIP)
    assert len(noise.draws) == 1
    np.testing.assert_array_equal(first.vector, noise.draws[0] * GRID)
    second = gate.release_mean(POINTS * 0, CLIP)
    assert len(noise.draws) == 2
    np.testing.assert_array_equal(second.vector, noise.draws[1] * GRID)
    gate.prepare(DIMENSION + 1)  # not for the release that comes
    gate.release_mean(POINTS, CLIP)
    assert len(noise.draws) == 4


def test_a_real_agent_cannot_use_simulated_noise(tmp_path):
    plan = planned(1, Gaussian(SENSITIVITY, 1.0), "gdp")
    with (
        Ledger.create(tmp_path, "anna") as ledger,
        pytest.raises(
            PrivacyError, match=r"agent 'anna': a real agent .*cannot use SimulatedNoise.*use SecureNoise"
        ),
    ):
        Gate(plan, ledger, SimulatedNoise(0, 0))
    assert read_statement(tmp_path).account.policy is None


def test_real_valued_events_and_secure_noise_do_not_meet():
    with pytest.raises(PrivacyError, match="drawn on an integer grid and the event has none"):
        gate_for(1, Gaussian(SENSITIVITY, 1.0), "gdp")
    with pytest.raises(PrivacyError, match="plan without a grid"):
        Gate(planned(1), MemoryLedger("anna"), SimulatedNoise(0, 0))


@pytest.mark.parametrize("accountant", ["gdp", "remark", "pld"])
def test_integer_normal_noise_is_accounted_by_zcdp_alone(accountant):
    with pytest.raises(PrivacyError):
        planned(1, ON_GRID, accountant)
    with pytest.raises(PrivacyError):
        Plan(BUDGET, accountant, planned(1).events)


def test_after_a_restart_the_same_bytes_come_again_and_nothing_is_charged(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(planned(2), ledger, SecureNoise(), start=np.zeros(DIMENSION))
        first = gate.release_mean(POINTS, CLIP, lambda noisy, released: released - noisy)
    with Ledger.open(tmp_path, "anna") as ledger:
        again = Gate.resume(ledger, SecureNoise(), start=np.zeros(DIMENSION))
        last = again.last_release()
        assert last is not None
        assert (last.number, last.payload) == (1, first.payload)
        np.testing.assert_array_equal(again.released, first.vector)
        assert again.consumed == 1
        second = again.release_mean(POINTS, CLIP, lambda noisy, released: released - noisy)
        assert second.number == 2
    with Ledger.open(tmp_path, "anna") as ledger:
        again = Gate.resume(ledger, SecureNoise())
        last = again.last_release()
        assert last is not None
        assert last.payload == second.payload
        with pytest.raises(BudgetSpent):
            again.release_mean(POINTS, CLIP)


def test_another_plan_after_a_restart_is_refused(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        with pytest.raises(LedgerError, match="holds no plan yet"):
            Gate.resume(ledger, SecureNoise())
        Gate(planned(2), ledger, SecureNoise()).release_mean(POINTS, CLIP)
    with Ledger.open(tmp_path, "anna") as ledger:
        with pytest.raises(LedgerError, match="never replaced"):
            Gate(planned(3), ledger, SecureNoise())
        assert Gate(planned(2), ledger, SecureNoise()).consumed == 1


def test_what_a_plan_cannot_have_led_to_is_refused(tmp_path):
    """Entries that are sealed as they should be, but spend something else than planned."""
    ledger = MemoryLedger("anna")
    gate = Gate(planned(2), ledger, SecureNoise())
    gate.release_mean(POINTS, CLIP)
    ledger._entries[0] = dataclasses.replace(ledger._entries[0], event=planned(5).events[0])
    with pytest.raises(LedgerError, match="not the first of its plan"):
        Gate.resume(ledger, SecureNoise())


def test_nothing_is_released_when_the_ledger_cannot_write(tmp_path):
    noise = CountingNoise()
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(planned(2), ledger, noise)
        first = gate.release_mean(POINTS, CLIP)
        ledger._file._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(LedgerError, match="nothing was sent"):
            gate.release_mean(POINTS, CLIP)
        assert gate.last_release() is first
        drawn = len(noise.draws)
        for again in (gate.prepare, lambda dimension: gate.release_mean(POINTS, CLIP)):
            with pytest.raises(PrivacyError, match="last charge could not be written"):
                again(DIMENSION)  # or post-processing would see noisy values that nobody charges
        assert len(noise.draws) == drawn
    with Ledger.open(tmp_path, "anna") as ledger:
        again = Gate.resume(ledger, noise)
        assert again.consumed == 1
        assert again.release_mean(POINTS, CLIP).number == 2


def test_a_filter_is_spent_as_it_goes_and_remembered(tmp_path):
    limit = ZcdpFilter(BUDGET)
    event = dataclasses.replace(ON_GRID, scale=planned(2).events[0].scale)
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(limit, ledger, SecureNoise())
        with pytest.raises(PrivacyError, match="say which event to spend"):
            gate.release_mean(POINTS, CLIP)
        gate.prepare(DIMENSION, event=event)
        gate.release_mean(POINTS, CLIP, event=event)
        assert 0 < gate.epsilon_spent < BUDGET.epsilon
        with pytest.raises(BudgetSpent, match="no room"):
            gate.release_mean(POINTS, CLIP, event=event.with_multiplier(event.multiplier / 2))
        assert gate.consumed == 1
    assert limit.events == ()  # the gate keeps charges of its own
    with Ledger.open(tmp_path, "anna") as ledger:
        gate = Gate.resume(ledger, SecureNoise())
        gate.release_mean(POINTS, CLIP, event=event.with_multiplier(event.multiplier * 1.01))
        with pytest.raises(BudgetSpent):
            gate.release_mean(POINTS, CLIP, event=event)
        assert gate.epsilon_spent <= BUDGET.epsilon
    with Ledger.open(tmp_path, "anna") as ledger, pytest.raises(LedgerError, match="never replaced"):
        Gate(ZcdpFilter(Budget(2.0, 1e-5)), ledger, SecureNoise())


def test_a_filter_brings_no_charges_of_its_own():
    limit = PureFilter(BUDGET, [Laplace(1.0, 10.0)])
    with pytest.raises(PrivacyError, match="1 charges of its own"):
        Gate(limit, MemoryLedger("anna"), SimulatedNoise(0, 0))


def test_a_plan_names_its_events_itself():
    with pytest.raises(PrivacyError, match="leave event out"):
        gate_for().release_mean(POINTS, CLIP, event=ON_GRID)


def test_a_gdp_filter_refuses_integer_noise():
    with pytest.raises(PrivacyError):
        Gate(GdpFilter(BUDGET), MemoryLedger("anna"), SecureNoise()).release_mean(POINTS, CLIP, event=ON_GRID)


def test_a_ledger_that_holds_more_than_its_filter_allows_is_refused():
    ledger = MemoryLedger("anna")
    event = dataclasses.replace(ON_GRID, scale=planned(1).events[0].scale)
    Gate(ZcdpFilter(BUDGET), ledger, SecureNoise()).release_mean(POINTS, CLIP, event=event)
    ledger._entries.append(dataclasses.replace(ledger._entries[0], number=2))
    with pytest.raises(LedgerError, match="more than its filter allows"):
        Gate.resume(ledger, SecureNoise())


def test_a_huge_message_makes_no_release_tell_of_the_data():
    """Rows that overflow count as 0: a refusal, or silence, would tell which samples overflow."""

    def rows(model):
        return [[np.inf, 1.0, 0.0], [0.5, np.nan, 0.0], *[[0.0] * DIMENSION] * (SAMPLES - 2)]

    noiseless = Gate(planned(1), MemoryLedger("anna"), NoNoise(), start=np.zeros(DIMENSION))
    np.testing.assert_array_equal(noiseless.release_mean(rows, CLIP).vector, 0.0)
    with pytest.raises(PrivacyError, match="points must be finite"):
        gate_for(1).release_mean(rows(None), CLIP)
