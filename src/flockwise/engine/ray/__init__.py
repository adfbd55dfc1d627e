"""The ray engine: one run on many machines, the same to the last bit for any number of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from flockwise.checks import Count, NotNegative, check_fields
from flockwise.code_cache import nothing_compiles
from flockwise.engine.base import ENGINES, Engine, Run, RunSettings, Starts, State, show_solved
from flockwise.errors import FlockwiseError, MissingExtra, SimulationError
from flockwise.method.rules import Descent, Rule, Solved


def start_descent(
    rule: Descent, settings: RunSettings, state: State | None, engine: RayEngine | None = None
) -> Run:
    """Without an engine's settings: a shard for each machine."""
    if not settings.conditions.are_ideal:
        raise SimulationError(
            'engine "ray" runs the ideal network, without delays, losses or absences; leave conditions '
            'out, or use engine="cpu"'
        )
    # Imported here: only who runs it needs Ray.
    from flockwise.engine.ray.start import start_run

    return start_run(engine or RayEngine(), rule, settings, state)


@dataclass(frozen=True)
class RayEngine(Engine):
    """Runs `simulate(..., engine=RayEngine(...))` on a Ray cluster.

    shards: how many parts the agents are cut into; by default one for each machine of the cluster.
    address: of a cluster that runs already ("auto" finds one on this machine); by default one is started.
    folder: for checkpoints; all machines have to see it. Without one a lost shard sets the run back to its
        start.
    models: a new folder, which all machines see. Each shard writes its agents' models there, as
        models-*.parquet; a run then gathers them only when someone reads `run.models`. What agents keep for
        themselves in a private run is own-models-*.parquet.
    checkpoint_every: seconds between two checkpoints, which are made at the next barrier.
    parts: the shard of each agent, if the graph was cut beforehand.
    on_progress: called after each super-step with how far each shard is (flockwise.engine.ray.progress).
    """

    shards: Count | None = None
    address: str | None = None
    folder: str | Path | None = None
    models: str | Path | None = None
    checkpoint_every: NotNegative = 60.0
    parts: Any = None
    on_progress: Callable[[Any], None] | None = None
    name: ClassVar[str] = "ray"
    uses_threads: ClassVar[bool] = True
    starts: ClassVar[Starts] = {Solved: show_solved, Descent: start_descent}

    def __post_init__(self) -> None:
        check_fields(self, SimulationError)

    def missing(self) -> FlockwiseError | None:
        return nothing_compiles() if find_spec("ray") else MissingExtra('engine="ray"', "cluster")

    def start(self, rule: Rule, settings: RunSettings, state: State | None = None) -> Run:
        if isinstance(rule, Descent) and self.missing() is None:
            return start_descent(rule, settings, state, self)
        if self.models is not None and isinstance(rule, Solved):
            raise SimulationError("this method is computed at once and has no shards; leave models out")
        return super().start(rule, settings, state)


ENGINES.register(RayEngine())
