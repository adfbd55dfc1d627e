"""The cpu engine: compiled, multi-threaded, and the same run as the reference engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from flockwise.engine.at_once import RunAtOnce
from flockwise.engine.base import ENGINES, Run, RunSettings
from flockwise.engine.cpu.descent_run import DescentRun
from flockwise.engine.cpu.meetings_run import MeetingsRun
from flockwise.engine.reference.rounds import run_rounds
from flockwise.method.rules import Descent, Meetings, Outcome, Rounds, Rule, Solved

__all__ = ["CpuEngine", "DescentRun"]


class CpuEngine:
    """Exact parallel asynchrony in numba; conversations at once where there is a fast way."""

    name: ClassVar[str] = "cpu"
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
                return RunAtOnce(run_rounds(rule) if rule.at_once is None else rule.at_once())
            case Solved():
                return RunAtOnce.solved(rule)


ENGINES.register(CpuEngine())
