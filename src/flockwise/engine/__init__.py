"""The simulated driver: exact asynchronous runs, on a plain event queue or compiled."""

from flockwise.engine.base import ENGINES, Engine, Judge, Run, RunSettings
from flockwise.engine.conditions import Conditions
from flockwise.engine.cpu import CpuEngine
from flockwise.engine.reference import ReferenceEngine
from flockwise.engine.simulate import simulate

__all__ = [
    "ENGINES",
    "Conditions",
    "CpuEngine",
    "Engine",
    "Judge",
    "ReferenceEngine",
    "Run",
    "RunSettings",
    "simulate",
]
