"""The reference engine: agent objects, driven one at a time. Slow, plain to read, and the oracle."""

from typing import ClassVar

from flockwise.engine.base import ENGINES, Engine, RunAtOnce, Starts, show_solved
from flockwise.engine.reference.descent import ReferenceDescent, SimulatedClock
from flockwise.engine.reference.meetings import ReferenceMeetings
from flockwise.engine.reference.rounds import run_rounds
from flockwise.method.rules import Descent, Meetings, Rounds, Solved

__all__ = ["ReferenceEngine", "SimulatedClock"]


class ReferenceEngine(Engine):
    """One agent at a time."""

    name = "reference"
    starts: ClassVar[Starts] = {
        Solved: show_solved,
        Descent: ReferenceDescent,
        Meetings: ReferenceMeetings,
        Rounds: lambda rule, settings, state: RunAtOnce(run_rounds(rule)),
    }


ENGINES.register(ReferenceEngine())
