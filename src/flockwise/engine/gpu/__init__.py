"""The gpu engine: a million agents on one GPU, and the same run as the other engines."""

from typing import ClassVar

from flockwise.engine.base import ENGINES, Engine, Run, RunSettings, Starts, State, show_solved
from flockwise.engine.gpu.available import missing
from flockwise.errors import FlockwiseError
from flockwise.method.rules import Descent, Solved

__all__ = ["GpuEngine"]


def descend(rule: Descent, settings: RunSettings, state: State | None) -> Run:
    from flockwise.engine.gpu.descent import DeviceRun  # brings PyTorch and Triton

    return DeviceRun(rule, settings, state)


class GpuEngine(Engine):
    """Exact parallel asynchrony in Triton; only rules that gain by it."""

    name = "gpu"
    starts: ClassVar[Starts] = {Solved: show_solved, Descent: descend}

    def missing(self) -> FlockwiseError | None:
        return missing()


ENGINES.register(GpuEngine())
