"""The simulated driver: exact asynchronous runs, on a plain event queue or compiled."""

from flockwise.engine.base import ENGINES, Engine, Judge, Run, RunSettings
from flockwise.engine.checkpoint import Checkpoint
from flockwise.engine.conditions import Conditions
from flockwise.engine.cpu import CpuEngine
from flockwise.engine.gpu import GpuEngine
from flockwise.engine.ray import RayEngine
from flockwise.engine.reference import ReferenceEngine
from flockwise.engine.simulate import simulate

__all__ = [
    "ENGINES",
    "Checkpoint",
    "Conditions",
    "CpuEngine",
    "Engine",
    "GpuEngine",
    "Judge",
    "RayEngine",
    "ReferenceEngine",
    "Run",
    "RunSettings",
    "simulate",
]
