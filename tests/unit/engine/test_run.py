"""Stops, records, resuming, baselines and losses of one's own."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support import random_problem

from murmura.engine import Conditions, simulate
from murmura.engine.schedule import time_of_tick
from murmura.engine.state import first_ticks
from murmura.errors import ResumeError, SimulationError
from murmura.method import CoordinateDescent, Global, Local, ModelPropagation
from murmura.objective import CollaborativeObjective, Problem, solve_local_models, solve_optimum
from murmura.randomness.clocks import NEVER, TIME_UNIT, tick_gap
from murmura.results.trajectory import Trajectory

HARSH = Conditions(delay=0.5, loss=0.2, offline_share=0.3, offline_length=1.5, joins={3: 2.0})
SAVED: dict[str, Any] = {"updates": 20, "seed": 3}


@pytest.fixture(scope="module")
def problem():
    return random_problem(4, n_agents=30, density=0.2)


def test_stop_after_updates(problem):
    run = simulate(problem, CoordinateDescent(), updates=7)
    assert (run.updates == 7).all()
    assert run.stopped == "updates"
    assert run.final.ticks == 7 * problem.n_agents
    assert run.final.vectors == 7 * problem.graph.neighbors.size
    assert run.final.bytes == run.final.vectors * problem.dimension * 8


def test_first_broadcasts_count(problem):
    run = simulate(problem, CoordinateDescent("local"), updates=2)
    assert run.records[0].vectors == problem.graph.neighbors.size
    assert run.final.vectors == 3 * problem.graph.neighbors.size


def test_stop_after_ticks_is_exact(problem):
    for ticks in (1, 29, 400):
        run = simulate(problem, CoordinateDescent(), ticks=ticks, seed=5)
        assert run.final.ticks == ticks
        assert run.stopped == "ticks"


def test_time_of_a_tick_is_found_from_the_clocks_alone():
    table, seed, n_agents = Conditions().table(40), 8, 40
    times = np.cumsum(
        [[tick_gap(np.uint64(seed), i, k) for k in range(60)] for i in range(n_agents)], axis=1
    ).ravel()
    clocks = first_ticks(table, np.uint64(seed), n_agents), np.zeros(n_agents, np.int64)
    for n_ticks in (1, 2, 39, 500):
        assert time_of_tick(n_ticks, table, seed, NEVER, *clocks) == np.sort(times)[n_ticks - 1]


def test_more_ticks_than_the_clocks_have(problem):
    with pytest.raises(SimulationError, match="tick only 60 more times, fewer than ticks=61"):
        simulate(problem, CoordinateDescent(), ticks=61, updates=2)


def test_barriers_cut_time(problem):
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
    with pytest.raises(SimulationError, match="updates must be positive, got updates=0"):
        simulate(problem, CoordinateDescent(), updates=0)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("conditions", [Conditions(), HARSH], ids=["ideal", "harsh"])
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


def test_a_longer_time_can_be_resumed(problem):
    first = simulate(problem, CoordinateDescent(), time=4, seed=6)
    longer = simulate(problem, CoordinateDescent(), time=9, seed=6, resume=first)
    assert np.array_equal(longer.models, simulate(problem, CoordinateDescent(), time=9, seed=6).models)


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
    objective = method.prepare(problem).objective()
    assert np.abs(objective.gradient(run.models)).max() < 1e-10


def test_an_agent_that_is_alone_learns_its_local_model():
    problem = random_problem(1, n_agents=6, density=0.0, max_samples=20)
    run = simulate(problem, CoordinateDescent(), updates=3000, record_every=None)
    np.testing.assert_allclose(run.models, solve_local_models(problem), atol=1e-6)


class LogCosh(NamedTuple):
    """A loss that Murmura does not have: log cosh(s − y)."""

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
    problem = Problem(base.population, base.graph, LogCosh(1.5))
    runs = [
        simulate(problem, CoordinateDescent(), updates=10, engine=engine) for engine in ("cpu", "reference")
    ]
    np.testing.assert_allclose(runs[0].models, runs[1].models, rtol=1e-10, atol=1e-14)
    converged = simulate(problem, CoordinateDescent(), tolerance=1e-13)
    assert np.abs(CollaborativeObjective(problem).gradient(converged.models)).max() < 1e-4
