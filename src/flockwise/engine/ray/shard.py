"""One shard of an exact run: its own agents, and ghosts, copies of the neighbors that other shards run.

An agent fires if its next tick comes before those of all its neighbors, as far as the shard knows. What it
knows of a ghost is its next tick and model at the last exchange. The ghost cannot have gone past an own
agent since then: its own shard knows that agent's tick. So no model is ever missed, no message needs a
number, and any order of exchanges gives the same run.

The sweeps are those of the cpu engine, the same compiled code for the same types of arrays. A ghost has no
row in the network, so it never fires here; only its clock is compared and its model read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import OWN_MODELS, PartFinish, PartJudge, Sums
from flockwise.engine.checkpoint import read_arrays
from flockwise.engine.cpu.descent import compiled_rule, direct, network_of, read_only
from flockwise.engine.cpu.sweeps import Clocks, Team
from flockwise.engine.ray.clocks import count_gaps, first_gaps, move_ghosts
from flockwise.engine.ray.piece import Piece
from flockwise.engine.state import DescentState, tail_averages
from flockwise.files import write_whole
from flockwise.randomness.clocks import NEVER
from flockwise.results.stored import write_models


class Batch(NamedTuple):
    """Boundary agents that have fired: their places in the list that both shards keep, ticks and models."""

    places: NDArray[np.int32]
    next_ticks: NDArray[np.int64]
    models: NDArray[Any]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)


class ShardStatus(NamedTuple):
    """After a super-step. ticks: of all time; fired: in this super-step. seconds: of work in it."""

    ticks: int
    fired: int
    next_tick: int
    vectors: int
    bytes: int
    seconds: float


class Shard:
    """What one machine holds of a run."""

    def __init__(
        self, piece: Piece, seed: int, limit: int, threads: int | None, most_neighbors: int | None = None
    ) -> None:
        self._piece = piece = piece.read()
        rule = piece.rule
        self._n_own = piece.own.size
        noise_sums = None if rule.noise is None else np.zeros((self._n_own, rule.start.shape[1]))
        n_known = rule.n_agents
        self._state = DescentState(
            rule.start.copy(), np.empty(n_known, np.int64), np.zeros(n_known, np.int64), None, noise_sums
        )
        ids, network = read_only(rule.ids), network_of(rule.edges)
        self._clocks = Clocks(np.uint64(seed), limit, ids, self._state.next_ticks, self._state.updates)
        self._rule = compiled_rule(rule, network, direct(rule.edges, rule.start.dtype), self._state)
        self._team = Team(threads, network, rule.start.shape[1], rule.start.dtype, most_neighbors)
        self._rows = ghost_rows(self._n_own, piece)
        self._judges: dict[int, PartJudge] = {}
        self._left: dict[str, NDArray[np.float64]] = {}
        self._begin()

    def _begin(self) -> None:
        self._fresh = True
        self._told = {other: self._state.updates[places].copy() for other, places in self._needed.items()}

    @property
    def _needed(self) -> Mapping[int, NDArray[np.int64]]:
        return self._piece.needed

    @property
    def own(self) -> NDArray[np.int64]:
        return self._piece.own

    def begin(self) -> None:
        """Everyone at the start, with its first tick."""
        state, rule = self._state, self._piece.rule
        state.models[:], state.updates[:] = rule.start, 0
        if state.tail_sums is not None:
            state.tail_sums[:] = 0
        first_gaps(self._clocks.seed, self._clocks.ids, state.next_ticks)
        self._begin()

    def step(self, until: int, *inbox: Batch | None) -> tuple[Any, ...]:
        """One super-step: take in what others sent, fire all that can be fired, say what changed at the edge.

        inbox: from each neighboring shard in turn. Returns the status, and a message for each of them.
        """
        started = time.perf_counter()
        for other, message in zip(self._needed, inbox, strict=False):
            if message is not None and len(message.places):
                self._take_in(other, message)
        updates = self._state.updates[: self._n_own]
        before = int(updates.sum())
        self._team.sweep(2**62, until, self._rule, self._clocks, fresh=self._fresh)
        self._fresh = False
        outbox = [self._message(other) for other in self._needed]
        ticks, next_ticks = int(updates.sum()), self._state.next_ticks[: self._n_own]
        status = ShardStatus(
            ticks,
            ticks - before,
            int(next_ticks.min(initial=NEVER)),
            sum(len(message.places) for message in outbox),
            sum(message.nbytes for message in outbox),
            time.perf_counter() - started,
        )
        return status, *outbox

    def _take_in(self, other: int, message: Batch) -> None:
        ghosts = self._piece.ghosts_of[other][message.places]
        if self._fresh:
            self._state.next_ticks[ghosts], self._state.models[ghosts] = message.next_ticks, message.models
        else:
            move_ghosts(
                self._clocks,
                *self._rows,
                self._n_own,
                self._team.earlier,
                self._state.models,
                ghosts,
                np.array(message.next_ticks),
                np.array(message.models),
            )

    def _message(self, other: int) -> Batch:
        places = self._needed[other]
        updates = self._state.updates[places]
        fired = np.flatnonzero(updates != self._told[other])
        self._told[other] = updates
        agents = places[fired]
        return Batch(fired.astype(np.int32), self._state.next_ticks[agents], self._state.models[agents])

    def count_ticks(self, until: int) -> int:
        """How many ticks of own agents come after now and up to `until`."""
        clocks = self._clocks
        return count_gaps(clocks, self._n_own, until)

    def vectors_sent(self) -> int:
        """One per update and neighbor."""
        return int(self._state.updates[: self._n_own] @ self._piece.rule.edges.counts)

    def shown(self) -> NDArray[Any]:
        """The own agents' models as records and results show them."""
        state, noise = self._state, self._piece.rule.noise
        models = state.models[: self._n_own]
        if noise is None or state.tail_sums is None:
            return models
        return tail_averages(models, state.updates[: self._n_own], noise.tail_start, state.tail_sums)

    def boundary(self) -> tuple[NDArray[Any], ...]:
        """For each neighboring shard the shown models that it has as ghosts."""
        shown = self.shown()
        return tuple(shown[places] for places in self._needed.values())

    def learn_judge(self, number: int, judge: PartJudge) -> None:
        self._judges[number] = judge

    def measure(self, number: int, *inbox: NDArray[Any]) -> Sums:
        """Sums over the own agents. inbox: the ghosts' models as shown, where that is not as they are."""
        return Sums.of(self._judges[number](self._piece.rule, self._known(inbox)))

    def _known(self, inbox: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The models of own agents and ghosts as shown."""
        models = self._state.models.copy()
        models[: self._n_own] = self.shown()
        for other, shown in zip(self._needed, inbox, strict=False):
            models[self._piece.ghosts_of[other]] = shown
        return models

    def result(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return self.shown(), self.updates()

    def updates(self) -> NDArray[np.int64]:
        return self._state.updates[: self._n_own]

    def finish(self, part: PartFinish, *inbox: NDArray[Any]) -> None:
        """Make the own agents' own models, which stay here. inbox: as in `measure`."""
        self._left[OWN_MODELS] = part(self._piece.rule, self._known(inbox))

    def write_models(self, which: str, file: str, names: Sequence[str], schema: Any) -> None:
        models = self._left.get(which, self.shown())
        write_models(file, schema, names, models, is_secret=which == OWN_MODELS)

    def values(self, number: int, which: str) -> NDArray[np.float64]:
        """Of each own agent what a judge gives its shown or its own model."""
        return self._judges[number](self._piece.rule, self._left.get(which, self.shown()))

    def state(self) -> dict[str, NDArray[Any]]:
        """Of the own agents: all that is needed to go on. At a barrier ghosts equal their owners."""
        models, next_ticks, updates = (array[: self._n_own] for array in self._clocked())
        return DescentState(models, next_ticks, updates, None, self._state.tail_sums).to_arrays()

    def _clocked(self) -> tuple[NDArray[Any], ...]:
        return self._state.models, self._state.next_ticks, self._state.updates

    def load(self, positions: NDArray[np.int64], arrays: Mapping[str, NDArray[Any]]) -> None:
        """From a saved state of agents at these ascending positions, of whom not all are known here."""
        known = self._piece.positions
        rows = np.searchsorted(positions, known)
        rows[rows == positions.size] = 0
        local = np.flatnonzero(positions[rows] == known)
        rows = rows[local]
        for name, array in zip(("models", "next_ticks", "updates"), self._clocked(), strict=True):
            array[local] = arrays[name][rows]
        if self._state.tail_sums is not None:
            is_own = local < self._n_own
            self._state.tail_sums[local[is_own]] = arrays["tail_sums"][rows[is_own]]
        self._begin()

    def load_files(self, files: Sequence[str]) -> None:
        """From the files of all shards of a checkpoint, however many they were."""
        for file in files:
            names = self.state().keys()
            positions, *arrays = read_arrays(Path(file), *names)
            self.load(positions, dict(zip(names, arrays, strict=True)))

    def save(self, file: str) -> None:
        """To a file that is whole or not there, also after a power cut."""

        def write(part: Path) -> None:
            with part.open("wb") as stream:
                np.savez(stream, allow_pickle=False, positions=self.own, **self.state())
                stream.flush()
                os.fsync(stream.fileno())

        write_whole(file, write)


def ghost_rows(n_own: int, piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Each ghost's own neighbors: those of ghost g are agents[offsets[g - n_own]:offsets[g - n_own + 1]]."""
    edges = piece.rule.edges
    tails = np.repeat(np.arange(n_own, dtype=np.int32), edges.counts)
    is_ghost = edges.neighbors >= n_own
    ghosts = edges.neighbors[is_ghost] - n_own
    order = np.argsort(ghosts, kind="stable")
    counts = np.bincount(ghosts, minlength=piece.ghosts.size)
    return np.concatenate([[0], np.cumsum(counts)]), tails[is_ghost][order]
