"""The guarantee says all of it, and names what it does not cover."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.privacy.proven import WITH_INTEGERS, every_integer_version, every_mechanism

from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Bounded, Gate, Rows
from flockwise.privacy.guarantee import USUALLY_PUBLIC, Guarantee, spans
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.origin import Adversary, Origin
from flockwise.privacy.plan import Plan
from flockwise.privacy.tracked import run_origin

LEAST, MOST = Budget(0.5, 1e-5), Budget(1.0, 1e-5)


def guarantee(budgets=(LEAST, MOST, MOST), **options):
    return Guarantee.of(budgets, mechanism="Gaussian noise", accountant="gdp", **options)


def test_a_guarantee_states_everything():
    made = guarantee()
    words = made.explain()
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
    assert "NOT" not in words
    assert made.is_private
    assert "ε from 0.5 to 1, δ = 1e-05" in made.label
    assert "\n" not in made.label


def test_the_explanation_is_a_few_lines():
    plan = Plan.fitting(MOST, "gaussian", 3)
    assert 4 <= len(guarantee([MOST], plan=plan).explain().splitlines()) <= 8


def test_a_budget_that_protects_little_is_called_so():
    words = guarantee([MOST, Budget(20.0, 0.03)]).explain()
    assert "ε from 1 to 20 protects little" in words
    assert "an agent with 34 samples may publish one of them" in words
    assert not {"little", "publish"} & set(guarantee([Budget(19.0, 1e-5)]).explain().split())


def test_one_budget_is_not_a_range():
    assert "ε = 1, δ" in guarantee([MOST]).label


def test_real_agents_are_not_called_a_simulation():
    assert "simulation" not in guarantee([MOST], simulated=False).explain()


# --- What a run takes as given ---


GRAPH = Origin("the graph, built from local models", "private")


def test_what_is_not_covered_is_named():
    made = guarantee(origins=[GRAPH])
    assert "NOT covered" in made.explain()
    assert "the graph, built from local models" in made.explain()
    assert made.label.endswith("; not covered: the graph, built from local models")
    assert not made.is_private


def test_what_is_of_unknown_origin_is_not_covered_either():
    made = guarantee(origins=[Origin("the graph", "unknown"), GRAPH, GRAPH])
    assert made.not_covered == ("the graph, of unknown origin", "the graph, built from local models")
    assert made.label.endswith(
        "; not covered: the graph, of unknown origin; the graph, built from local models"
    )
    assert not made.is_private


def test_what_is_public_changes_nothing():
    assert guarantee(origins=[Origin("the graph, from a map", "public")]) == guarantee()


def test_what_was_released_before_is_added_up():
    before = Origin("models released by cd", "released", ((0.25, 0.5), (1e-6, 2e-6)))
    made = guarantee([LEAST, MOST], origins=[before, before])
    assert made.epsilon == pytest.approx((1.0, 2.0))
    assert made.delta == pytest.approx((1e-5 + 2e-6, 1e-5 + 4e-6))
    assert made.is_private
    assert "The total includes what was released before: models released by cd" in made.explain()
    assert made.spent == (made.epsilon, made.delta)


def test_the_sensitivity_of_another_package_is_its_word():
    made = guarantee(declared=["others", "others"])
    assert made.declared == ("others",)
    assert "Sensitivity as declared by others: it was not checked by Flockwise." in made.explain()


def test_spans_are_the_least_and_the_largest():
    budgets = [Budget(1.0, 1e-6), Budget(0.1, 1e-4), Budget(3.0, 1e-5)]
    assert spans(budgets) == ((0.1, 3.0), (1e-6, 1e-4))


def test_each_agent_can_read_its_own():
    """With the most that anyone spent before, since who spent how much is not known any more."""
    assert guarantee().per_agent == (LEAST, MOST, MOST)
    assert guarantee(MOST).per_agent == guarantee([MOST, MOST]).per_agent == ()
    before = Origin("models released by cd", "released", ((0.25, 0.5), (1e-6, 2e-6)))
    assert guarantee([LEAST, MOST], origins=[before]).per_agent == (Budget(1.0, 1.2e-5), Budget(1.5, 1.2e-5))


# --- The noise that is stated is the noise that is used ---


def first_event_of_a_real_gate(tmp_path, plan, value):
    with Ledger.create(tmp_path, "anna") as ledger:
        Gate(plan, ledger, SecureNoise()).release(value)
        return ledger.entries[0].event


REAL_VALUES = {
    "rows": Rows.of(np.ones((7, 3)), 1.5),
    "more rows": Rows.of(np.ones((23, 3)), 0.1),
    "vector": Bounded(np.ones(3), 0.4),
}


@every_integer_version
@pytest.mark.parametrize("releases", [1, 20, (1.0, 2.0, 4.0)], ids=str)
@pytest.mark.parametrize("value", REAL_VALUES.values(), ids=REAL_VALUES.keys())
def test_the_noise_stated_for_real_agents_is_what_a_real_gate_uses(tmp_path, kind, releases, value):
    """Standard deviation over sensitivity, in the ledger of an agent with the same budget on disk."""
    simulated = Plan.fitting(MOST, kind.name, releases)
    made = guarantee([MOST], plan=simulated, dimension=3)
    real = Plan.fitting(MOST, kind.name, releases, on_grid=True)  # as a real agent plans, knowing no other
    event = first_event_of_a_real_gate(tmp_path, real, value)
    assert made.real_multiplier == pytest.approx(event.noise_std / event.sensitivity, rel=1e-9)
    assert f", {made.real_multiplier:.4g} times for a real agent" in made.explain()


@every_integer_version
def test_the_integers_that_a_real_gate_draws_have_the_stated_deviation(tmp_path, kind):
    """20,000 coordinates; 5 errors of their mean square, which a run exceeds once in a million."""
    value = Bounded(np.zeros(20_000), 0.4)
    made = guarantee([MOST], plan=Plan.fitting(MOST, kind.name, 2), dimension=20_000)
    with Ledger.create(tmp_path, "anna") as ledger:
        release = Gate(Plan.fitting(MOST, kind.name, 2, on_grid=True), ledger, SecureNoise()).release(value)
        sensitivity = ledger.entries[0].event.sensitivity
    squares = (release.vector / sensitivity) ** 2
    assert made.real_multiplier is not None
    assert abs(squares.mean() - made.real_multiplier**2) < 5 * squares.std() / math.sqrt(squares.size)


def test_the_stated_noise_of_laplace_is_that_of_basic_composition():
    """ε = 1 over 20 releases: 20 times √2."""
    made = guarantee([MOST], plan=Plan.fitting(MOST, "laplace", 20))
    assert made.real_multiplier == pytest.approx(20 * math.sqrt(2))
    assert "28.28 times for a real agent" in made.explain()


@every_mechanism
def test_the_noise_stated_for_a_simulation_is_that_of_its_plan(kind):
    plan = Plan.fitting(LEAST, kind.name, [1.0, 2.0])
    made = guarantee(plan=plan, dimension=5)
    event = plan.event(1, 0.3, 5)
    assert made.noise_multiplier == pytest.approx(event.noise_std / 0.3, rel=1e-12)
    assert f"{made.noise_multiplier:.4g} times the sensitivity" in made.explain()
    if kind not in WITH_INTEGERS:
        assert made.real_multiplier is None
        assert "there is no such noise for real agents" in made.explain()
    assert ("Real agents draw theirs securely" in made.explain()) == (kind in WITH_INTEGERS)


@every_integer_version
def test_a_guarantee_of_real_agents_states_their_own_noise_alone(tmp_path, kind):
    plan = Plan.fitting(MOST, kind.name, 3, on_grid=True)
    made = guarantee([MOST], plan=plan, dimension=3, simulated=False)
    event = first_event_of_a_real_gate(tmp_path, plan, REAL_VALUES["rows"])
    assert made.noise_multiplier == pytest.approx(event.noise_std / event.sensitivity, rel=1e-12)
    assert made.real_multiplier is None
    assert f"{made.noise_multiplier:.4g} times the sensitivity." in made.explain()


def test_without_a_plan_no_noise_is_stated():
    """Where the noise is not on the released vector there is no one number for it."""
    made = guarantee()
    assert (made.noise_multiplier, made.real_multiplier) == (None, None)
    assert "Standard deviation" not in made.explain()


# --- Runs that build on sums, which are kept from fewer adversaries ---


SUMS = Adversary(
    "Whoever sees every opened sum, with up to 3 of the 9 agents colluding,", ("only sums are opened",)
)
FROM_SUMS = Origin(
    "models released by learned_prior",
    "released",
    ((0.5, 0.5), (1e-6, 1e-6)),
    against=SUMS,
    if_all_collude=(4.0, 4.0),
)


def test_what_builds_on_sums_is_kept_from_no_more_than_the_sums_are():
    made = guarantee([MOST], origins=[FROM_SUMS])
    assert (made.against, made.assumes) == (SUMS.words, SUMS.assumptions)
    assert made.epsilon == (1.5, 1.5)
    assert made.if_all_collude == (5.0, 5.0), "its own ε = 1 and the 4 that are left of the sums"


def test_the_rest_if_all_collude_includes_what_was_released_before():
    before = Origin("models released by release_once", "released", ((8.0, 8.0), (1e-6, 1e-6)))
    made = guarantee([MOST], origins=[before], adversary=SUMS, if_all_collude=(1.5, 1.5))
    assert (made.epsilon, made.if_all_collude) == ((9.0, 9.0), (9.5, 9.5))


def test_two_sums_over_different_agents_name_both_adversaries():
    other = Adversary("Whoever sees every opened sum, with up to 1 of the 4 agents colluding,")
    made = guarantee([MOST], origins=[FROM_SUMS], adversary=other, if_all_collude=(2.0, 2.0))
    assert made.against == other.words
    [assumed, also] = made.assumes
    assert assumed == "only sums are opened"
    assert also.endswith(
        "another run than whoever sees every opened sum, with up to 3 of the 9 agents colluding"
    )
    assert made.if_all_collude == (6.0, 6.0)


def test_an_origin_is_read_back_as_it_was_written():
    for origin in (FROM_SUMS, GRAPH, replace(FROM_SUMS, simulated=True, seeds=frozenset([3, 5]))):
        again = Origin.from_json(json.loads(json.dumps(origin.to_json())))
        assert (again, again.seeds) == (origin, origin.seeds)


WORDS_FOR_SIMULATED = (
    "What was released before was drawn by a simulation: its noise can be drawn again from its seed."
)


@pytest.mark.parametrize("simulated", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_real_guarantee_says_that_what_was_released_before_was_simulated(simulated, before):
    made = guarantee([MOST], origins=[replace(FROM_SUMS, simulated=before)], simulated=simulated)
    assert made.simulated_before == before
    assert (WORDS_FOR_SIMULATED in made.explain().splitlines()) == (before and not simulated)
    assert run_origin("cd", made).simulated == (simulated or before)
