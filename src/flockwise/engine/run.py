"""simulate(problem, method, …) → Trajectory: one verb for every method and engine."""

from __future__ import annotations

import hashlib
import time as wall_clock
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.engine.conditions import Conditions
from flockwise.engine.cpu import CpuEngine
from flockwise.engine.gossip_cpu import GossipCpuEngine
from flockwise.engine.gossip_reference import GossipReferenceEngine
from flockwise.engine.reference import ReferenceEngine
from flockwise.engine.schedule import time_of_tick
from flockwise.errors import PrivacyError, ResumeError, SimulationError
from flockwise.method import (
    CoordinateDescent,
    Descent,
    Global,
    Gossip,
    GossipADMM,
    Local,
    LocalDP,
    LowPass,
    ModelPropagation,
    ReleaseOnce,
)
from flockwise.objective import CollaborativeObjective, Problem
from flockwise.randomness.clocks import NEVER, TIME_UNIT
from flockwise.results.metrics import agent_metrics
from flockwise.results.own import OwnModels
from flockwise.results.trajectory import Record, Trajectory

Method = Local | Global | LocalDP | CoordinateDescent | ModelPropagation | GossipADMM | ReleaseOnce | LowPass
# Those that may be private: they state a guarantee, and finish silently.
PrivateMethod = CoordinateDescent | ReleaseOnce
EngineName = Literal["cpu", "reference"]
Progress = Callable[[int, int | None], None]

# Simulated times in mean intervals between two ticks of an agent; clocks count in finer units.
SHORTEST, LONGEST = 1e-6, 1e6
# Aim at this many seconds between two reports of progress.
REPORT_SECONDS = 0.2


class Engine(Protocol):
    """Runs the ticks of all agents, in an order that equals their order in time."""

    @property
    def models(self) -> NDArray[Any]: ...

    @property
    def results(self) -> NDArray[Any]:
        """What the agents have to show, which may be a mean of models."""
        ...

    @property
    def updates(self) -> NDArray[np.int64]: ...

    @property
    def next_ticks(self) -> NDArray[np.int64]: ...

    def advance(self, until: int, max_sweeps: int) -> bool:
        """Do all ticks up to `until`, or `max_sweeps` sweeps; says whether all are done."""
        ...

    def vectors_sent(self, until: int) -> int:
        """Models sent along an edge up to now, lost ones included."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, to be saved and given back as `state`."""
        ...


ENGINES: Mapping[tuple[type, str], Callable[..., Engine]] = {
    (Descent, "cpu"): CpuEngine,
    (Descent, "reference"): ReferenceEngine,
    (Gossip, "cpu"): GossipCpuEngine,
    (Gossip, "reference"): GossipReferenceEngine,
}


def simulate(
    problem: Problem,
    method: Method,
    *,
    engine: EngineName = "cpu",
    seed: int = 0,
    updates: int | None = None,
    ticks: int | None = None,
    time: float | None = None,
    tolerance: float | None = None,
    record_every: float | None = 1.0,
    test: Population | None = None,
    conditions: Conditions | None = None,
    threads: int | None = None,
    resume: Trajectory | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Trajectory:
    """Run a method on a problem with the paper's asynchronous clocks, exactly.

    Stops when every agent has done `updates` updates, after `ticks` ticks of all agents together,
    at simulated `time` (one unit is the mean interval between two ticks of an agent), or when the
    objective changed by less than `tolerance` (relative) between two records with at least one tick
    per agent on average between them, whichever is first.
    Records are taken every `record_every` units of time, and at the start and the end; None takes
    just these two. `test` gives the accuracy or RMSE in the records. `resume` goes on with a saved
    run, to the same end as if it had never stopped. `progress` is called with the ticks done and
    the ticks to do, if known. `should_stop` is asked now and then; the run then ends at the next
    barrier and can be resumed.
    """
    if isinstance(method, Local | Global | LocalDP):
        return _solved(problem, method, test)
    if isinstance(method, LowPass):
        return _smoothed(problem, method, test)
    conditions = conditions or Conditions()
    updates = _planned_updates(method, updates, tolerance)
    stops = Stops(updates, ticks, time, tolerance, record_every)
    settings = {
        "method": method.name,
        "method_settings": _method_settings(method),
        "engine": engine,
        "seed": _checked_seed(seed),
        "updates": None if updates is None else int(updates),
        "record_every": None if record_every is None else float(record_every),
        "conditions": _plain(asdict(conditions)),
    }
    if resume is not None:
        _check_resumable(resume, problem, settings)
    guarantee = method.guarantee(problem) if isinstance(method, PrivateMethod) else None
    run = _Run(problem, method, engine, seed, stops, conditions, threads, test, resume)
    stopped = run.to_the_end(progress, should_stop)
    trajectory = replace(run.trajectory(method.name, settings, stopped), guarantee=guarantee)
    return _with_own_models(trajectory, problem, method, test)


def _planned_updates(method: Method, updates: int | None, tolerance: float | None) -> int | None:
    """As many updates as a private run has planned, or fewer; and no stop that would tell of the data."""
    if not isinstance(method, CoordinateDescent) or method.privacy is None:
        return updates
    planned = method.privacy.updates
    if tolerance is not None:
        raise PrivacyError(
            f"tolerance={tolerance} stops a private run by its objective, and when it stops would then tell "
            "of the data; stop by updates, ticks or time"
        )
    if updates is not None and updates > planned:
        raise PrivacyError(f"updates={updates}: the budget is planned for {planned} updates; plan for more")
    return planned if updates is None else updates


def _with_own_models(
    run: Trajectory, problem: Problem, method: Method, test: Population | None
) -> Trajectory:
    """With what the agents keep for themselves, in a private run."""
    own = method.finish(problem, run.models) if isinstance(method, PrivateMethod) else None
    return run if own is None else _with_own(run, problem, own, test)


def _with_own(
    run: Trajectory, problem: Problem, own: NDArray[np.float64], test: Population | None
) -> Trajectory:
    scores = None if test is None else agent_metrics(problem.loss, test, own)
    return replace(run, own_models=own.view(OwnModels), own_metrics=scores)


class Stops:
    """When to record and when to stop, checked."""

    def __init__(
        self,
        updates: int | None,
        ticks: int | None,
        time: float | None,
        tolerance: float | None,
        record_every: float | None,
    ) -> None:
        limits = {"updates": updates, "ticks": ticks, "time": time, "tolerance": tolerance}
        if all(limit is None for limit in limits.values()):
            raise SimulationError("say when to stop: give updates, ticks, time or tolerance")
        for name in ("updates", "ticks"):
            _check_whole(name, limits[name])
        for name, length in {"time": time, "record_every": record_every}.items():
            if length is not None and not SHORTEST <= length <= LONGEST:
                raise SimulationError(f"{name} must be from {SHORTEST} to {LONGEST}, got {name}={length}")
        if tolerance is not None and not 0 < tolerance < 1:
            raise SimulationError(f"tolerance must be between 0 and 1, got tolerance={tolerance}")
        if tolerance is not None and record_every is None:
            raise SimulationError("tolerance compares two records: give record_every as well")
        self.updates = NEVER if updates is None else updates
        self.ticks = ticks
        self.time = time
        self.tolerance = tolerance
        self.record_every = record_every


class _Run:
    """An engine driven from barrier to barrier."""

    def __init__(
        self,
        problem: Problem,
        method: CoordinateDescent | ModelPropagation | GossipADMM | ReleaseOnce,
        engine: str,
        seed: int,
        stops: Stops,
        conditions: Conditions,
        threads: int | None,
        test: Population | None,
        resume: Trajectory | None,
    ) -> None:
        self._problem = problem
        self._prepared = method.prepare(problem)
        self._objective = self._prepared.objective()
        self._stops = stops
        self._test = test
        self._records = _records_on_the_grid(resume.records, stops.record_every) if resume else []
        maker = ENGINES.get((type(self._prepared), engine))
        if maker is None:
            raise SimulationError(f"engine must be 'cpu' or 'reference', got engine={engine!r}")
        table = conditions.table(problem.n_agents)
        self._engine = maker(
            self._prepared,
            table,
            seed,
            stops.updates,
            ideal=conditions.are_ideal,
            state=dict(resume.state) if resume else None,
            threads=threads,
        )
        self._now = int(resume.state["now"]) if resume else 0
        self._end, self._end_reason = self._find_end(table, seed)
        self._sweeps = 1
        if not self._records:
            self._record()

    def _find_end(self, table: Any, seed: int) -> tuple[int, str]:
        """The time limit or the time of the last tick wanted, whichever is first, and which it is."""
        ends = {"time": NEVER if self._stops.time is None else int(self._stops.time * TIME_UNIT)}
        if self._stops.ticks is not None:
            left = self._stops.ticks - int(self._engine.updates.sum())
            clocks = self._engine.next_ticks, self._engine.updates
            ends["ticks"] = (
                time_of_tick(left, table, seed, self._stops.updates, *clocks) if left > 0 else self._now
            )
        reason = min(ends, key=lambda name: ends[name])
        return ends[reason], reason

    def to_the_end(self, progress: Progress | None, should_stop: Callable[[], bool] | None) -> str:
        """Go from barrier to barrier, and say why the run stopped."""
        step = int((self._stops.record_every or 1.0) * TIME_UNIT)
        while True:
            if (self._engine.next_ticks == NEVER).all():
                return self._finish("updates")
            if self._now >= self._end:
                return self._finish(self._end_reason)
            if self._has_settled():
                return "tolerance"
            if should_stop is not None and should_stop():
                return self._finish("interrupted")
            barrier = min((self._now // step + 1) * step, self._end)
            self._advance(barrier, progress)
            if self._stops.record_every is not None:
                self._record()

    def _finish(self, reason: str) -> str:
        if self._records[-1].ticks != int(self._engine.updates.sum()):
            self._record()
        return reason

    def _advance(self, barrier: int, progress: Progress | None) -> None:
        done = False
        while not done:
            started = wall_clock.perf_counter()
            done = self._engine.advance(barrier, self._sweeps)
            elapsed = wall_clock.perf_counter() - started
            if elapsed < REPORT_SECONDS / 2:
                self._sweeps = min(2 * self._sweeps, 2**30)
            elif elapsed > 2 * REPORT_SECONDS:
                self._sweeps = max(self._sweeps // 2, 1)
            if progress is not None:
                progress(int(self._engine.updates.sum()), self._expected_ticks())
        self._now = barrier

    def _expected_ticks(self) -> int | None:
        n_agents = self._problem.n_agents
        bounds = [self._stops.ticks]
        if self._stops.updates < NEVER:
            bounds.append(self._stops.updates * n_agents)
        if self._stops.time is not None:
            bounds.append(int(self._stops.time * n_agents))
        return min((bound for bound in bounds if bound is not None), default=None)

    def _record(self) -> None:
        models = self._engine.results
        vectors = self._engine.vectors_sent(self._now)
        scores = self._scores()
        self._records.append(
            Record(
                time=self._now / TIME_UNIT,
                ticks=int(self._engine.updates.sum()),
                objective=self._objective.value(models),
                metric=_mean(scores),
                metric_sd=_spread(scores),
                vectors=vectors,
                bytes=vectors * models.shape[1] * models.dtype.itemsize,
            )
        )

    def _scores(self) -> NDArray[np.float64] | None:
        if self._test is None:
            return None
        return agent_metrics(self._problem.loss, self._test, self._engine.results)

    def _has_settled(self) -> bool:
        if self._stops.tolerance is None:
            return False
        now = self._records[-1]
        # A change is worth judging once every agent has had a turn on average.
        earlier = [r for r in self._records if now.ticks - r.ticks >= self._problem.n_agents]
        return bool(earlier) and abs(earlier[-1].objective - now.objective) <= self._stops.tolerance * abs(
            now.objective
        )

    def trajectory(self, name: str, settings: dict[str, Any], stopped: str) -> Trajectory:
        return Trajectory(
            method=name,
            models=self._engine.results.copy(),
            records=tuple(self._records),
            loss=self._problem.loss,
            agent_names=self._problem.population.agent_names,
            updates=self._engine.updates.copy(),
            agent_metrics=self._scores(),
            problem_fingerprint=self._problem.fingerprint,
            settings=settings,
            stopped=stopped,
            state=self._engine.arrays() | {"now": np.array(self._now)},
        )


def _solved(problem: Problem, method: Local | Global | LocalDP, test: Population | None) -> Trajectory:
    """A baseline that is solved and not simulated: one record, no tick, no message."""
    models = method.solve(problem)
    scores = None if test is None else agent_metrics(problem.loss, test, models)
    value = CollaborativeObjective(problem).value(models)
    return Trajectory(
        method=method.name,
        models=models,
        records=(Record(0.0, 0, value, _mean(scores), _spread(scores), 0, 0),),
        loss=problem.loss,
        agent_names=problem.population.agent_names,
        updates=np.zeros(problem.n_agents, np.int64),
        agent_metrics=scores,
        problem_fingerprint=problem.fingerprint,
        settings={"method": method.name},
        stopped="solved",
        guarantee=method.guarantee(problem) if isinstance(method, LocalDP) else None,
    )


def _smoothed(problem: Problem, method: LowPass, test: Population | None) -> Trajectory:
    """Computed at once, with one record, whose traffic is all that the protocol sends, set-up included."""
    smoothing, own = method.solve(problem)
    traffic = method.traffic(problem, smoothing)
    models = smoothing.beliefs.vectors
    scores = None if test is None else agent_metrics(problem.loss, test, models)
    value = CollaborativeObjective(problem).value(models)
    sent = traffic.all_vectors, traffic.all_bytes
    run = Trajectory(
        method=method.name,
        models=models,
        records=(Record(0.0, 0, value, _mean(scores), _spread(scores), *sent),),
        loss=problem.loss,
        agent_names=problem.population.agent_names,
        updates=smoothing.hops,
        agent_metrics=scores,
        problem_fingerprint=problem.fingerprint,
        settings={
            "method": method.name,
            "method_settings": _method_settings(method),
            "vectors_by_stage": traffic.vectors,
            "bytes_by_stage": traffic.bytes,
        },
        stopped="solved",
        guarantee=method.guarantee(problem),
    )
    return _with_own(run, problem, own, test)


def _records_on_the_grid(records: tuple[Record, ...], record_every: float | None) -> list[Record]:
    """Without a last record that was taken only because the run stopped there."""
    last = round(records[-1].time * TIME_UNIT)
    step = None if record_every is None else int(record_every * TIME_UNIT)
    is_on_grid = last == 0 if step is None else last % step == 0
    return list(records if is_on_grid else records[:-1])


def _mean(scores: NDArray[np.float64] | None) -> float:
    return float("nan") if scores is None or np.isnan(scores).all() else float(np.nanmean(scores))


def _spread(scores: NDArray[np.float64] | None) -> float:
    return float("nan") if scores is None or np.isnan(scores).all() else float(np.nanstd(scores))


def _checked_seed(seed: int) -> int:
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise SimulationError(f"seed must be a whole number from 0 to 2^64 - 1, got seed={seed!r}")
    return int(seed)


def _check_whole(name: str, number: Any) -> None:
    if number is None:
        return
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 1 <= number < 2**62:
        raise SimulationError(f"{name} must be a whole number from 1 on, got {name}={number!r}")


def _method_settings(method: Any) -> dict[str, Any]:
    """The method's fields, arrays by their hash: enough to see whether a resumed run is the same."""
    values = {f.name: getattr(method, f.name) for f in fields(method)}
    return {name: _setting(value) for name, value in values.items()}


def _setting(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if is_dataclass(value):
        return {"kind": type(value).__name__} | _method_settings(value)
    if isinstance(value, list | tuple):
        return [_setting(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _check_resumable(saved: Trajectory, problem: Problem, settings: Mapping[str, Any]) -> None:
    if saved.problem_fingerprint != problem.fingerprint:
        raise ResumeError("the saved run belongs to another problem: data, graph, loss or trade-off differ")
    before = dict(saved.settings)
    for name in ("method", "method_settings", "engine", "seed", "updates", "record_every", "conditions"):
        if before.get(name) != settings[name]:
            raise ResumeError(
                f"the saved run had {name} = {before.get(name)!r}, this one has {settings[name]!r}"
            )


def _plain(value: Any) -> Any:
    """As it comes back from JSON, where keys are strings and numbers are Python's own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return _setting(value)
