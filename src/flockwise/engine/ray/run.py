"""A run on shards: super-steps in a sliding window, records as sums, checkpoints, and lost shards."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import (
    DivisibleFinish,
    DivisibleJudge,
    Judge,
    Left,
    PartJudge,
    Result,
    RunSettings,
    State,
    Status,
    Sums,
)
from flockwise.engine.checkpoint import CheckpointState, remove_unfinished, shard_file, write_manifest
from flockwise.engine.ray.progress import CutTraffic, Progress
from flockwise.engine.ray.workers import ShardLost, Workers
from flockwise.engine.state import DescentState
from flockwise.errors import SimulationError
from flockwise.method.rules import Descent
from flockwise.randomness.clocks import NEVER, TIME_UNIT

# How far a super-step goes beyond the earliest tick of all. Without an end to it shards take turns; with a
# nearer one there are more super-steps.
WINDOW = TIME_UNIT // 4
# Losses without a checkpoint in between after which a run gives up.
MOST_LOSSES = 5

if TYPE_CHECKING:
    from flockwise.engine.ray import RayEngine

Found = TypeVar("Found")


class ShardedRun:
    """A descent whose agents are spread over workers; the same run for any number of them."""

    def __init__(
        self,
        rule: Descent,
        settings: RunSettings,
        state: State | None,
        parts: NDArray[np.int32],
        neighbors: Sequence[Sequence[int]],
        workers: Workers,
        folder: Path | None,
        engine: RayEngine,
    ) -> None:
        """neighbors: of each shard, the shards that share an edge with it. folder: for checkpoints."""
        self._rule, self._settings, self._workers = rule, settings, workers
        self._n_shards, self._neighbors, self._parts = len(neighbors), neighbors, parts
        self._folder, self._on_progress = folder, engine.on_progress
        self._every, self._saved_at = engine.checkpoint_every, -math.inf
        self._start_state = state
        self._saved: list[str] | None = None
        self._parts_of_judges: dict[int, tuple[Judge, list[PartJudge]]] = {}
        self._losses, self._reached = 0, 0
        self._name = secrets.token_hex(4)
        self.traffic = CutTraffic(self._n_shards)
        self._robustly(self._begin)

    # What the shards are told, and what becomes of those that are lost.

    def _each(self, method: str, *arguments: Any) -> list[Any]:
        """Call all shards with the same arguments."""
        return self._each_own(method, [arguments] * self._n_shards)

    def _each_own(self, method: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        calls = [self._workers.submit(k, method, arguments[k]) for k in range(self._n_shards)]
        return self._workers.wait(calls)

    def _each_with_messages(
        self, method: str, arguments: Sequence[Sequence[Any]], before: int
    ) -> tuple[list[list[Any]], list[dict[int, Any]]]:
        """Of what shards return, the first handles, and then those of messages by the shard they are for."""
        calls = [
            self._workers.submit_spread(k, method, arguments[k], before + len(others))
            for k, others in enumerate(self._neighbors)
        ]
        messages = [
            dict(zip(others, call[before:], strict=True))
            for others, call in zip(self._neighbors, calls, strict=True)
        ]
        return [list(call[:before]) for call in calls], messages

    def _begin(self) -> None:
        """All shards at the last checkpoint, or at the start of this run."""
        self._statuses: list[Any] = []
        self._inboxes = [[None] * len(others) for others in self._neighbors]
        if self._saved is not None:
            self._each("load_files", self._saved)
        elif isinstance(self._start_state, CheckpointState):
            self._each("load_files", [str(file) for file in self._start_state.files])
        elif self._start_state is not None:
            everyone = np.arange(self._rule.n_agents)
            arrays = DescentState.from_arrays(self._start_state).to_arrays()
            self._each("load", everyone, arrays)
        else:
            self._each("begin")
        for number, (_, parts) in enumerate(self._parts_of_judges.values()):
            self._teach(number, parts)
        # Nothing fires before the beginning of time; this tells the clocks.
        self._super_step(-1)

    def _robustly(self, work: Callable[[], Found]) -> Found:
        """Do it; if a shard is lost, roll all back to the last checkpoint and do it again.

        The others could go on from where they are, but would wait for the lost one to catch up: so they
        may as well do their ticks again beside it, to the same bits.
        """
        is_lost = False
        while True:
            try:
                if is_lost:
                    self._roll_back()
                return work()
            except ShardLost as loss:
                is_lost = True
                self._losses += 1
                self.traffic.losses += 1
                if self._losses > MOST_LOSSES:
                    raise SimulationError(self._lost_too_often(loss)) from loss

    def _lost_too_often(self, loss: ShardLost) -> str:
        since = "since the last checkpoint" if self._saved is not None else "and there is no checkpoint yet"
        return (
            f"shards were lost {self._losses} times {since}, the last time by: {loss}; Ray's logs on their "
            "machine say why. If memory was short there, add machines to the cluster and use more shards: on "
            "the same machines more shards take as much"
        )

    def _roll_back(self) -> None:
        self._workers.replace_lost()
        self._begin()
        while not self._is_done(self._reached):
            self._super_step(self._reached)

    # Super-steps.

    def _super_step(self, until: int) -> None:
        """All shards take in what they were sent, fire what they can up to a time, and send."""
        arguments = [(until, *inbox) for inbox in self._inboxes]
        calls, outboxes = self._each_with_messages("step", arguments, before=1)
        statuses = self._workers.wait([call[0] for call in calls])
        self._inboxes = [
            [outboxes[other][k] if statuses[other].fired else None for other in self._neighbors[k]]
            for k in range(self._n_shards)
        ]
        self._statuses = statuses
        self.traffic.add(statuses)
        if self._on_progress is not None:
            self._on_progress(Progress.of(statuses))

    @property
    def _next_tick(self) -> int:
        return min(status.next_tick for status in self._statuses)

    def _is_done(self, until: int) -> bool:
        """Whether all ticks up to `until` are done, and everyone knows."""
        return self._next_tick > until and all(status.fired == 0 for status in self._statuses)

    def status(self, until: int) -> Status:
        return Status(self._is_done(until), sum(status.ticks for status in self._statuses), self._next_tick)

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do all ticks up to `until`, or as many as `max_sweeps` super-steps do."""
        self._reached = max(self._reached, until)

        def step_by_step() -> None:
            for _ in range(max_sweeps):
                if self._is_done(until):
                    return
                self._super_step(min(until, self._next_tick + WINDOW) if self._next_tick < NEVER else until)

        self._robustly(step_by_step)
        return self.status(until)

    def goes_on_to(self, until: int) -> int:
        """No further than to the next tick: barriers are also where checkpoints are made."""
        return min(self._next_tick - 1, until)

    def time_of_tick(self, left: int) -> int:
        """Found by bisection: how many ticks come up to a time, the shards count."""
        return self._robustly(lambda: self._time_of_tick(left))

    def _time_of_tick(self, left: int) -> int:
        def enough(until: int) -> bool:
            return sum(self._each("count_ticks", until)) >= left

        low, step = self._next_tick, TIME_UNIT
        if low == NEVER or (self._settings.limit < NEVER and not enough(NEVER - 1)):
            return NEVER
        while not enough(low + step):
            step *= 2
        high = low + step
        low -= 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    # Records and results.

    def measure(self, judge: Judge) -> Sums:
        """Where the models are, if the judge can be taken there; else here, of all models."""
        if not isinstance(judge, DivisibleJudge):
            return Sums.judged(judge, self._robustly(self._gathered)[0])
        number = self._number_of(judge)
        return Sums.added(self._robustly(lambda: self._measured(number)))

    def _number_of(self, judge: DivisibleJudge) -> int:
        if id(judge) not in self._parts_of_judges:
            parts = [judge.part(np.flatnonzero(self._parts == k)) for k in range(self._n_shards)]
            self._parts_of_judges[id(judge)] = judge, parts
            number = len(self._parts_of_judges) - 1
            self._robustly(lambda: self._teach(number, parts))
        return list(self._parts_of_judges).index(id(judge))

    def _teach(self, number: int, parts: Sequence[PartJudge]) -> None:
        self._each_own("learn_judge", [(number, part) for part in parts])

    def _measured(self, number: int) -> list[Sums]:
        return self._each_own("measure", self._with_shown([(number,)] * self._n_shards))

    def _with_shown(self, arguments: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Arguments for each shard, and what its ghosts show, where that is not as they are."""
        if self._rule.noise is None:
            return list(arguments)
        # Private runs show averages, which the shards that run the ghosts have.
        _, shown = self._each_with_messages("boundary", [()] * self._n_shards, before=0)
        inboxes = [[shown[other][k] for other in others] for k, others in enumerate(self._neighbors)]
        return [(*given, *inbox) for given, inbox in zip(arguments, inboxes, strict=True)]

    def sent(self, until: int) -> tuple[int, int]:
        """The ideal network loses nothing: one vector per update and neighbor, and first ones."""
        count = sum(self._robustly(lambda: self._each("vectors_sent")))
        if not self._rule.start_is_public:
            count += self._rule.edges.neighbors.size
        return count, count * self._rule.start[0].nbytes

    def _gathered(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        models, updates = zip(*self._each("result"), strict=True)
        return self._in_order(models), self._in_order(updates)

    def result(self) -> Result:
        models, updates = self._robustly(self._gathered)
        return Result(models, updates, settings={"shards": self.traffic.summary()})

    def leave_models(
        self,
        folder: Path,
        schemas: Mapping[str, Any],
        names: Sequence[str],
        finish: DivisibleFinish | None,
        score: DivisibleJudge | None,
    ) -> Left:
        number = None if score is None else self._number_of(score)
        agents = [np.flatnonzero(self._parts == k) for k in range(self._n_shards)]
        finishes = None if finish is None else [finish.part(those) for those in agents]
        called = [[names[int(place)] for place in those] for those in agents]

        def leave() -> Left:
            # From the beginning, since a shard that was started anew has no own models.
            if finishes is not None:
                self._each_own("finish", self._with_shown([(part,) for part in finishes]))
            for which, schema in schemas.items():
                files = [str(folder / f"{which}-{k:05d}.parquet") for k in range(self._n_shards)]
                self._each_own(
                    "write_models", [(which, *one, schema) for one in zip(files, called, strict=True)]
                )
            judged = () if number is None else schemas
            values = {which: self._in_order(self._each("values", number, which)) for which in judged}
            return Left(self._in_order(self._each("updates")), values, {"shards": self.traffic.summary()})

        return self._robustly(leave)

    def _in_order(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """What the shards have of their agents, of all agents together."""
        whole = np.empty((len(self._parts), *parts[0].shape[1:]), parts[0].dtype)
        for k, part in enumerate(parts):
            whole[self._parts == k] = part
        return whole

    def state(self) -> dict[str, NDArray[Any]]:
        return self._robustly(self._whole_state)

    def _whole_state(self) -> dict[str, NDArray[Any]]:
        parts = self._each("state")
        return {name: self._in_order([part[name] for part in parts]) for name in parts[0]}

    # Checkpoints.

    def keep(self, about: Callable[[], Mapping[str, Any]], *, at_once: bool = False) -> None:
        """Save all shards, then say so in the manifest: from then on a lost shard goes back to here only.

        at_once: although the last time may be a moment ago.
        """
        folder = self._folder
        if folder is None or not (at_once or time.monotonic() >= self._saved_at + self._every):
            return

        ticks = sum(status.ticks for status in self._statuses)
        names = [shard_file(self._name, ticks, k) for k in range(self._n_shards)]
        files = [str(folder / name) for name in names]
        try:
            self._robustly(lambda: self._each_own("save", [(file,) for file in files]))
            write_manifest(folder, names, about())
        except Exception:
            remove_unfinished(folder)
            raise
        self._saved_at = time.monotonic()
        self._saved, self._losses = files, 0

    def close(self) -> None:
        self._workers.close()
