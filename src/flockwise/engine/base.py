"""What an engine is: it starts a run of a rule, and a run advances, measures and hands back its state.

Sums over agents are computed where the models are (`measure`): a run may hold them on another device or on
other machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Count, check_fields
from flockwise.engine.conditions import Conditions
from flockwise.errors import SimulationError
from flockwise.method.rules import Rule
from flockwise.randomness.clocks import NEVER
from flockwise.registry import Registry


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
    """Where a run is.

    done: whether all ticks up to the time asked for are done. next_tick: NEVER at the end.
    """

    done: bool
    ticks: int
    next_tick: int


class Judge(Protocol):
    """Gives each agent a value, from everyone's models; NaN where an agent has none."""

    def __call__(self, models: NDArray[Any]) -> NDArray[np.float64]: ...


class Sums(NamedTuple):
    """Sums over agents of what a judge gave them: enough for totals, means and spreads."""

    agents: int
    total: float
    squares: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Sums:
        known = values[~np.isnan(values)]
        return cls(known.size, float(known.sum()), float(np.square(known).sum()))

    @property
    def mean(self) -> float:
        return self.total / self.agents if self.agents else math.nan

    @property
    def sd(self) -> float:
        return math.sqrt(max(self.squares / self.agents - self.mean**2, 0.0)) if self.agents else math.nan


class Result(NamedTuple):
    """What a run has to show: everyone's model, and what else its finish needs.

    settings: what a result file says about how it came about.
    """

    models: NDArray[Any]
    updates: NDArray[np.int64]
    details: Any = None
    settings: Mapping[str, Any] = {}


class Run(Protocol):
    """One run of a rule."""

    def status(self, until: int) -> Status: ...

    def advance(self, until: int, max_sweeps: int) -> Status:
        """Do all ticks up to `until`, or as many as `max_sweeps` sweeps do."""
        ...

    def time_of_tick(self, left: int) -> int:
        """When the tick comes that is so many ticks of all agents away; NEVER if there are fewer."""
        ...

    def measure(self, judge: Judge) -> Sums:
        """Sums over agents, computed where the models are."""
        ...

    def sent(self, until: int) -> tuple[int, int]:
        """Vectors and bytes sent along edges up to now, lost ones included."""
        ...

    def result(self) -> Result:
        """Everyone's model, gathered."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the run needs to go on, as plain arrays; empty where a rule cannot be resumed."""
        ...


class Engine(Protocol):
    """Runs kinds of rule. `start` refuses, by name, what it cannot do."""

    name: ClassVar[str]
    rules: ClassVar[frozenset[type]]

    def start(
        self, rule: Any, settings: RunSettings, state: Mapping[str, NDArray[Any]] | None = None
    ) -> Run: ...


ENGINES: Registry[Engine] = Registry("engine", SimulationError)


def check_engine(engine: Engine, rule: Rule) -> None:
    """Refuse a kind of rule that an engine does not run."""
    if type(rule) not in engine.rules:
        able = [other.name for other in ENGINES if type(rule) in other.rules]
        raise SimulationError(
            f"engine {engine.name!r} does not run {type(rule).__name__.lower()}; use engine={able[0]!r}"
            if able
            else f"no engine runs {type(rule).__name__.lower()}"
        )
