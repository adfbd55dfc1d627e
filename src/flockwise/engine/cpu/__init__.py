"""The cpu engine: compiled, multi-threaded, and the same run as the reference engine."""

from typing import ClassVar

from flockwise.code_cache import nothing_compiles
from flockwise.engine.base import ENGINES, Engine, Run, RunAtOnce, RunSettings, Starts, State, show_solved
from flockwise.engine.cpu.descent import DescentRun
from flockwise.engine.cpu.meetings import MeetingsRun
from flockwise.engine.reference.rounds import run_rounds
from flockwise.engine.reference.sums import add_up_at_once
from flockwise.errors import FlockwiseError
from flockwise.method.rules import Descent, Meetings, Rounds, Solved

__all__ = ["CpuEngine", "DescentRun"]


def converse(rule: Rounds, settings: RunSettings, state: State | None) -> Run:
    """All agents at once where the method knows how, else as the reference engine does it."""
    if rule.sums is not None:
        return RunAtOnce(add_up_at_once(rule, rule.sums, settings))
    return RunAtOnce(run_rounds(rule) if rule.at_once is None else rule.at_once(rule.ids))


class CpuEngine(Engine):
    """Exact parallel asynchrony in numba."""

    name = "cpu"
    uses_threads = True
    starts: ClassVar[Starts] = {
        Solved: show_solved,
        Descent: DescentRun,
        Meetings: MeetingsRun,
        Rounds: converse,
    }

    def missing(self) -> FlockwiseError | None:
        return nothing_compiles()


ENGINES.register(CpuEngine())
