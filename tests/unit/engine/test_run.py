"""Stops, records, resuming, baselines and losses of one's own."""

import math
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support import random_problem

from flockwise.data import Population
from flockwise.engine import Conditions, simulate
from flockwise.engine.schedule import time_of_tick
from flockwise.engine.simulate import LONG_RUN
from flockwise.engine.state import first_ticks
from flockwise.errors import DataError, FlockwiseWarning, ResumeError, SimulationError
from flockwise.method import CoordinateDescent, Global, Local, ModelPropagation, step
from flockwise.objective import CollaborativeObjective, Objective, Problem, PropagationObjective, Quadratic
from flockwise.randomness.clocks import NEVER, TIME_UNIT, tick_gap
from flockwise.results import Trajectory
from flockwise.solve import solve_local_models, solve_optimum
from flockwise.solve.optimum import FAR

HARSH = Conditions(delay=0.5, loss=0.2, offline_share=0.3, offline_length=1.5, joins={3: 2.0})
SAVED: dict[str, Any] = {"updates": 20, "seed": 3}


@pytest.fixture(scope="module")
def problem():
    return random_problem(4, n_agents=30, density=0.2)


def test_a_run_stops_after_so_many_updates_of_everyone(problem):
    run = simulate(problem, CoordinateDescent(), updates=7)
    assert (run.updates == 7).all()
    assert run.stopped == "updates"
    assert run.final.ticks == 7 * problem.n_agents
    assert run.final.vectors == 7 * problem.neighbors.neighbors.size
    assert run.final.bytes == run.final.vectors * problem.dimension * 8


def test_first_broadcasts_are_counted(problem):
    run = simulate(problem, CoordinateDescent("local"), updates=2)
    assert run.records[0].vectors == problem.neighbors.neighbors.size
    assert run.final.vectors == 3 * problem.neighbors.neighbors.size


def test_a_run_stops_after_exactly_so_many_ticks_of_all_agents(problem):
    for ticks in (1, 29, 400):
        run = simulate(problem, CoordinateDescent(), ticks=ticks, seed=5)
        assert run.final.ticks == ticks
        assert run.stopped == "ticks"


def test_time_of_a_tick_is_found_from_the_clocks_alone():
    table, seed, n_agents = Conditions().table(np.arange(40)), 8, 40
    times = np.cumsum(
        [[tick_gap(np.uint64(seed), i, k) for k in range(60)] for i in range(n_agents)], axis=1
    ).ravel()
    ids = np.arange(n_agents)
    clocks = ids, first_ticks(table, np.uint64(seed), ids), np.zeros(n_agents, np.int64)
    for n_ticks in (1, 2, 39, 500):
        assert time_of_tick(n_ticks, table, seed, NEVER, *clocks) == np.sort(times)[n_ticks - 1]


def test_a_run_stops_by_whichever_limit_comes_first(problem):
    cases = {
        "updates": {"ticks": 61, "updates": 2},
        "ticks": {"ticks": 59, "updates": 2, "time": 1000.0},
        "time": {"ticks": 10_000, "time": 2.0},
    }
    for reason, stops in cases.items():
        assert simulate(problem, CoordinateDescent(), **stops).stopped == reason


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"updates": 2.5}, "updates must be a whole number from 1 on, got updates=2.5"),
        ({"ticks": 0}, "ticks must be a whole number from 1 on, got ticks=0"),
        ({"time": math.inf}, "time must be a number from 1e-6 to"),
        ({"updates": 1, "record_every": 1e9}, "record_every must be a number from"),
        ({"updates": 1, "seed": 1.5}, "seed must be a whole number"),
        ({"tolerance": 0.0}, "tolerance must be a number between 0 and 1"),
    ],
)
def test_bad_stops_are_refused(problem, wrong, message):
    with pytest.raises(SimulationError, match=message):
        simulate(problem, CoordinateDescent(), **wrong)


def test_tolerance_waits_until_something_has_happened(problem):
    with pytest.warns(FlockwiseWarning, match=r"far from the optimum: .* take solve_optimum\(problem\)"):
        run = simulate(problem.with_tradeoff(30.0), CoordinateDescent(), tolerance=0.5, record_every=0.01)
    assert run.stopped == "tolerance"
    assert run.final.ticks >= problem.n_agents


def test_a_long_run_that_ends_far_from_the_optimum_warns_and_a_short_one_does_not(problem):
    """A feature on a smaller scale than the others takes thousands of updates."""
    slow = random_problem(4, n_agents=30, density=0.2, loss=Quadratic(), l2=1e-4)
    features = slow.population.features * [1.0, 1.0, 0.05]
    scaled = Population.packed(features, features @ [1.0, -1.0, 60.0], slow.population.offsets)
    slow = Problem(scaled, slow.graph, slow.objective)
    with pytest.warns(FlockwiseWarning, match=r"far from the optimum: .* take solve_optimum\(problem\)"):
        run = simulate(slow, CoordinateDescent(), updates=LONG_RUN)
    assert run.gap is not None
    assert run.gap.is_far
    short = simulate(slow, CoordinateDescent(), updates=LONG_RUN // 2)
    assert short.gap is not None
    assert short.gap.is_far
    simulate(problem, CoordinateDescent(), updates=LONG_RUN)  # is near, and says nothing


@pytest.mark.parametrize(("ticks", "is_far"), [(3, True), (15, True), (90, False), (1000, False)])
def test_the_certified_gap_of_a_run_holds_the_true_one(problem, ticks, is_far):
    problem = problem.with_tradeoff(30.0)
    run = simulate(problem, CoordinateDescent(), ticks=ticks)
    true = 1 - solve_optimum(problem).value / run.final.objective
    assert run.gap is not None
    assert run.gap.least <= true + 1e-9
    assert true <= run.gap.most + 1e-9
    if run.gap.most > FAR:
        assert run.gap.least > 0.5 * true, "one Newton step finds most of it"
    assert run.gap.is_far == (true > FAR) == is_far


def test_runs_that_do_not_end_at_the_optimum_have_no_gap(problem):
    assert (
        simulate(problem, CoordinateDescent(neighbors="clipped"), updates=2, engine="reference").gap is None
    )
    assert simulate(problem, Local()).gap is None
    run = simulate(problem, CoordinateDescent(), updates=2)
    assert pickle.loads(pickle.dumps(run)).gap is None


def test_numbers_of_numpy_can_be_saved(problem, tmp_path):
    run = simulate(
        problem,
        CoordinateDescent(),
        updates=np.int64(2),  # pyright: ignore[reportArgumentType]
        record_every=np.float32(1),  # pyright: ignore[reportArgumentType]
        conditions=Conditions(joins={np.int64(3): np.float64(1.0)}),  # pyright: ignore[reportArgumentType]
    )
    run.save(tmp_path / "run.npz")
    assert Trajectory.load(tmp_path / "run.npz").settings == run.settings


def test_something_else_is_not_a_saved_run(tmp_path, problem):
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "array.npy", np.zeros(3))
    run = simulate(problem, CoordinateDescent(), updates=1)
    run.save(tmp_path / "run.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "run.npz").read_bytes()[:2000])
    for name in ("text.npz", "array.npy", "cut.npz"):
        with pytest.raises(ResumeError, match="is not a saved run"):
            Trajectory.load(tmp_path / name)


def test_the_reference_engine_keeps_single_precision():
    small = random_problem(4, n_agents=8, dtype=np.float32)
    runs = [simulate(small, CoordinateDescent(), updates=3, engine=engine) for engine in ("cpu", "reference")]
    assert runs[0].models.dtype == runs[1].models.dtype == np.float32
    assert [r.bytes for r in runs[0].records] == [r.bytes for r in runs[1].records]


def test_a_record_comes_after_all_ticks_before_it_and_no_others(problem):
    """All ticks before a record are done, none after: the count is that of the clocks."""
    run = simulate(problem, CoordinateDescent(), time=6, record_every=1.5, seed=2)
    assert run.column("time").tolist() == [0, 1.5, 3, 4.5, 6]
    gaps = np.array([[tick_gap(np.uint64(2), i, k) for k in range(40)] for i in range(problem.n_agents)])
    times = np.cumsum(gaps, axis=1) / TIME_UNIT
    assert run.column("ticks").tolist() == [(times <= t).sum() for t in (0, 1.5, 3, 4.5, 6)]


def test_records_do_not_change_the_run(problem):
    often = simulate(problem, CoordinateDescent(), time=5, record_every=0.1)
    seldom = simulate(problem, CoordinateDescent(), time=5, record_every=None)
    assert np.array_equal(often.models, seldom.models)
    assert len(seldom.records) == 2


EVERYONE_LEAVES = {agent: 9.5 + agent % 3 for agent in range(30)}


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize(
    "options",
    [
        {"updates": 40},
        {"updates": 40, "time": 33.3},
        {"ticks": 777},
        {"updates": 15, "conditions": HARSH},
        {"time": 60.0, "conditions": Conditions(leaves=EVERYONE_LEAVES)},
    ],
    ids=["updates", "time", "ticks", "absences", "leaves"],
)
def test_a_run_without_records_has_few_barriers_and_ends_alike(problem, engine, options):
    asked = [0, 0]

    def count(which):
        asked[which] += 1
        return False

    fast, slow = (
        simulate(
            problem,
            CoordinateDescent(),
            engine=engine,
            record_every=every,
            **options,
            should_stop=lambda every=every: count(0 if every is None else 1),
        )
        for every in (None, 1.0)
    )
    assert fast.final == slow.final
    assert fast.stopped == slow.stopped
    assert fast.state.keys() == slow.state.keys()
    for name, array in slow.state.items():
        np.testing.assert_array_equal(fast.state[name], array, err_msg=name)
    assert asked[0] <= asked[1] / 3


def test_tolerance_stops_near_the_optimum(problem):
    run = simulate(problem, CoordinateDescent(), tolerance=1e-12)
    assert run.stopped == "tolerance"
    assert run.final.objective == pytest.approx(solve_optimum(problem).value, rel=1e-8)


def test_a_settled_run_stays_as_it_is_when_resumed(problem):
    settled = simulate(problem, CoordinateDescent(), tolerance=1e-6)
    again = simulate(problem, CoordinateDescent(), tolerance=1e-6, resume=settled)
    assert len(again.records) == len(settled.records)
    assert np.array_equal(again.models, settled.models)


def test_some_stop_is_needed(problem):
    with pytest.raises(SimulationError, match="say when to stop"):
        simulate(problem, CoordinateDescent())


def test_a_tolerance_needs_records_to_compare(problem):
    with pytest.raises(SimulationError, match="give record_every as well"):
        simulate(problem, CoordinateDescent(), tolerance=0.1, record_every=None)


def test_a_method_that_needs_neighbors_refuses_a_problem_without_a_graph(problem):
    alone = Problem(problem.population)
    with pytest.raises(SimulationError, match="method 'cd' needs neighbors"):
        simulate(alone, CoordinateDescent(), updates=1)
    assert np.array_equal(simulate(alone, Local()).models, solve_local_models(problem))


def test_every_record_is_handed_over_as_it_is_taken(problem):
    """Also by a run that goes on: it hands over the new ones alone."""
    seen = []
    run = simulate(problem, CoordinateDescent(), time=4.5, on_record=seen.append)
    assert tuple(seen) == run.records
    assert [record.time for record in seen] == [0, 1, 2, 3, 4, 4.5]
    resumed = simulate(problem, CoordinateDescent(), time=6, resume=run, on_record=seen.append)
    assert [record.time for record in seen[len(run.records) :]] == [5, 6]
    assert resumed.records == (*seen[:5], *seen[-2:])
    seen.clear()
    local = simulate(problem, Local(), on_record=seen.append)
    assert tuple(seen) == local.records


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_measures_of_ones_own_are_recorded_as_means_over_agents(problem, engine, tmp_path):
    """An agent for which there is nothing to measure, NaN, does not count."""

    def largest(models):
        return np.abs(models).max(axis=1)

    def of_some(models):
        return np.where(np.arange(len(models)) < 3, models[:, 0], np.nan)

    measures = {"largest": largest, "of some": of_some}
    run = simulate(problem, CoordinateDescent(), engine=engine, updates=3, measures=measures)
    assert run.column("largest")[0] == 0
    assert run.column("largest")[-1] == pytest.approx(largest(run.models).mean(), rel=1e-12)
    assert run.final.measures["of some"] == pytest.approx(run.models[:3, 0].mean(), rel=1e-12)
    run.save(tmp_path / "run.npz")
    loaded = Trajectory.load(tmp_path / "run.npz")
    assert np.array_equal(loaded.column("largest"), run.column("largest"))
    with pytest.raises(DataError, match=r"there are .*largest, of some"):
        run.column("smallest")


@pytest.mark.parametrize("method", [CoordinateDescent(), Local()])
def test_a_measure_cannot_change_the_run_and_gives_one_value_per_agent(problem, method):
    def meddling(models):
        models.fill(9.0)
        return np.ones(len(models))

    stop: dict[str, Any] = {} if method == Local() else {"updates": 2}
    scalar: Any = lambda models: 1.0  # noqa: E731
    with pytest.raises(ValueError, match="read-only"):
        simulate(problem, method, measures={"meddling": meddling}, **stop)
    with pytest.raises(SimulationError, match="one value per agent"):
        simulate(problem, method, measures={"one": scalar}, **stop)


def test_one_step_is_one_update_of_the_reference_engine(problem):
    """From everyone's start, by whoever ticks first; also for an agent without neighbors."""
    lonely = random_problem(4, n_agents=30, density=0.0)
    start = np.random.default_rng(0).normal(size=(30, problem.dimension))
    for task in (problem, lonely):
        run = simulate(task, CoordinateDescent(start), engine="reference", ticks=1, seed=5)
        (agent,) = np.flatnonzero(run.updates).tolist()
        np.testing.assert_allclose(step(task, start, agent), run.models[agent], rtol=1e-14, atol=1e-15)
        assert not np.array_equal(run.models[agent], start[agent])


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize(
    "conditions",
    [Conditions(), HARSH, Conditions(loss=0.2), Conditions(joins={2: 1.0})],
    ids=["ideal", "harsh", "loss", "joins"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(problem, engine, conditions, tmp_path):
    options = {"engine": engine, "conditions": conditions, **SAVED}
    whole = simulate(problem, CoordinateDescent("local"), **options)
    asked = iter([False, False, False, True])
    part = simulate(problem, CoordinateDescent("local"), should_stop=lambda: next(asked), **options)
    assert part.stopped == "interrupted"
    assert part.final.time == 3.0
    part.save(tmp_path / "run.npz")
    resumed = simulate(
        problem, CoordinateDescent("local"), resume=Trajectory.load(tmp_path / "run.npz"), **options
    )
    assert np.array_equal(resumed.models, whole.models)
    for name in ("time", "ticks", "objective", "vectors", "bytes"):
        assert np.array_equal(resumed.column(name), whole.column(name))
    assert all(np.array_equal(resumed.state[name], whole.state[name]) for name in ("next_ticks", "updates"))


@pytest.mark.parametrize(("short", "long"), [({"time": 4.3}, {"time": 9}), ({"ticks": 50}, {"ticks": 131})])
def test_a_longer_run_can_be_resumed(problem, short, long):
    first = simulate(problem, CoordinateDescent(), seed=6, **short)
    resumed = simulate(problem, CoordinateDescent(), seed=6, resume=first, **long)
    whole = simulate(problem, CoordinateDescent(), seed=6, **long)
    assert np.array_equal(resumed.models, whole.models)
    assert np.array_equal(resumed.column("time"), whole.column("time"))
    assert np.array_equal(resumed.column("objective"), whole.column("objective"))


def test_resuming_something_else_is_refused(problem):
    saved = simulate(problem, CoordinateDescent(), **SAVED)
    with pytest.raises(ResumeError, match="belongs to another problem"):
        simulate(random_problem(5, n_agents=30), CoordinateDescent(), resume=saved, **SAVED)
    with pytest.raises(ResumeError, match="the saved run had seed = 3, this one has 4"):
        simulate(problem, CoordinateDescent(), resume=saved, updates=20, seed=4)
    with pytest.raises(ResumeError, match="the saved run had method = 'cd', this one has 'propagation'"):
        simulate(problem, ModelPropagation(), resume=saved, **SAVED)


def test_baselines_share_the_same_trajectory(problem):
    local, one = simulate(problem, Local()), simulate(problem, Global())
    assert np.array_equal(local.models, solve_local_models(problem))
    assert (one.models == one.models[0]).all()
    assert local.final.vectors == one.final.vectors == 0
    assert local.final.objective == CollaborativeObjective(problem).value(local.models)


def test_propagation_reaches_its_own_optimum(problem):
    method = ModelPropagation()
    run = simulate(problem, method, updates=200)
    objective = method.prepare(problem, 0).objective
    assert isinstance(objective, PropagationObjective)
    assert np.abs(objective.gradient(run.models)).max() < 1e-10


def test_an_agent_that_is_alone_learns_its_local_model():
    problem = random_problem(1, n_agents=6, density=0.0, max_samples=20)
    run = simulate(problem, CoordinateDescent(), updates=3000, record_every=None)
    np.testing.assert_allclose(run.models, solve_local_models(problem), atol=1e-6)


class LogCosh(NamedTuple):
    """A loss that Flockwise does not have: log cosh(s − y)."""

    scale: float

    def value(self, score, target):
        return self.scale * math.log(math.cosh(score - target))

    def slope(self, score, target):
        return self.scale * math.tanh(score - target)

    @property
    def outputs(self):
        return 1

    @property
    def curvature(self):
        return self.scale

    def slope_bound(self, norm):
        return self.scale

    def predict(self, scores):
        return scores[:, 0]

    def valid_targets(self, targets):
        return np.isfinite(targets)

    @property
    def expects(self):
        return "a finite number"

    @property
    def metric(self):
        return "rmse"


def test_a_loss_of_ones_own_works_in_every_engine():
    base = random_problem(2, n_agents=10)
    problem = Problem(base.population, base.graph, Objective(LogCosh(1.5)))
    runs = [
        simulate(problem, CoordinateDescent(), updates=10, engine=engine) for engine in ("cpu", "reference")
    ]
    np.testing.assert_allclose(runs[0].models, runs[1].models, rtol=1e-10, atol=1e-14)
    converged = simulate(problem, CoordinateDescent(), tolerance=1e-13)
    assert np.abs(CollaborativeObjective(problem).gradient(converged.models)).max() < 1e-4
