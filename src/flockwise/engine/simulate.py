"""simulate(problem, method, …) → Trajectory: one verb for every method and engine."""

from __future__ import annotations

import hashlib
import math
import time as wall_clock
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Count, Duration, Seed, ShareInside, check_fields, check_kind, fits
from flockwise.data import Population
from flockwise.data.rows import named_rows
from flockwise.engine.base import (
    ENGINES,
    MODELS,
    OWN_MODELS,
    Engine,
    Judge,
    Left,
    Run,
    RunSettings,
    SavedRun,
    Status,
    Sums,
)
from flockwise.engine.conditions import Conditions
from flockwise.engine.judges import DescentObjective, Score
from flockwise.errors import FlockwiseWarning, PrivacyError, ResumeError, SimulationError
from flockwise.files import new_folder
from flockwise.method.base import Method, Prepared, check_method, check_prepared
from flockwise.method.rules import Descent, Rounds, Rule, Solved
from flockwise.method.start import refuse_seed_again, seeds_before
from flockwise.objective import CollaborativeObjective, Problem
from flockwise.privacy.tracked import OWN, own_models, run_models, run_origin
from flockwise.progress import Progress, watched
from flockwise.randomness.clocks import NEVER, TIME_UNIT
from flockwise.results.frames import in_order_of
from flockwise.results.metrics import agent_metrics
from flockwise.results.stored import StoredModels
from flockwise.results.trajectory import Record, Trajectory
from flockwise.solve import certified_gap, resolve_l2, solve_local_models

# Aim at this many seconds between two reports of progress.
REPORT_SECONDS = 0.2
# How far a run goes from barrier to barrier if nothing is recorded on the way.
UNITS_UNRECORDED = 12
# Units of time between two records, unless somebody says otherwise.
RECORD_EVERY = 1.0
# Updates an agent, on average, after which a run should be near its end. A shorter one is a trial.
LONG_RUN = 100
# These rules have no clock: they are one step.
AT_ONCE = (Solved, Rounds)
# What a resumed run has to share with the saved one.
KEPT = ("method", "method_settings", "seed", "updates", "record_every", "conditions")


@dataclass(frozen=True)
class Stops:
    """When to record and when to stop."""

    updates: Count | None = None
    ticks: Count | None = None
    time: Duration | None = None
    tolerance: ShareInside | None = None
    record_every: Duration | None = RECORD_EVERY

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
    engine: str | Engine = "cpu",
    seed: int = 0,
    updates: int | None = None,
    ticks: int | None = None,
    time: float | None = None,
    tolerance: float | None = None,
    record_every: float | None = RECORD_EVERY,
    test: Population | None = None,
    conditions: Conditions | None = None,
    threads: int | None = None,
    resume: SavedRun | None = None,
    progress: Progress | Literal[False] | None = None,
    should_stop: Callable[[], bool] | None = None,
    on_record: Callable[[Record], None] | None = None,
    measures: Mapping[str, Judge] | None = None,
) -> Trajectory:
    """Run a method on a problem with the paper's asynchronous clocks, exactly.

    Stops when every agent has done `updates` updates, after `ticks` ticks of all agents together,
    at simulated `time` (one unit is the mean interval between two ticks of an agent), or when the
    objective changed by less than `tolerance` (relative) between two records with at least one tick
    per agent on average between them, whichever is first. A run that ends far from the optimum warns with its
    certified gap if `tolerance` stopped it or it took 100 updates an agent, unless its samples stay in files;
    any run has it as `run.gap`. A method that is computed at once needs no stop.
    Records are taken every `record_every` units of time, and at the start and the end; None takes
    just these two. `test` gives the accuracy or RMSE in the records, its agents found by name; `measures`
    adds means over agents of your own judges (functions of everyone's models that give one value per
    agent). `on_record` gets each record as it is taken. `resume` goes on with a saved run or a checkpoint, on
    any engine, to the same end as if it had never stopped. `engine` is a name, or an engine with settings.
    `progress` is called with the ticks done and the ticks to do, if known; without it a terminal or a
    notebook shows a bar, and False shows none. `should_stop` is asked at each record, or at least every
    12 units of time where none are taken; the run then ends and can be resumed. One `seed` reaches every
    clock and all noise.
    """
    if not fits(seed, Seed):
        raise SimulationError(f"seed must be a whole number from 0 to 2^64 - 1, got seed={seed!r}")
    check_kind(problem, Problem, "problem", SimulationError)
    if isinstance(method, type) or not hasattr(method, "prepare"):
        raise SimulationError(f"method must be a method such as CoordinateDescent(), got {method!r}")
    if test is not None:
        check_kind(test, Population, "test", SimulationError)
    chosen = ENGINES[engine] if isinstance(engine, str) else engine
    private = getattr(method, "privacy", None) is not None
    problem = resolve_l2(problem, is_private=private)
    check_method(method, problem, PrivacyError if private else SimulationError)
    prepared = check_prepared(method, method.prepare(problem, int(seed)))
    before = seeds_before(method, problem)
    if prepared.guarantee is not None:
        refuse_seed_again(int(seed), before)
    stops = _planned_stops(prepared.rule, Stops(updates, ticks, time, tolerance, record_every))
    test = None if test is None else in_order_of(problem.population, test)
    conditions = conditions or Conditions()
    conditions.check_agents(problem.n_agents)
    limit = NEVER if stops.updates is None else int(stops.updates)
    run_settings = RunSettings(int(seed), limit, conditions, threads)
    _refuse_unusable(method.name, prepared.rule, stops, run_settings, resume)
    seeds = before | {int(seed)}
    settings = {
        "method": method.name,
        "method_settings": _setting(method),
        "engine": chosen.name,
        "seed": int(seed),
        "seeds": sorted(seeds),
        "updates": _setting(stops.updates),
        "record_every": _setting(stops.record_every),
        "conditions": _setting(asdict(conditions)),
    }
    if resume is not None:
        _check_resumable(resume, problem, settings)
    score = None if test is None else Score(problem.loss, test)
    judges = _Judges(_objective_judge(prepared), score, measures or {})
    if getattr(chosen, "models", None) is not None:
        _check_divisible(method.name, prepared)
    run = chosen.start(prepared.rule, run_settings, None if resume is None else resume.state)
    try:
        driver = _Driver(run, stops, judges, problem, on_record, resume, settings)
        if progress is None:
            with watched(f"running {method.name}", "ticks") as bar:
                stopped = driver.to_the_end(bar, should_stop)
        else:
            stopped = driver.to_the_end(progress or None, should_stop)
        made = {
            "method": method.name,
            "records": tuple(driver.records),
            "loss": problem.loss,
            "agent_names": problem.population.agent_names,
            "feature_names": problem.population.feature_names,
            "has_intercept": problem.population.has_intercept,
            "fingerprint": lambda: problem.fingerprint,
            "settings": settings | _shown(prepared.rule),
            "stopped": "solved" if isinstance(prepared.rule, AT_ONCE) else stopped,
            "guarantee": prepared.guarantee,
            "sample_counts": problem.population.sample_counts,
            "alone": None if test is None else partial(_alone, problem, test),
            "certified": partial(certified_gap, problem) if _descends_to_the_optimum(prepared) else None,
        }
        folder = getattr(chosen, "models", None)
        if folder is not None:
            return _left_there(run, Path(folder), made, seeds, prepared, score)
        gathered = _gathered(run, made, driver.now, seeds, prepared, score)
        was_long = gathered.final.ticks >= LONG_RUN * problem.n_agents
        seems_done = stopped == "tolerance" or (was_long and stopped != "interrupted")
        if seems_done and problem.population.is_read:  # a gap needs all samples, which may not fit here
            _warn_if_far(gathered)
        return gathered
    finally:
        getattr(run, "close", lambda: None)()


def _descends_to_the_optimum(prepared: Prepared) -> bool:
    """Whether the run would end at the minimum of Eq. (2): a clipped mean of neighbors leads elsewhere."""
    rule = prepared.rule
    is_plain = type(rule) is Descent and rule.noise is None
    return is_plain and isinstance(prepared.objective, CollaborativeObjective)


def _warn_if_far(run: Trajectory) -> None:
    gap = run.gap
    if gap is not None and gap.is_far:
        warnings.warn(gap.words, FlockwiseWarning, stacklevel=3)


def _gathered(
    run: Run,
    made: Mapping[str, Any],
    now: int,
    seeds: Iterable[int],
    prepared: Prepared,
    score: Score | None,
) -> Trajectory:
    """A run whose models are brought here."""
    result, state = run.result(), run.state()
    own = None if prepared.finish is None else prepared.finish(result.models, result.details)
    fields = {**made, "settings": made["settings"] | dict(result.settings)}
    return Trajectory(
        **fields,
        models=run_models(result.models, made["method"], prepared.guarantee, seeds, made["agent_names"]),
        updates=result.updates,
        agent_metrics=None if score is None else score(result.models),
        state=state | {"now": np.array(now)} if state else {},
        own_models=None if own is None else own_models(own, made["agent_names"]),
        own_metrics=None if score is None or own is None else score(own),
        prior=result.prior,
    )


def _left_there(
    run: Any,
    folder: Path,
    made: Mapping[str, Any],
    seeds: Iterable[int],
    prepared: Prepared,
    score: Score | None,
) -> Trajectory:
    """A run whose models are written where they are, and read when someone asks for them."""
    assert isinstance(prepared.rule, Descent)
    start, names = prepared.rule.start, made["agent_names"]
    origin = run_origin(made["method"], prepared.guarantee, seeds)
    models = StoredModels(str(folder), MODELS, names, start.shape[1], start.dtype, origin)
    own = replace(models, stem=OWN_MODELS, dtype=np.dtype(np.float64), origin=OWN)
    found: Any = {"models": models, "own_models": None if prepared.finish is None else own}
    draft = Trajectory(**made, **found, updates=np.empty(0, np.int64), agent_metrics=None)
    schemas = {MODELS: draft.models_schema("released")}
    if prepared.finish is not None:
        schemas[OWN_MODELS] = draft.models_schema("own")
    with new_folder(folder) as part:
        left: Left = run.leave_models(part, schemas, names, prepared.finish, score)
    return replace(
        draft,
        updates=left.updates,
        agent_metrics=left.values.get(MODELS),
        own_metrics=left.values.get(OWN_MODELS),
        settings={**draft.settings, **left.settings},
    )


def _shown(rule: Rule) -> dict[str, str]:
    """Which of an agent's models a private run shows, where there are several."""
    shown = getattr(rule, "shown", None)
    return {} if shown is None else {"models": shown}


def _alone(problem: Problem, test: Population) -> NDArray[np.float64]:
    """How agents fare with the models that they learn alone."""
    return agent_metrics(problem.loss, test, solve_local_models(problem))


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
    name: str, rule: Rule, stops: Stops, settings: RunSettings, resume: SavedRun | None
) -> None:
    """An option that a rule cannot use is refused, not ignored."""
    if not isinstance(rule, AT_ONCE):
        if not stops.given:
            raise SimulationError("say when to stop: give updates, ticks, time or tolerance")
        return
    unusable = [*stops.given]
    unusable += [] if stops.record_every in (RECORD_EVERY, None) else ["record_every"]
    unusable += ["threads"] if settings.threads is not None else []
    unusable += ["resume"] if resume is not None else []
    unusable += [] if _can_bear(rule, settings.conditions) else ["conditions"]
    if unusable:
        raise SimulationError(
            f"method {name!r} is computed at once and cannot use {unusable[0]}; leave it out"
        )


def _check_divisible(name: str, prepared: Prepared) -> None:
    """Own models are made where the models are left, if that can be done for some agents alone."""
    if prepared.finish is not None and not hasattr(prepared.finish, "part"):
        raise SimulationError(
            f"method {name!r} makes own models of all agents' samples in one place, not with the shards; "
            "leave models out of the engine, and gather = false out of a configuration"
        )


def _can_bear(rule: Rule, conditions: Conditions) -> bool:
    """Whether a rule without clocks can be run so: sums do without agents that are absent."""
    if isinstance(rule, Rounds) and rule.sums is not None:
        conditions = replace(conditions, offline_share=0.0, joins={}, leaves={})
    return conditions.are_ideal


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
        problem: Problem,
        on_record: Callable[[Record], None] | None,
        resume: SavedRun | None,
        settings: Mapping[str, Any],
    ) -> None:
        self._problem, self._settings = problem, settings
        self._run, self._stops, self._judges, self._n_agents = run, stops, judges, problem.n_agents
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
        while True:
            if self._status.next_tick == NEVER:
                return self._finish("updates")
            if self.now >= self._end:
                return self._finish(self._end_reason)
            if self._has_settled():
                return "tolerance"
            if should_stop is not None and should_stop():
                self._keep(at_once=True)
                return self._finish("interrupted")
            self._advance(min(self._next_barrier(), self._end), progress)
            if self._stops.record_every is not None:
                self._record()
            self._keep()

    def _next_barrier(self) -> int:
        """The next record; without records the last unit of time before which the run is not over.

        So a run ends at the same time whether it went there unit by unit or not. It also looks up now and
        then, lest who interrupts it has to wait.
        """
        step = int((self._stops.record_every or 1.0) * TIME_UNIT)
        following = (self.now // step + 1) * step
        if self._stops.record_every is not None:
            return following
        sure = self._run.goes_on_to(self.now + UNITS_UNRECORDED * TIME_UNIT)
        return max(following, sure // step * step)

    def _keep(self, *, at_once: bool = False) -> None:
        """Let a run that saves itself do so: what it kept is a run that was interrupted here."""
        keep = getattr(self._run, "keep", None)
        if keep is not None:
            keep(self._about, at_once=at_once)

    def _about(self) -> Mapping[str, Any]:
        """The manifest of a checkpoint, beside the state of the run."""
        return {
            "settings": self._settings,
            "problem_fingerprint": self._problem.fingerprint,
            "now": self.now,
            "records": [asdict(record) for record in self.records],
        }

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
    if hasattr(value, "__arrow_c_stream__"):
        value = named_rows(value).numbers
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


def _objective_judge(prepared: Prepared) -> Judge | None:
    evaluator = prepared.objective
    if evaluator is None:
        return None
    if getattr(evaluator, "is_of_descent", False) and isinstance(prepared.rule, Descent):
        return DescentObjective(evaluator)
    return evaluator.agent_values


def _check_resumable(saved: SavedRun, problem: Problem, settings: Mapping[str, Any]) -> None:
    if saved.problem_fingerprint != problem.fingerprint:
        raise ResumeError("the saved run belongs to another problem: data, graph, loss or trade-off differ")
    if not saved.state:
        raise ResumeError(
            "the saved run holds no state, since its shards kept their models; go on from its checkpoints: "
            "resume=Checkpoint.read(folder)"
        )
    for name in KEPT:
        if saved.settings.get(name) != settings[name]:
            raise ResumeError(
                f"the saved run had {name} = {saved.settings.get(name)!r}, this one has {settings[name]!r}"
            )
