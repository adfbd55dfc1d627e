"""A method from outside the package whose conversation releases twice.

It is registered like any other. Its conversation never sees samples: each release goes through the agent's
gate, which charges it, and both engines hold the same conversation.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.parity.test_conformance import BUDGET, SEED, Forgetful, assert_same_events, plain
from tests.support import random_problem

from flockwise.data import Samples
from flockwise.engine import simulate
from flockwise.errors import BudgetSpent, PrivacyError, SimulationError
from flockwise.method import METHODS, Prepared
from flockwise.method.base import label_of
from flockwise.method.rules import Edges, Outcome, Rounds
from flockwise.objective import CollaborativeObjective, Objective, Problem
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.messages import decode
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.plan import Plan
from flockwise.privacy.schedule import Schedule
from flockwise.protocol.conversation import ReleaseRequest, Say
from flockwise.registry import declared_by
from flockwise.release.mean import unit_rows
from flockwise.solve import solve_local_models


@dataclass(frozen=True)
class DirectionsAround:
    """The mean of y·x/‖x‖ less a public point: the rows of a second look."""

    name: ClassVar[str] = "around"
    clip: float = 1.0

    def of(self, samples, objective, at=None):
        rows = unit_rows(*samples)
        return Rows.of(rows if at is None else rows - at, self.clip)


@dataclass(frozen=True)
class TwoLooks:
    """Everyone releases its mean direction, then once more around the mean of what it heard."""

    privacy: Budget
    looks: int = 2
    granted: int = 2
    name = "two_looks"
    label: ClassVar[str] = "two looks"
    rule: ClassVar[type] = Rounds
    needs_graph: ClassVar[bool] = True
    # Of the last run, for the tests: what everyone's gate has written.
    ledgers: ClassVar[list[MemoryLedger]] = []

    def misfits(self, objective):
        return iter(())

    def prepare(self, problem, seed):
        schedule = Schedule.fitting(self.privacy, problem.n_agents, "gaussian", self.granted)
        self.ledgers[:] = [MemoryLedger(str(agent)) for agent in range(problem.n_agents)]
        gates = [
            Gate(schedule.plan_of(agent), ledger, SimulatedNoise(seed, agent))
            for agent, ledger in enumerate(self.ledgers)
        ]

        def converse(position, number, weights):
            center = None
            for look in range(self.looks):
                vector = yield ReleaseRequest(DirectionsAround(), center)
                heard = yield Say(f"look/{look}", vector)
                center = np.mean([vector, *(heard[other] for other in sorted(heard))], axis=0)
            return center

        def release(position):
            samples = Samples(*(part.astype(np.float64) for part in problem.population.samples(position)))

            def answer(request):
                value = request.statistic.of(samples, problem.objective, request.at)
                return gates[position].release(value).vector

            return answer

        def collect(results, traffic):
            models = np.zeros((problem.n_agents, problem.dimension))
            for position, vector in results.items():
                models[position] = vector
            return Outcome(models, np.full(problem.n_agents, self.looks), traffic)

        rule = Rounds(np.arange(problem.n_agents), Edges.of(problem.neighbors), converse, collect, release)
        guarantee = Guarantee.of(
            (self.privacy,),
            mechanism="Gaussian noise, twice",
            accountant=schedule.plans[0].accountant,
            plan=schedule.least,
            dimension=problem.dimension,
            origins=problem.origins,
            declared=[declared_by(self) or ""],
        )
        return Prepared(
            rule, CollaborativeObjective(problem), guarantee, lambda models, _: solve_local_models(problem)
        )


@pytest.fixture
def registered():
    METHODS.register(TwoLooks)
    yield METHODS["two_looks"].kind
    METHODS.unregister("two_looks")


@pytest.fixture(scope="module")
def talkers() -> Problem:
    """Everyone has samples and neighbors."""
    other = random_problem(11, n_agents=6, density=0.9, max_samples=1)
    counts = np.array([2, 5, 3, 4, 1, 6])
    random = np.random.default_rng(0)
    features = random.normal(size=(counts.sum(), 3))
    targets = random.choice([-1.0, 1.0], counts.sum())
    offsets = np.concatenate([[0], np.cumsum(counts)])
    population = other.population.packed(features, targets, offsets)
    assert not other.neighbors.isolated.size
    return Problem(population, other.graph, Objective(max_samples=6))


def releases_of(kind) -> np.ndarray:
    """What everyone's gate let out: agents, releases, coordinates."""
    return np.array([[decode(entry.payload)[1] for entry in ledger.entries] for ledger in kind.ledgers])


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_conversation_may_release_twice(registered, engine, talkers):
    """It never sees samples: its driver answers its requests, by a gate that charges each time."""
    run = simulate(talkers, registered(BUDGET), engine=engine, seed=SEED)
    plan = Plan.fitting(BUDGET, "gaussian", 2)
    assert plan.epsilon_after(1) < plan.epsilon_after(2) <= BUDGET.epsilon
    for ledger, count in zip(registered.ledgers, talkers.population.sample_counts, strict=True):
        assert Plan.from_json(ledger.plan) == plan
        assert [entry.number for entry in ledger.entries] == [1, 2]
        assert [entry.event.sensitivity for entry in ledger.entries] == [2 / count] * 2
        assert [entry.event.multiplier for entry in ledger.entries] == list(plan.multipliers)
    assert run.guarantee is not None
    assert run.guarantee.epsilon == (BUDGET.epsilon, BUDGET.epsilon)
    assert run.guarantee.noise_multiplier == pytest.approx(plan.multipliers[0])
    assert "Sensitivity as declared by tests" in run.guarantee.explain()
    np.testing.assert_array_equal(plain(run.own_models), solve_local_models(talkers))
    directed = talkers.neighbors.neighbors.size
    assert run.settings["vectors_by_stage"] == {"look": 2 * directed}
    assert run.final.bytes == 2 * directed * 8 * talkers.dimension
    # What everyone ends with is the mean of what it and its neighbors released the second time.
    second = releases_of(registered)[:, 1]
    for agent in range(6):
        around = [agent, *talkers.neighbors.neighbors_of(agent)[0].tolist()]
        np.testing.assert_allclose(run.models[agent], second[around].mean(axis=0), rtol=1e-12)


def test_both_engines_hold_the_same_conversation(registered, talkers):
    cpu, reference = (
        simulate(talkers, registered(BUDGET), engine=name, seed=SEED) for name in ("cpu", "reference")
    )
    assert_same_events(cpu, reference)
    np.testing.assert_array_equal(plain(cpu.models), plain(reference.models))
    assert cpu.guarantee == reference.guarantee


def exact(problem: Problem, agent: int, at: Any) -> np.ndarray:
    """The mean of the clipped rows, before any noise."""
    features, targets = problem.population.samples(agent)
    rows = unit_rows(features, targets) - at
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.maximum(lengths, 1.0)).mean(axis=0)


def test_the_seed_reaches_both_releases_and_each_has_noise_of_its_own(registered, talkers):
    def noises(seed):
        simulate(talkers, registered(BUDGET), seed=seed)
        released = releases_of(registered)
        found = np.empty_like(released)
        for agent in range(6):
            around = sorted(talkers.neighbors.neighbors_of(agent)[0].tolist())
            center = np.mean([released[agent, 0], *released[around, 0]], axis=0)
            for look, at in enumerate((np.zeros(3), center)):
                found[agent, look] = released[agent, look] - exact(talkers, agent, at)
        return found

    first, again, other = noises(1), noises(1), noises(2)
    np.testing.assert_array_equal(first, again)
    assert (np.abs(first - other) > 1e-6).all()
    # In units of its size, the noise of the second release is not that of the first.
    multiplier = Plan.fitting(BUDGET, "gaussian", 2).multipliers[0]
    units = first / (2 * multiplier / talkers.population.sample_counts)[:, None, None]
    assert np.abs(units[:, 0] - units[:, 1]).min() > 1e-6
    # 36 draws of variance 1: their own is within 1 but with probability 1e-4.
    assert 0.1 < units.var() < 2


def test_a_conversation_cannot_release_more_often_than_was_planned(registered, talkers):
    with pytest.raises(BudgetSpent, match="all 2 releases of its plan are spent"):
        simulate(talkers, registered(BUDGET, looks=3))


def test_a_conversation_whose_agents_have_no_gate_releases_nothing(registered, talkers):
    prepared = registered(BUDGET).prepare(talkers, 0)
    rule = Rounds(prepared.rule.ids, prepared.rule.edges, prepared.rule.converse, prepared.rule.collect)
    without = Forgetful(BUDGET, replace(prepared, rule=rule))
    with pytest.raises(PrivacyError, match="asked for a release, and the agent has no gate"):
        simulate(talkers, without)


@pytest.mark.parametrize("left_out", ["guarantee", "finish"])
def test_releases_without_a_guarantee_or_own_models_are_refused_whatever_the_method_calls_its_budget(
    registered, talkers, left_out
):
    prepared = registered(BUDGET).prepare(talkers, 0)
    quiet = Forgetful(None, replace(prepared, **{left_out: None}))
    with pytest.raises(PrivacyError, match=f"is private and prepared no {left_out}"):
        simulate(talkers, quiet)


def test_a_name_that_is_taken_is_refused(registered):
    @dataclass(frozen=True)
    class Other(registered):
        pass

    with pytest.raises(SimulationError, match="there is a method named 'two_looks' already"):
        METHODS.register(Other)
    assert METHODS["two_looks"].kind is registered
    assert label_of("two_looks") == "two looks"
