"""What every registered method and engine has to do with every registered loss.

The tests walk the registries: a new method, engine or loss is tested here without another line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
from tests.support import LOSSES, PUBLIC, named, random_problem

from flockwise.data import Population
from flockwise.engine import ENGINES, Conditions, RunSettings, simulate
from flockwise.errors import PrivacyError, SimulationError
from flockwise.graph import SimilarityGraph
from flockwise.method import METHODS, CoordinateDescent, GossipADMM, Prepared, PrivateUpdates
from flockwise.method.base import label_of
from flockwise.method.rules import Descent, Meetings, Rounds, Solved
from flockwise.objective import Logistic, Objective, Problem
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.sums import SumNoise
from flockwise.randomness.clocks import TIME_UNIT
from flockwise.release.statistic import Misfit

BUDGET = Budget(2.0, 1e-3)
# For ten agents that add up: noise for one of them is too much for all.
ROOMY = Budget(20.0, 1e-3)
UPDATES = 4
SEED = 7
# The gpu engine has an environment and tests of its own (tests/gpu).
HERE = [engine.name for engine in ENGINES if engine.missing() is None and engine.name != "gpu"]
AT_ONCE = (Solved, Rounds)


@dataclass(frozen=True)
class Case:
    """A registered method, with privacy or without."""

    name: str
    method: Any
    rule: type

    @property
    def is_private(self) -> bool:
        return self.method.privacy is not None

    @property
    def stops(self) -> dict[str, Any]:
        return {} if self.rule in AT_ONCE else {"updates": UPDATES}

    def run(self, problem: Problem, engine: str = "cpu", seed: int = SEED, **options: Any) -> Any:
        return simulate(problem, self.method, engine=engine, seed=seed, **(self.stops | options))


def spending(variant: Any) -> Any:
    """What a method's privacy field takes: budgets alone, or a plan for its updates."""
    options = (variant.privacy, *get_args(variant.privacy))
    if hasattr(variant.kind, "refusal"):  # it releases nothing where noise would hide everything
        return ROOMY
    return PrivateUpdates(BUDGET, UPDATES, 0.5) if PrivateUpdates in options else BUDGET


def cases() -> Iterator[Case]:
    for variant in METHODS:
        if not variant.needs_privacy:
            yield Case(variant.name, variant.kind(**variant.preset), variant.rule)
        if variant.privacy is not None:
            method = variant.kind(privacy=spending(variant), **variant.preset)
            yield Case(f"{variant.name}, private", method, variant.rule)


CASES = {case.name: case for case in cases()}
PRIVATE = [name for name, case in CASES.items() if case.is_private]
COMPUTED_AT_ONCE = [name for name, case in CASES.items() if case.rule in AT_ONCE]
# Of the problem below: it has samples, and nobody to talk to.
LONELY = 0


@lru_cache(typed=True)  # losses without parameters are equal as tuples
def problem_with(loss: Any) -> Problem:
    """Ten agents, some without samples and one without neighbors; some samples are longer than the bound."""
    public = {"feature_bound": 1.5, "target_range": (-2.0, 2.0) if loss.metric == "rmse" else None}
    other = random_problem(0, n_agents=10, loss=loss, l2=0.1, **public)
    weights = np.triu(other.neighbors.to_scipy().toarray())
    weights[LONELY] = 0
    edges = np.argwhere(weights > 0)
    graph = SimilarityGraph.from_edges(10, edges, weights[edges[:, 0], edges[:, 1]], source=PUBLIC)
    counts = other.population.sample_counts
    assert counts[LONELY] > 0
    assert (counts == 0).any()
    assert graph.isolated.tolist() == [LONELY]
    assert other.exchanged is not other.population
    return Problem(other.population, graph, other.objective)


@pytest.fixture
def problem() -> Problem:
    return problem_with(Logistic())


def plain(models: Any) -> np.ndarray:
    assert models is not None
    return np.asarray(models)


def assert_same_events(one, other):
    np.testing.assert_array_equal(one.updates, other.updates)
    assert one.state.keys() & {"next_ticks"} == other.state.keys() & {"next_ticks"}
    if "next_ticks" in one.state:
        np.testing.assert_array_equal(one.state["next_ticks"], other.state["next_ticks"])
    for name in ("time", "ticks", "vectors", "bytes"):
        np.testing.assert_array_equal(one.column(name), other.column(name))
    assert one.stopped == other.stopped


def test_the_walk_covers_every_registered_method():
    assert {name.removesuffix(", private") for name in CASES} == set(METHODS.names)
    assert {case.rule for case in CASES.values()} == {Solved, Descent, Meetings, Rounds}
    assert {"reference", "cpu"} <= set(ENGINES.names)


# Every method on every engine.


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", [name for name in HERE if name != "reference"])
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_every_engine_gives_the_events_and_models_of_the_reference(name, engine, loss, monkeypatch):
    """Or says why the method does not fit the loss."""
    case, problem = CASES[name], problem_with(loss)
    for misfit in case.method.misfits(problem.objective):
        with pytest.raises((PrivacyError, SimulationError), match=re.escape(str(misfit))):
            case.run(problem, engine)
        return
    # Up to a time when some clocks still go: they are events, too.
    time: dict[str, Any] = {} if case.rule in AT_ONCE else {"time": 2.5}
    # For a sum over all agents one engine draws everyone's share of the noise, and another one noise.
    monkeypatch.setattr(SumNoise, "_drawn", lambda self, agent, number, stds: np.zeros(len(stds), np.int64))
    fast, reference = (case.run(problem, each, **time) for each in (engine, "reference"))
    assert_same_events(fast, reference)
    if time:
        assert fast.stopped == "time"
        assert fast.updates.min() < UPDATES
    scale = max(1.0, float(np.abs(plain(reference.models)).max()))
    np.testing.assert_allclose(plain(fast.models), plain(reference.models), rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(fast.column("objective"), reference.column("objective"), rtol=1e-9)
    assert (fast.own_models is None) == (reference.own_models is None)
    if fast.own_models is not None:
        np.testing.assert_allclose(
            plain(fast.own_models), plain(reference.own_models), rtol=1e-7, atol=1e-9 * scale
        )
    assert fast.guarantee == reference.guarantee


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", HERE)
def test_one_seed_gives_one_run_to_the_last_bit(name, engine, problem):
    first, again = (CASES[name].run(problem, engine) for _ in range(2))
    assert_same_events(first, again)
    np.testing.assert_array_equal(plain(first.models), plain(again.models))
    np.testing.assert_array_equal(first.column("objective"), again.column("objective"))
    if first.own_models is not None:
        np.testing.assert_array_equal(plain(first.own_models), plain(again.own_models))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", HERE)
def test_another_seed_gives_other_noise_and_changes_nothing_else(name, engine, problem):
    """Where agents have clocks: of the one without neighbors, on whom nobody's ticks have an influence."""
    case = CASES[name]
    # All agents have the same model: where they have nothing in common, a learned prior keeps local models.
    features = problem.population.features
    targets = np.where(features.sum(axis=1) > 0, 1.0, -1.0)
    alike = Population.packed(features, targets, problem.population.offsets)
    problem = Problem(alike, problem.graph, problem.objective)
    first, second = (plain(case.run(problem, engine, seed).models) for seed in (1, 2))
    if case.rule not in AT_ONCE:
        first, second = first[LONELY], second[LONELY]
    assert np.array_equal(first, second) != case.is_private


@pytest.mark.parametrize("name", CASES)
def test_what_is_private_comes_with_its_guarantee_and_own_models(name, problem):
    case = CASES[name]
    run = case.run(problem)
    assert (run.guarantee is not None) == (run.own_models is not None) == case.is_private
    if run.guarantee is None:
        assert run.models.origin.status == "private"
        return
    epsilon = ROOMY.epsilon if hasattr(case.method, "refusal") else BUDGET.epsilon
    assert (run.guarantee.epsilon, run.guarantee.delta) == ((epsilon, epsilon), (1e-3, 1e-3))
    assert run.guarantee.is_private
    assert run.models.origin.status == "released"
    assert run.own_models.origin.status == "private"
    assert plain(run.own_models).shape == (10, problem.dimension)
    assert np.isfinite(plain(run.own_models)).all()
    assert not np.array_equal(plain(run.models), plain(run.own_models))


@pytest.mark.parametrize("name", CASES)
def test_a_method_prepares_the_kind_of_rule_that_it_is_registered_with(name, problem):
    case = CASES[name]
    prepared = case.method.prepare(problem, SEED)
    # A conversation with nothing to release is solved already.
    assert type(prepared.rule) is case.rule or (case.rule is Rounds and type(prepared.rule) is Solved)
    assert not case.is_private or type(prepared.rule) is case.rule
    assert prepared.rule.n_agents == problem.n_agents
    assert label_of(case.method.name) != ""
    assert all(case.rule in ENGINES[name].starts for name in HERE)


@pytest.mark.parametrize("name", CASES)
def test_a_method_that_needs_neighbors_says_so(name, problem):
    case, alone = CASES[name], Problem(problem.population, None, problem.objective)
    if case.method.needs_graph:
        with pytest.raises((SimulationError, PrivacyError), match=f"'{case.method.name}' needs neighbors"):
            case.run(alone)
    else:
        models = plain(case.run(alone).models)
        np.testing.assert_array_equal(models, plain(case.run(problem).models))


# What every method refuses.


@pytest.mark.parametrize("name", COMPUTED_AT_ONCE)
@pytest.mark.parametrize(
    "option", ["updates", "ticks", "time", "tolerance", "record_every", "threads", "resume"]
)
def test_a_method_that_is_computed_at_once_refuses_what_it_cannot_use(name, option, problem):
    values = {"updates": 3, "ticks": 3, "time": 1.0, "tolerance": 0.1, "record_every": 7.0, "threads": 1}
    value = CASES[name].run(problem) if option == "resume" else values[option]
    with pytest.raises(SimulationError, match=f"is computed at once and cannot use {option}"):
        CASES[name].run(problem, **{option: value})


def test_an_engine_refuses_threads_that_it_cannot_use(problem):
    with pytest.raises(SimulationError, match="engine 'reference' cannot use threads"):
        simulate(problem, CoordinateDescent(), engine="reference", updates=1, threads=4)


@pytest.mark.parametrize("name", CASES)
def test_every_method_refuses_an_unknown_engine(name, problem):
    with pytest.raises(SimulationError, match="there is no engine 'abacus'; choose one of"):
        CASES[name].run(problem, "abacus")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("updates", [-5, 0, 2.5])
def test_every_method_refuses_a_number_of_updates_that_is_none(name, updates, problem):
    with pytest.raises(SimulationError, match=f"updates must be a whole number from 1 on, got .*{updates}"):
        CASES[name].run(problem, updates=updates)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", ["x", -1, 1.5, 2**64, True, None])
def test_every_method_refuses_a_bad_seed(name, seed, problem):
    with pytest.raises(SimulationError, match="seed must be a whole number from 0 to"):
        CASES[name].run(problem, seed=seed)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_misfits_are_told_and_never_raised(name, loss):
    """The default objective, and that of every loss: a configuration asks before it builds anything."""
    for objective in (Objective(), Objective(loss), Objective(loss, l2=0.1, feature_bound=1.0)):
        for misfit in CASES[name].method.misfits(objective):
            assert isinstance(misfit, Misfit)
            assert misfit.place.split(".")[0] in ("objective", "method", "privacy")
            assert misfit.problem


# Fail closed.


@dataclass(frozen=True)
class Forgetful:
    """A private method of one's own that leaves out a part of what a private run needs."""

    privacy: Any
    prepared: Any
    name = "forgetful"
    label: ClassVar[str] = "forgetful"
    needs_graph: ClassVar[bool] = False

    def misfits(self, objective):
        return iter(())

    def prepare(self, problem, seed):
        return self.prepared


def guarantee_of(problem, budget=BUDGET):
    return Guarantee.of((budget,), mechanism="none", accountant="basic", origins=problem.origins)


def test_a_private_method_without_a_guarantee_or_own_models_is_not_run(problem):
    rule = Solved(np.zeros((10, 3)))
    guarantee = guarantee_of(problem)

    def finish(models, details):
        return models

    for prepared, missing in (
        (Prepared(rule), "no guarantee"),
        (Prepared(rule, finish=finish), "no guarantee"),
        (Prepared(rule, guarantee=guarantee), "no finish"),
    ):
        with pytest.raises(PrivacyError, match=f"'forgetful' is private and prepared {missing}"):
            simulate(problem, Forgetful(BUDGET, prepared))
    run = simulate(problem, Forgetful(BUDGET, Prepared(rule, guarantee=guarantee, finish=finish)))
    assert run.guarantee == replace(guarantee, declared=("tests",)), "a method from outside is named"
    assert run.own_models is not None


def test_a_rule_with_noise_is_private_whatever_the_method_says(problem):
    rule = CoordinateDescent(privacy=PrivateUpdates(BUDGET, UPDATES, 0.5)).prepare(problem, 0).rule
    with pytest.raises(PrivacyError, match="'forgetful' is private and prepared no guarantee"):
        simulate(problem, Forgetful(None, Prepared(rule)))


# Rules carry the agents' numbers.


NUMBERS = np.array([3, 7, 20, 21, 30, 44, 45, 60, 71, 99])
RULES = {
    "cd": lambda problem: CoordinateDescent("local").prepare(problem, SEED).rule,
    "private cd": lambda problem: CASES["cd, private"].method.prepare(problem, SEED).rule,
    "admm": lambda problem: GossipADMM().prepare(problem, SEED).rule,
}
NETWORKS = {
    "ideal": lambda numbers: Conditions(),
    "bad": lambda numbers: Conditions(
        delay=0.5, delay_kind="exponential", loss=0.2, offline_share=0.3, offline_length=1.5
    ),
    "changing": lambda numbers: Conditions(joins={numbers[1]: 1.0}, leaves={numbers[-1]: 0.5}),
}
# Gossip needs the ideal network.
RUNS = [(kind, network) for kind in RULES for network in NETWORKS if kind != "admm" or network == "ideal"]


def partly_run(engine: str, rule: Any, conditions: Conditions) -> dict[str, Any]:
    """A run of a rule without a problem around it, up to a time when some clocks still go."""
    until = 3 * TIME_UNIT
    threads = 1 if ENGINES[engine].uses_threads else None
    run = ENGINES[engine].start(rule, RunSettings(SEED, UPDATES, conditions, threads))
    third_tick = run.time_of_tick(3)
    while not run.advance(until, 1000).done:
        pass
    found = {"models": plain(run.result().models), "updates": run.result().updates}
    found |= {"next_ticks": run.state()["next_ticks"], "vectors": run.sent(until)[0]}
    return found | {"third_tick": third_tick}


@pytest.mark.parametrize(("kind", "network"), RUNS)
def test_agents_may_have_any_ascending_numbers(kind, network, problem):
    """They draw clocks, noise and luck by these; both engines do, and alike."""
    rule = RULES[kind](problem)
    renumbered, conditions = replace(rule, ids=NUMBERS), NETWORKS[network](NUMBERS.tolist())
    cpu, reference = (partly_run(engine, renumbered, conditions) for engine in ("cpu", "reference"))
    np.testing.assert_allclose(cpu["models"], reference["models"], rtol=0, atol=1e-9)
    for name in ("updates", "next_ticks", "vectors", "third_tick"):
        np.testing.assert_array_equal(cpu[name], reference[name], err_msg=name)
    assert 0 < reference["updates"].sum() < 10 * UPDATES
    # By their positions they would have done something else.
    assert cpu["third_tick"] != partly_run("cpu", rule, Conditions())["third_tick"]


@pytest.fixture(scope="module")
def two_parts() -> tuple[Problem, Problem, np.ndarray]:
    """Agents in two groups with no edge between them; the second group alone; who is in it."""
    whole = random_problem(8, n_agents=12, density=0.6, feature_bound=1.5, max_samples=8)
    inside = np.array([1, 4, 5, 8, 11])
    weights = whole.neighbors.to_scipy().toarray()
    is_inside = np.isin(np.arange(12), inside)
    weights[is_inside[:, None] != is_inside] = 0
    objective = replace(whole.objective, max_samples=8)
    graph = SimilarityGraph.from_scipy(weights, source=PUBLIC)
    part = Problem(
        whole.population.select([str(agent) for agent in inside]),
        SimilarityGraph.from_scipy(weights[inside][:, inside], source=PUBLIC),
        objective,
    )
    assert part.neighbors.n_edges > 3
    return Problem(whole.population, graph, objective), part, inside


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize(("kind", "network"), RUNS)
def test_a_part_of_the_agents_runs_elsewhere_as_it_runs_in_the_whole(kind, network, engine, two_parts):
    """Given their numbers, agents whom no edge links to the others do the same to the last bit."""
    whole, part, inside = two_parts
    conditions = NETWORKS[network](inside.tolist())
    expected = partly_run(engine, RULES[kind](whole), conditions)
    found = partly_run(engine, replace(RULES[kind](part), ids=inside), conditions)
    for name in ("updates", "next_ticks", "models"):
        np.testing.assert_array_equal(found[name], expected[name][inside], err_msg=name)


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("kind", ["cd", "private cd"])
def test_agents_in_another_order_do_the_same_under_their_numbers(kind, engine):
    """Arrays go by position and draws by number: the permuted run, but for the order in which sums round."""
    problem = problem_with(Logistic())
    order = np.random.default_rng(3).permutation(10)
    weights = problem.neighbors.to_scipy().toarray()[order][:, order]
    permuted = Problem(
        problem.population.select([problem.population.agent_names[agent] for agent in order]),
        SimilarityGraph.from_scipy(weights, source=PUBLIC),
        problem.objective,
    )
    expected = partly_run(engine, RULES[kind](problem), Conditions())
    found = partly_run(engine, replace(RULES[kind](permuted), ids=order), Conditions())
    for name in ("updates", "next_ticks"):
        np.testing.assert_array_equal(found[name], expected[name][order], err_msg=name)
    np.testing.assert_allclose(found["models"], expected["models"][order], rtol=0, atol=1e-12)
    assert found["third_tick"] == expected["third_tick"]


def test_conversations_go_by_the_numbers_of_agents_too(problem):
    rule = CASES["lowpass, private"].method.prepare(problem, SEED).rule
    renumbered = replace(rule, ids=NUMBERS)
    cpu, reference, other = (
        ENGINES[engine].start(one, RunSettings())
        for engine, one in (("cpu", renumbered), ("reference", renumbered), ("cpu", rule))
    )
    np.testing.assert_allclose(cpu.result().models, reference.result().models, rtol=0, atol=1e-9)
    assert cpu.sent(0) == reference.sent(0)
    # Public noise is drawn by number.
    assert not np.array_equal(cpu.result().models, other.result().models)
