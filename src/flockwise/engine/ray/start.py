"""From a rule to a run on shards: connect, cut, and hand each shard its piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import RunSettings, State
from flockwise.engine.ray.cluster import RayCluster, RayWorkers
from flockwise.engine.ray.cut import checked_parts, cut, cut_edges, warn_of_bad_cut
from flockwise.engine.ray.piece import Piece, pieces
from flockwise.engine.ray.run import ShardedRun
from flockwise.engine.ray.workers import InProcess, Workers
from flockwise.errors import SimulationError
from flockwise.method.rules import Descent

if TYPE_CHECKING:
    from flockwise.engine.ray import RayEngine

MakeWorkers = Callable[[Iterator[Piece], int, tuple[int, int, int]], Workers]


def start_run(engine: RayEngine, rule: Descent, settings: RunSettings, state: State | None) -> ShardedRun:
    """On a Ray cluster."""
    cluster = RayCluster(engine.address)
    n_shards = engine.shards or min(len(cluster.nodes()), rule.n_agents)

    def workers(parts: Iterator[Piece], count: int, about: tuple[int, int, int]) -> Workers:
        return RayWorkers(cluster, parts, count, settings.threads, about)

    return sharded(rule, settings, state, n_shards, workers, engine)


def start_here(
    rule: Descent, settings: RunSettings, n_shards: int, state: State | None = None, **options: Any
) -> ShardedRun:
    """In this process, without Ray: for tests, and to see what a cut would cost."""
    from flockwise.engine.ray import RayEngine

    def workers(parts: Iterator[Piece], count: int, about: tuple[int, int, int]) -> Workers:
        seed, limit, most_neighbors = about
        return InProcess(parts, seed, limit, settings.threads, most_neighbors)

    return sharded(rule, settings, state, n_shards, workers, RayEngine(**options))


def sharded(
    rule: Descent,
    settings: RunSettings,
    state: State | None,
    n_shards: int,
    make_workers: MakeWorkers,
    engine: RayEngine,
) -> ShardedRun:
    """Cut the rule and start the run."""
    if engine.models is not None and Path(engine.models).exists():
        raise SimulationError(f"models: {engine.models} is there already; name a new folder")
    parts = _parts(engine.parts, rule, n_shards)
    count = int(parts.max()) + 1
    crossing = cut_edges(rule.edges, parts, count)
    share = float(crossing.sum() / max(rule.edges.neighbors.size, 1))
    warn_of_bad_cut(share, count)
    folder = None if engine.folder is None else Path(engine.folder)
    about = settings.seed, settings.limit, int(rule.edges.counts.max(initial=0))
    workers = make_workers(pieces(rule, parts, count), count, about)
    neighbors = [np.flatnonzero(row).tolist() for row in crossing]
    try:
        run = ShardedRun(rule, settings, state, parts, neighbors, workers, folder, engine)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except BaseException:
        workers.close()
        raise
    run.traffic.cut_share = share
    return run


def _parts(given: Any, rule: Descent, n_shards: int) -> NDArray[np.int32]:
    """The shard of each position, without shards that would be empty."""
    if given is not None:
        found = checked_parts(given, rule.n_agents, n_shards)
    else:
        found = cut(rule.edges, n_shards, rule.local.sizes + rule.edges.counts)
    return np.unique(found, return_inverse=True)[1].astype(np.int32)
