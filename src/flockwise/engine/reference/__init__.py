"""The reference engine: real agent objects for every kind of rule. Slow, plain to read, and the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from flockwise.engine.at_once import RunAtOnce
from flockwise.engine.base import ENGINES, Run, RunSettings
from flockwise.engine.reference.descent import DescentRun, SimulatedClock
from flockwise.engine.reference.meetings import MeetingsRun
from flockwise.engine.reference.rounds import run_rounds
from flockwise.method.rules import Descent, Meetings, Rounds, Rule, Solved

__all__ = ["ReferenceEngine", "SimulatedClock"]


class ReferenceEngine:
    """Agents driven one at a time."""

    name: ClassVar[str] = "reference"
    rules: ClassVar[frozenset[type]] = frozenset({Solved, Descent, Meetings, Rounds})

    def start(
        self, rule: Rule, settings: RunSettings, state: Mapping[str, NDArray[Any]] | None = None
    ) -> Run:
        match rule:
            case Descent():
                return DescentRun(rule, settings, state)
            case Meetings():
                return MeetingsRun(rule, settings, state)
            case Rounds():
                return RunAtOnce(run_rounds(rule))
            case Solved():
                return RunAtOnce.solved(rule)


ENGINES.register(ReferenceEngine())
