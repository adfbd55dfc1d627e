"""What an engine is: it starts a run of a rule, and a run advances, measures and hands back its state."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Count, check_fields
from flockwise.engine.conditions import Conditions, ConditionTable, count_extra_models, scheduled_tick
from flockwise.engine.schedule import time_of_tick
from flockwise.engine.state import MeetingsState
from flockwise.errors import FlockwiseError, SimulationError
from flockwise.method.admm import vectors_sent
from flockwise.method.rules import Descent, Meetings, Outcome, Rule, Solved, Traffic
from flockwise.randomness.clocks import NEVER
from flockwise.registry import Registry
from flockwise.results.trajectory import Record
from flockwise.solve.prior import Prior


@dataclass(frozen=True)
class RunSettings:
    """How to run a rule. limit: after so many updates an agent has no clock any more."""

    seed: int = 0
    limit: int = NEVER
    conditions: Conditions = field(default_factory=Conditions)
    threads: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self, SimulationError)


class Status(NamedTuple):
    """Where a run is. done: whether all ticks up to the given time are done. next_tick: NEVER at the end."""

    done: bool
    ticks: int
    next_tick: int


# Values of the agents of a part, from its rule and the models of its agents and then of their neighbors.
PartJudge: TypeAlias = Callable[[Descent, NDArray[Any]], NDArray[np.float64]]


# Own models of the agents of a part, from the same.
PartFinish: TypeAlias = Callable[[Descent, NDArray[Any]], NDArray[np.float64]]
# The names of files with models, and of those with what private runs make of them and agents keep.
MODELS, OWN_MODELS = "models", "own-models"


class Judge(Protocol):
    """Gives each agent a value, from everyone's models; NaN where an agent has none."""

    def __call__(self, models: NDArray[Any]) -> NDArray[np.float64]: ...


@runtime_checkable
class DivisibleJudge(Judge, Protocol):
    """A judge that can be taken to where the agents are, a part of it for a part of them."""

    def part(self, agents: NDArray[np.int64]) -> PartJudge:
        """For the agents at these positions: small enough to be sent, and without other agents' samples."""
        ...


class DivisibleFinish(Protocol):
    """A finish that can be taken to where the agents are, a part of it for a part of them."""

    def part(self, agents: NDArray[np.int64]) -> PartFinish: ...


class Sums(NamedTuple):
    """Sums over agents of what a judge gave them: enough for totals, means and spreads."""

    agents: int
    total: float
    squares: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Sums:
        known = values[~np.isnan(values)]
        return cls(known.size, float(known.sum()), float(np.square(known).sum()))

    @classmethod
    def judged(cls, judge: Judge, models: NDArray[Any]) -> Sums:
        """Of a judge's values; it may look at the models and not change them."""
        shown = models.view()
        shown.flags.writeable = False
        values = np.asarray(judge(shown), np.float64)
        if values.shape != (len(models),):
            raise SimulationError(
                f"a measure must give one value per agent, shape ({len(models)},), got shape {values.shape}"
            )
        return cls.of(values)

    @classmethod
    def added(cls, parts: Iterable[Sums]) -> Sums:
        """Of all parts of the agents, in the order given."""
        agents, totals, squares = zip(*parts, strict=True)
        return cls(sum(agents), sum(totals), sum(squares))

    @property
    def mean(self) -> float:
        return self.total / self.agents if self.agents else math.nan

    @property
    def sd(self) -> float:
        return math.sqrt(max(self.squares / self.agents - self.mean**2, 0.0)) if self.agents else math.nan


class Result(NamedTuple):
    """What a run ends with.

    details: what the finish needs besides the models. settings: what a result file says about the run.
    prior: over everyone's models, if one was learned.
    """

    models: NDArray[Any]
    updates: NDArray[np.int64]
    details: Any = None
    settings: Mapping[str, Any] = {}
    prior: Prior | None = None


class Left(NamedTuple):
    """What a run ends with whose models stay where they are. values: of a judge, by kind of model."""

    updates: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    settings: Mapping[str, Any]


State: TypeAlias = Mapping[str, NDArray[Any]]


class SavedRun(Protocol):
    """What a run can go on from: a trajectory, or a checkpoint."""

    @property
    def records(self) -> tuple[Record, ...]: ...

    @property
    def state(self) -> State: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def problem_fingerprint(self) -> str: ...


class Run(Protocol):
    """One run of a rule; its models may be on another device or on other machines.

    Such a run may have more methods: `keep(about, at_once=...)`, called at barriers with a function that
    gives what is to be saved beside its state, and with at_once where the run is interrupted; `close()`,
    called at the end in any case; and `leave_models`, in place of `result` and `state`, which has files
    written where the models are.
    """

    def status(self, until: int) -> Status: ...

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do all ticks up to `until`, or as many as `max_sweeps` sweeps do."""
        ...

    def time_of_tick(self, left: int) -> int:
        """When the tick comes that is so many ticks of all agents away; NEVER if there are fewer."""
        ...

    def goes_on_to(self, until: int) -> int:
        """A time after which a tick is sure to come, at most `until`."""
        ...

    def measure(self, judge: Judge) -> Sums:
        """Sums over agents, computed where the models are."""
        ...

    def sent(self, until: int) -> tuple[int, int]:
        """Vectors and bytes sent along edges up to `until`, lost ones included."""
        ...

    def result(self) -> Result:
        """Everyone's model, gathered."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the run needs to go on, as plain arrays; empty where a rule cannot be resumed."""
        ...


class ClockedRun(ABC):
    """What all runs share in which agents tick and all arrays are in this process."""

    def __init__(self, rule: Descent | Meetings, settings: RunSettings) -> None:
        if isinstance(rule, Meetings) and not settings.conditions.are_ideal:
            # Both ends of an edge act on one tick, which a late or lost message makes impossible.
            raise SimulationError(
                "gossip ADMM exchanges models both ways at once and needs the ideal network; "
                "leave conditions out, or use CoordinateDescent"
            )
        self.ids, self.settings, self.seed = rule.ids, settings, np.uint64(settings.seed)
        self.table = settings.conditions.table(rule.ids)
        self._bytes_per_vector = rule.start[0].nbytes

    @property
    @abstractmethod
    def models(self) -> NDArray[Any]: ...

    @property
    @abstractmethod
    def updates(self) -> NDArray[np.int64]:
        """How often each agent has ticked."""

    @property
    @abstractmethod
    def next_ticks(self) -> NDArray[np.int64]: ...

    @abstractmethod
    def vectors_sent(self, until: int) -> int: ...

    def shown_models(self) -> NDArray[Any]:
        """What records and results show."""
        return self.models

    def status(self, until: int) -> Status:
        next_tick = int(self.next_ticks.min())
        return Status(next_tick > until, int(self.updates.sum()), next_tick)

    def time_of_tick(self, left: int) -> int:
        clocks = self.ids, self.next_ticks, self.updates
        return time_of_tick(left, self.table, self.settings.seed, self.settings.limit, *clocks)

    def goes_on_to(self, until: int) -> int:
        """By the clock of the agent that has done the fewest updates."""
        updates, next_ticks = self.updates, self.next_ticks
        agent = int(np.argmin(np.where(next_ticks < NEVER, updates, NEVER)))
        tick, update = int(next_ticks[agent]), int(updates[agent])
        while tick <= until and (update := update + 1) < self.settings.limit:
            following = int(scheduled_tick(self.table, self.seed, int(self.ids[agent]), update, tick))
            if following == NEVER:
                break
            tick = following
        return min(tick - 1, until)

    def measure(self, judge: Judge) -> Sums:
        return Sums.judged(judge, self.shown_models())

    def sent(self, until: int) -> tuple[int, int]:
        count = self.vectors_sent(until)
        return count, count * self._bytes_per_vector

    def result(self) -> Result:
        return Result(self.shown_models().copy(), self.updates.copy())


def models_sent(
    rule: Descent, updates: NDArray[np.int64], table: ConditionTable, seed: np.uint64, until: int
) -> int:
    """One per update and neighbor, the first broadcasts, and what the conditions add."""
    edges = rule.edges
    return int(updates @ edges.counts) + count_extra_models(
        table, seed, rule.ids, edges.offsets, edges.neighbors, rule.start_is_public, until
    )


class MeetingsRunBase(ClockedRun):
    """A run of gossip ADMM, whose state is arrays over agents and edges in every engine."""

    def __init__(self, rule: Meetings, settings: RunSettings, state: State | None = None) -> None:
        super().__init__(rule, settings)
        self._meetings = rule
        begun = MeetingsState.from_arrays(state) if state else None
        self._begun = begun or MeetingsState.begin(rule, self.table, self.seed)

    @property
    @abstractmethod
    def held(self) -> MeetingsState:
        """What all agents hold now."""

    @property
    def models(self) -> NDArray[Any]:
        return self.held.models

    @property
    def updates(self) -> NDArray[np.int64]:
        """Ticks of the agent itself; being woken does not count."""
        return self.held.updates

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        return self.held.next_ticks

    def vectors_sent(self, until: int) -> int:
        return vectors_sent(self._meetings, self.updates)

    def state(self) -> dict[str, NDArray[Any]]:
        return self.held._asdict()


class RunAtOnce:
    """A rule without a clock: finished when it starts, with everything sent."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def status(self, until: int) -> Status:
        return Status(True, 0, NEVER)

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        return self.status(until)

    def time_of_tick(self, left: int) -> int:
        return NEVER

    def goes_on_to(self, until: int) -> int:
        return 0

    def measure(self, judge: Judge) -> Sums:
        return Sums.judged(judge, self._outcome.models)

    def sent(self, until: int) -> tuple[int, int]:
        return self._outcome.traffic.all_vectors, self._outcome.traffic.all_bytes

    def result(self) -> Result:
        outcome = self._outcome
        by_stage = {"vectors_by_stage": outcome.traffic.vectors, "bytes_by_stage": outcome.traffic.bytes}
        settings: dict[str, Any] = by_stage if outcome.traffic.vectors else {}
        if outcome.advice is not None:
            settings |= {"advice": outcome.advice}
        return Result(outcome.models, outcome.rounds, outcome.details, settings, outcome.prior)

    def state(self) -> dict[str, NDArray[Any]]:
        return {}


def show_solved(rule: Solved, settings: RunSettings, state: State | None) -> Run:
    """A run that was over before it began: no tick, no message."""
    none = np.zeros(rule.n_agents, np.int64)
    return RunAtOnce(Outcome(rule.models, none, Traffic.none(), prior=rule.prior, advice=rule.advice))


Starts: TypeAlias = Mapping[type, Callable[[Any, RunSettings, State | None], Run]]


class Engine:
    """A subclass is a table: what starts a run of each kind of rule, new or from the state of a saved one.

    uses_threads: whether `RunSettings.threads` changes anything; otherwise they are refused.
    """

    name: ClassVar[str]
    uses_threads: ClassVar[bool] = False
    starts: ClassVar[Starts]

    def missing(self) -> FlockwiseError | None:
        """What this machine lacks for it, and what to do about that; None if nothing."""
        return None

    def start(self, rule: Rule, settings: RunSettings, state: State | None = None) -> Run:
        kind = type(rule)
        if kind not in self.starts:
            able = sorted(f"; use engine={other.name!r}" for other in ENGINES if kind in other.starts)
            raise SimulationError(
                f"engine {self.name!r} does not run {getattr(kind, 'words', kind.__name__.lower())}"
                + "".join(able[:1])
            )
        if settings.threads is not None and not self.uses_threads:
            raise SimulationError(
                f"engine {self.name!r} cannot use threads; leave them out, or use engine='cpu'"
            )
        missing = self.missing()
        if missing is not None:
            raise missing
        if isinstance(rule, Descent):
            rule = rule.in_memory
        return self.starts[kind](rule, settings, state)


ENGINES: Registry[Engine] = Registry("engine", SimulationError)
