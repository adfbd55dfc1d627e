"""Shards as actors of a Ray cluster: one on each machine, with threads inside."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from flockwise.engine.ray.piece import Piece
from flockwise.engine.ray.shard import Shard
from flockwise.engine.ray.workers import ShardLost
from flockwise.errors import FlockwiseError, SimulationError

# Ray reports a lost shard at once, and a lost machine within a minute. A shard that is silent for so many
# seconds is at work: it answers when it has done what it was told before.
PATIENCE = 120.0
# How long it may take until all of a cluster know which machines there are.
SETTLING_SECONDS = 2.0
CONNECT_SECONDS = 10.0
# How often to start a cluster on this machine. Ray gives up on one that is not there after half a minute, as
# may be on a busy machine.
STARTS = 4
# Room for pieces and messages in a cluster that this process starts. Unused room takes no memory.
LOCAL_STORE_BYTES = 4 << 30


class ShardActor:
    """A shard as Ray holds it."""

    def __init__(self, number: int, piece: Piece, *settings: Any) -> None:
        self._number, self._made_of = number, (piece, *settings)

    @cached_property
    def _shard(self) -> Shard:
        """Made at the first call: what it refuses, such as a damaged file, is then that call's refusal."""
        return Shard(*self._made_of)

    def pid(self) -> int:
        return os.getpid()

    def call(self, method: str, *arguments: Any) -> Any:
        """What goes wrong is told in words: Ray brings no traceback, and not every exception can travel."""
        try:
            return getattr(self._shard, method)(*arguments)
        except FlockwiseError:
            raise
        except Exception as error:
            raise SimulationError(
                f"shard {self._number} failed in {method!r}: {_first_line(error)}"
            ) from error

    def call_spread(self, method: str, size: int, *arguments: Any) -> Any:
        """Ray takes one return value as it is, and several from a tuple."""
        found = self.call(method, *arguments)
        return found[0] if size == 1 else found


class RayCluster:
    """A connection to a cluster: one that runs already, or one of this process."""

    def __init__(self, address: str | None) -> None:
        self.ray = _import_ray()
        if self.ray.is_initialized():
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Ray about itself
                if address is None:
                    self._start()
                else:
                    _check_reachable(address)
                    self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray has no narrower type for some of what goes wrong
            what = "a Ray cluster cannot be started on this machine"
            if address is not None:
                what = f"no Ray cluster answers at {address!r}; start one there, or leave the address out"
            raise SimulationError(f"{what} ({_first_line(error)})") from error

    def _start(self) -> None:
        """A cluster of this process, also where `RAY_ADDRESS` names another or one runs on this machine."""
        for starts_left in reversed(range(STARTS)):
            try:
                self._start_once()
                return
            except Exception:
                self.ray.shutdown()  # what there is of the cluster
                if not starts_left:
                    raise

    def _start_once(self) -> None:
        self.ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=LOCAL_STORE_BYTES,
            num_cpus=max(os.cpu_count() or 1, 1),
        )

    def nodes(self) -> list[Any]:
        """Machines that are there, always in the same order; not a head that was given no processors."""
        alive = [node for node in self.ray.nodes() if node["Alive"]]
        working = [node for node in alive if node["Resources"].get("CPU", 0) >= 1]
        return sorted(working or alive, key=lambda node: node["NodeID"])


class RayWorkers:
    """An actor for each piece. Each machine gets the same number of them, give or take one."""

    def __init__(
        self,
        cluster: RayCluster,
        pieces: Iterable[Piece],
        n_shards: int,
        threads: int | None,
        settings: Sequence[Any],
    ) -> None:
        self._cluster, self._ray, self._settings = cluster, cluster.ray, settings
        nodes = cluster.nodes()
        homes = Counter(k % len(nodes) for k in range(n_shards))
        self._threads = [
            threads or max(1, int(nodes[k % len(nodes)]["Resources"].get("CPU", 1)) // homes[k % len(nodes)])
            for k in range(n_shards)
        ]
        # A step that Ray tried again would run on an actor without a state; the run starts actors anew.
        self._class = self._ray.remote(max_restarts=0, max_task_retries=0, num_cpus=0)(ShardActor)
        self._pieces = [self._ray.put(piece) for piece in pieces]
        self._actors = [self._new_actor(k, nodes[k % len(nodes)]) for k in range(n_shards)]

    def _new_actor(self, shard: int, node: Any) -> Any:
        from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
            NodeAffinitySchedulingStrategy,
        )

        # Ray often takes another machine where it may. Where it may not, a shard is lost with its machine.
        home = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        seed, limit, most_neighbors = self._settings
        arguments = shard, self._pieces[shard], seed, limit, self._threads[shard], most_neighbors
        return self._class.options(scheduling_strategy=home).remote(*arguments)

    def submit(self, shard: int, method: str, arguments: Sequence[Any]) -> Any:
        return self._actors[shard].call.remote(method, *arguments)

    def submit_spread(self, shard: int, method: str, arguments: Sequence[Any], size: int) -> Sequence[Any]:
        if size == 0:
            return ()
        call = self._actors[shard].call_spread.options(num_returns=size)
        handles = call.remote(method, size, *arguments)
        return [handles] if size == 1 else handles

    def wait(self, handles: Sequence[Any]) -> list[Any]:
        try:
            return self._ray.get(list(handles))
        except self._ray.exceptions.RayTaskError as error:
            # Others may be writing: who clears away what the failed ones leave has to find all of it.
            self._ray.wait(list(handles), num_returns=len(handles), timeout=PATIENCE)
            raise _own_error(error, self._ray.exceptions.RayError) from error
        except self._ray.exceptions.RayError as error:
            raise ShardLost(_first_line(error)) from error

    def replace_lost(self) -> None:
        signs = [actor.pid.remote() for actor in self._actors]
        self._ray.wait(signs, num_returns=len(signs), timeout=PATIENCE)
        time.sleep(SETTLING_SECONDS)
        nodes = self._cluster.nodes()
        for shard, actor in enumerate(self._actors):
            try:
                self._ray.get(signs[shard], timeout=0)
            except self._ray.exceptions.GetTimeoutError:
                continue
            except self._ray.exceptions.RayError:
                self._ray.kill(actor)
                self._actors[shard] = self._new_actor(shard, nodes[shard % len(nodes)])

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._pieces.clear()


def _import_ray() -> Any:
    # Ray sets it else for actors without CPUs of their own, and OpenMP would then use one thread.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # A run says what went wrong in a shard. Ray would print a traceback for each of the others.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray about itself
        import ray  # pyright: ignore[reportMissingImports]
        import ray.exceptions  # pyright: ignore[reportMissingImports]
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes before it gives up."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in address:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _own_error(error: Any, of_ray: type[Exception]) -> Exception:
    """What a shard refused, as it would have been refused here; or that what it was sent is lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, of_ray):
        return ShardLost(_first_line(cause))
    if isinstance(cause, FlockwiseError):
        return cause
    return SimulationError(f"a shard failed: {_first_line(cause or error)}")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
