"""The reference engine: agent objects, driven one at a time. Slow, plain to read, and the oracle."""

from typing import ClassVar

from flockwise.engine.base import ENGINES, Engine, Run, RunAtOnce, RunSettings, Starts, State, show_solved
from flockwise.engine.reference.descent import ReferenceDescent, SimulatedClock
from flockwise.engine.reference.meetings import ReferenceMeetings
from flockwise.engine.reference.rounds import run_rounds
from flockwise.engine.reference.sums import add_up
from flockwise.method.rules import ClippedDescent, Descent, Meetings, Rounds, Solved

__all__ = ["ReferenceEngine", "SimulatedClock"]


def converse(rule: Rounds, settings: RunSettings, state: State | None) -> Run:
    """Between neighbors, or of all agents together."""
    return RunAtOnce(run_rounds(rule) if rule.sums is None else add_up(rule, rule.sums, settings))


class ReferenceEngine(Engine):
    """One agent at a time."""

    name = "reference"
    starts: ClassVar[Starts] = {
        Solved: show_solved,
        Descent: ReferenceDescent,
        ClippedDescent: ReferenceDescent,
        Meetings: ReferenceMeetings,
        Rounds: converse,
    }


ENGINES.register(ReferenceEngine())
