"""simulate(problem, method, …) → Trajectory: one verb for every method and engine."""

from __future__ import annotations

import hashlib
import math
import time as wall_clock
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Count, Duration, Seed, ShareInside, check_fields, fits
from flockwise.data import Population
from flockwise.engine.base import ENGINES, Judge, Run, RunSettings, Status, Sums
from flockwise.engine.conditions import Conditions
from flockwise.errors import PrivacyError, ResumeError, SimulationError
from flockwise.method.base import Method, check_method, check_prepared
from flockwise.method.rules import Rounds, Rule, Solved
from flockwise.method.start import seeds_before
from flockwise.objective import Problem
from flockwise.privacy.tracked import own_models, run_models
from flockwise.randomness.clocks import NEVER, TIME_UNIT
from flockwise.results.frames import in_order_of
from flockwise.results.metrics import agent_metrics
from flockwise.results.trajectory import Record, Trajectory
from flockwise.solve import choose_l2

Progress = Callable[[int, int | None], None]

# Aim at this many seconds between two reports of progress.
REPORT_SECONDS = 0.2
# These rules have no clock: they are one step.
AT_ONCE = (Solved, Rounds)
# What a resumed run has to share with the saved one.
KEPT = ("method", "method_settings", "engine", "seed", "updates", "record_every", "conditions")


@dataclass(frozen=True)
class Stops:
    """When to record and when to stop."""

    updates: Count | None = None
    ticks: Count | None = None
    time: Duration | None = None
    tolerance: ShareInside | None = None
    record_every: Duration | None = 1.0

    def __post_init__(self) -> None:
        check_fields(self, SimulationError)
        if self.tolerance is not None and self.record_every is None:
            raise SimulationError("tolerance compares two records: give record_every as well")

    @property
    def given(self) -> list[str]:
        """The limits that were named."""
        return [name for name in ("updates", "ticks", "time", "tolerance") if getattr(self, name) is not None]


def simulate(
    problem: Problem,
    method: Method,
    *,
    engine: str = "cpu",
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
    on_record: Callable[[Record], None] | None = None,
    measures: Mapping[str, Judge] | None = None,
) -> Trajectory:
    """Run a method on a problem with the paper's asynchronous clocks, exactly.

    Stops when every agent has done `updates` updates, after `ticks` ticks of all agents together,
    at simulated `time` (one unit is the mean interval between two ticks of an agent), or when the
    objective changed by less than `tolerance` (relative) between two records with at least one tick
    per agent on average between them, whichever is first. A method that is computed at once needs no stop.
    Records are taken every `record_every` units of time, and at the start and the end; None takes
    just these two. `test` gives the accuracy or RMSE in the records, its agents found by name; `measures`
    adds means over agents of your own judges (functions of everyone's models that give one value per
    agent). `on_record` gets each record as it is taken. `resume` goes on with a saved run, to the same end as
    if it had never stopped.
    `progress` is called with the ticks done and the ticks to do, if known. `should_stop` is asked now and
    then; the run then ends at the next barrier and can be resumed. One `seed` reaches every clock and all
    noise.
    """
    if not fits(seed, Seed):
        raise SimulationError(f"seed must be a whole number from 0 to 2^64 - 1, got seed={seed!r}")
    chosen = ENGINES[engine]
    if problem.objective.l2 == "auto":
        problem = choose_l2(problem)
    private = getattr(method, "privacy", None) is not None
    check_method(method, problem, PrivacyError if private else SimulationError)
    prepared = check_prepared(method, method.prepare(problem, int(seed)))
    stops = _planned_stops(prepared.rule, Stops(updates, ticks, time, tolerance, record_every))
    test = None if test is None else in_order_of(problem.population, test)
    conditions = conditions or Conditions()
    conditions.check_agents(problem.n_agents)
    limit = NEVER if stops.updates is None else int(stops.updates)
    run_settings = RunSettings(int(seed), limit, conditions, threads)
    _refuse_unusable(method.name, prepared.rule, stops, run_settings, resume)
    seeds = seeds_before(method) | {int(seed)}
    settings = {
        "method": method.name,
        "method_settings": _setting(method),
        "engine": engine,
        "seed": int(seed),
        "seeds": sorted(seeds),
        "updates": _setting(stops.updates),
        "record_every": _setting(stops.record_every),
        "conditions": _setting(asdict(conditions)),
    }
    if resume is not None:
        _check_resumable(resume, problem, settings)
    run = chosen.start(prepared.rule, run_settings, None if resume is None else dict(resume.state))

    def score(models: NDArray[Any]) -> NDArray[np.float64]:
        assert test is not None
        return agent_metrics(problem.loss, test, models)

    objective = None if prepared.objective is None else prepared.objective.agent_values
    judges = _Judges(objective, None if test is None else score, measures or {})
    driver = _Driver(run, stops, judges, problem.n_agents, on_record, resume)
    stopped = driver.to_the_end(progress, should_stop)
    result, state = run.result(), run.state()
    own = None if prepared.finish is None else prepared.finish(result.models, result.details)
    return Trajectory(
        method=method.name,
        models=run_models(result.models, method.name, prepared.guarantee, seeds),
        records=tuple(driver.records),
        loss=problem.loss,
        agent_names=problem.population.agent_names,
        feature_names=problem.population.feature_names,
        has_intercept=problem.population.has_intercept,
        updates=result.updates,
        agent_metrics=None if test is None else score(result.models),
        problem_fingerprint=problem.fingerprint,
        settings=settings | dict(result.settings),
        stopped="solved" if isinstance(prepared.rule, AT_ONCE) else stopped,
        state=state | {"now": np.array(driver.now)} if state else {},
        own_models=None if own is None else own_models(own),
        own_metrics=None if test is None or own is None else score(own),
        guarantee=prepared.guarantee,
    )


def _planned_stops(rule: Rule, stops: Stops) -> Stops:
    """As many updates as a private run has planned, or fewer; and no stop that would leak the data."""
    planned = getattr(rule, "planned_updates", None)
    if planned is None:
        return stops
    if stops.tolerance is not None:
        raise PrivacyError(
            f"tolerance={stops.tolerance} stops a private run by its objective, and when it stops would then "
            "leak the data; stop by updates, ticks or time"
        )
    if stops.updates is not None and stops.updates > planned:
        raise PrivacyError(
            f"updates={stops.updates}: the budget is planned for {planned} updates; plan for more"
        )
    return replace(stops, updates=stops.updates or planned)


def _refuse_unusable(
    name: str, rule: Rule, stops: Stops, settings: RunSettings, resume: Trajectory | None
) -> None:
    """An option that a rule cannot use is refused, not ignored."""
    if not isinstance(rule, AT_ONCE):
        if not stops.given:
            raise SimulationError("say when to stop: give updates, ticks, time or tolerance")
        return
    unusable = [*stops.given]
    unusable += ["threads"] if settings.threads is not None else []
    unusable += ["resume"] if resume is not None else []
    unusable += [] if settings.conditions.are_ideal else ["conditions"]
    if unusable:
        raise SimulationError(
            f"method {name!r} is computed at once and cannot use {unusable[0]}; leave it out"
        )


class _Judges(NamedTuple):
    """What records evaluate: the objective, the held-out samples, and measures of the caller's own."""

    objective: Judge | None
    test: Judge | None
    measures: Mapping[str, Judge]


class _Driver:
    """A run driven from barrier to barrier, and its records."""

    def __init__(
        self,
        run: Run,
        stops: Stops,
        judges: _Judges,
        n_agents: int,
        on_record: Callable[[Record], None] | None,
        resume: Trajectory | None,
    ) -> None:
        self._run, self._stops, self._judges, self._n_agents = run, stops, judges, n_agents
        self._on_record = on_record
        self.records = _records_on_the_grid(resume.records, stops.record_every) if resume else []
        self.now = int(resume.state["now"]) if resume else 0
        self._status = run.status(self.now)
        self._end, self._end_reason = self._find_end()
        self._sweeps = 1
        if not self.records:
            self._record()

    def _find_end(self) -> tuple[int, str]:
        """The time limit or the time of the last tick wanted, whichever is first, and which it is."""
        ends = {"time": NEVER if self._stops.time is None else int(self._stops.time * TIME_UNIT)}
        if self._stops.ticks is not None:
            left = self._stops.ticks - self._status.ticks
            ends["ticks"] = self._run.time_of_tick(left) if left > 0 else self.now
        reason = min(ends, key=lambda name: ends[name])
        return ends[reason], reason

    def to_the_end(self, progress: Progress | None, should_stop: Callable[[], bool] | None) -> str:
        """Go from barrier to barrier, and say why the run stopped."""
        step = int((self._stops.record_every or 1.0) * TIME_UNIT)
        while True:
            if self._status.next_tick == NEVER:
                return self._finish("updates")
            if self.now >= self._end:
                return self._finish(self._end_reason)
            if self._has_settled():
                return "tolerance"
            if should_stop is not None and should_stop():
                return self._finish("interrupted")
            self._advance(min((self.now // step + 1) * step, self._end), progress)
            if self._stops.record_every is not None:
                self._record()

    def _finish(self, reason: str) -> str:
        if self.records[-1].ticks != self._status.ticks:
            self._record()
        return reason

    def _advance(self, barrier: int, progress: Progress | None) -> None:
        status = Status(False, 0, 0)
        while not status.done:
            started = wall_clock.perf_counter()
            status = self._run.advance(barrier, self._sweeps)
            elapsed = wall_clock.perf_counter() - started
            if elapsed < REPORT_SECONDS / 2:
                self._sweeps = min(2 * self._sweeps, 2**30)
            elif elapsed > 2 * REPORT_SECONDS:
                self._sweeps = max(self._sweeps // 2, 1)
            if progress is not None:
                progress(status.ticks, self._expected_ticks())
        self._status, self.now = status, barrier

    def _expected_ticks(self) -> int | None:
        stops = self._stops
        bounds = [
            stops.ticks,
            None if stops.updates is None else stops.updates * self._n_agents,
            None if stops.time is None else int(stops.time * self._n_agents),
        ]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _record(self) -> None:
        value, scores = (
            Sums(0, math.nan, 0.0) if judge is None else self._run.measure(judge)
            for judge in self._judges[:2]
        )
        vectors, size = self._run.sent(self.now)
        measures = {name: self._run.measure(judge).mean for name, judge in self._judges.measures.items()}
        ticks, time = self._status.ticks, self.now / TIME_UNIT
        record = Record(time, ticks, value.total, scores.mean, scores.sd, vectors, size, measures)
        self.records.append(record)
        if self._on_record is not None:
            self._on_record(record)

    def _has_settled(self) -> bool:
        if self._stops.tolerance is None:
            return False
        now = self.records[-1]
        # A change is worth judging once every agent has had a turn on average.
        earlier = [r for r in self.records if now.ticks - r.ticks >= self._n_agents]
        return bool(earlier) and abs(earlier[-1].objective - now.objective) <= self._stops.tolerance * abs(
            now.objective
        )


def _records_on_the_grid(records: tuple[Record, ...], record_every: float | None) -> list[Record]:
    """Without a last record that was taken only because the run stopped there."""
    last = round(records[-1].time * TIME_UNIT)
    step = None if record_every is None else int(record_every * TIME_UNIT)
    is_on_grid = last == 0 if step is None else last % step == 0
    return list(records if is_on_grid else records[:-1])


def _setting(value: Any) -> Any:
    """A setting as plain values, arrays by their hash: enough to see whether a resumed run is the same."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if is_dataclass(value):
        parts = {field.name: _setting(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__} | parts
    if isinstance(value, Mapping):  # as it comes back from JSON, where keys are strings
        return {str(key): _setting(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_setting(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _check_resumable(saved: Trajectory, problem: Problem, settings: Mapping[str, Any]) -> None:
    if saved.problem_fingerprint != problem.fingerprint:
        raise ResumeError("the saved run belongs to another problem: data, graph, loss or trade-off differ")
    for name in KEPT:
        if saved.settings.get(name) != settings[name]:
            raise ResumeError(
                f"the saved run had {name} = {saved.settings.get(name)!r}, this one has {settings[name]!r}"
            )
