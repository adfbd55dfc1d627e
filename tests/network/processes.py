"""Real networks for tests of faults: every agent a process, looked at from outside, checked at the end."""

from __future__ import annotations

import json
import math
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tests.network.world import FolderWorld, make_folders, name_of

from flockwise.data import Population, Samples
from flockwise.deploy.folder import OwnBudget, write_samples
from flockwise.deploy.network_plan import AGENTS_FOLDER
from flockwise.deploy.settings import NetworkSettings
from flockwise.graph import SimilarityGraph
from flockwise.net.node import WRITING_GAP
from flockwise.net.time import SECOND
from flockwise.net.wire import ModelBody, open_signed
from flockwise.objective import CollaborativeObjective, Objective, Problem
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.messages import decode, encode
from flockwise.privacy.plan import tail_start
from flockwise.solve import solve_optimum

DIMENSION = 4
SAMPLES = 8
TRADEOFF = 1.0
FEATURE_BOUND = 2.0  # no sample of [−1, 1]⁴ is longer
# (Q − Q*)/Q* of a network that has converged; a stale model of one agent leaves a hundred times as much.
TOLERANCE = 1e-6
STALE = 100 * TOLERANCE
# What no fault may bring about: a message that its sender did not make, or two under one number.
NEVER_DROPPED = {"bad_signature", "equivocation", "error", "malformed", "stolen_name", "wrong_network"}
SECONDS_TO_STOP = 30
# What was received is seen on disk after two writings, or four where the machine is busy.
SECONDS_TO_HEAR = 4 * WRITING_GAP / SECOND


def wait_for(condition, seconds: float = 90.0, what: str = "as expected", *, pause: float = 0.3):
    """The result of the condition, once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


class RealNetwork:
    """A network on disk with the samples of all its agents at hand; a ring unless a graph is given."""

    def __init__(
        self,
        folder: Path,
        addresses: Sequence[str],
        *,
        budget: OwnBudget | None = None,
        tick_rate: float = 3.0,
        graph: SimilarityGraph | None = None,
        updates: int | None = None,
    ) -> None:
        self.folder = folder
        self.budget = budget
        self.names = [name_of(i) for i in range(len(addresses))]
        self.samples = {name: drawn_samples(i) for i, name in enumerate(self.names)}
        self.graph = ring(len(addresses)) if graph is None else graph
        self.tradeoff = TRADEOFF
        objective = Objective(
            tradeoff=TRADEOFF,
            max_samples=SAMPLES,
            feature_bound=None if budget is None else FEATURE_BOUND,
        )
        settings = NetworkSettings(objective, "none" if budget is None else "dp", updates)
        samples = list(self.samples.values())
        make_folders(folder, settings, self.graph, samples, budget, tick_rate=tick_rate, addresses=addresses)

    def path(self, name: str) -> Path:
        return self.folder / AGENTS_FOLDER / name

    def neighbors(self, name: str) -> list[str]:
        return [self.names[j] for j in self.graph.neighbors_of(self.names.index(name))[0]]

    def give_other_samples(self, name: str) -> None:
        """In place of those that it had, as of its next start: the network has another solution then."""
        features, targets = self.samples[name]
        self.samples[name] = Samples(features, -targets)
        write_samples(self.path(name) / "data.npz", self.samples[name])
        self.__dict__.pop("solution", None)

    def follow(self, graph: SimilarityGraph, tradeoff: float) -> None:
        """Another problem is to be solved from now on."""
        self.graph, self.tradeoff = graph, tradeoff
        self.__dict__.pop("solution", None)

    @cached_property
    def solution(self) -> tuple[CollaborativeObjective, float]:
        """Eq. (2) and its minimum."""
        features, targets = (np.concatenate(parts) for parts in zip(*self.samples.values(), strict=True))
        offsets = np.arange(len(self.names) + 1) * SAMPLES
        problem = Problem(
            Population.packed(features, targets, offsets),
            self.graph,
            Objective(tradeoff=self.tradeoff, max_samples=SAMPLES),
        )
        return CollaborativeObjective(problem), solve_optimum(problem).value

    def gap(self) -> float:
        """(Q − Q*)/Q* of the models that the agents have sent last."""
        objective, least = self.solution
        return objective.value(np.stack([self.sent_model(name) for name in self.names])) / least - 1

    # What is on the agents' disks

    def sent_model(self, name: str) -> np.ndarray:
        """Of an agent without privacy; what it starts from, if it has sent nothing yet."""
        rows = self._read(name, "SELECT data FROM sent")
        return decode(body_in(rows[0][0]).payload)[1] if rows else np.zeros(DIMENSION)

    def held_by(self, name: str) -> dict[str, ModelBody]:
        """The last messages that it has from its neighbors."""
        return {sender: body_in(data) for sender, data in self._read(name, "SELECT * FROM received")}

    def heard(self, names: Sequence[str]) -> dict[tuple[str, str], int]:
        """The numbers of the last messages that these have from each other."""
        return {
            (holder, sender): body.number
            for holder in names
            for sender, body in self.held_by(holder).items()
            if sender in names
        }

    def hear_on(self, names: Sequence[str], since: Mapping[tuple[str, str], int]) -> bool:
        """Whether by now each of these has a later message from each of the others than it had."""
        now = self.heard(names)
        return now.keys() >= since.keys() and all(now[edge] > number for edge, number in since.items())

    def status(self, name: str) -> dict[str, Any]:
        """As its process wrote it last, with the time."""
        try:
            status = json.loads((self.path(name) / "state" / "status.json").read_text())
        except (OSError, ValueError):
            return {"written_at": 0.0, "pid": 0, "releases": 0, "neighbors_up": 0, "obstacle": None}
        return status["agents"][0] | {"written_at": status["written_at"], "pid": status["pid"]}

    def releases(self, names: Sequence[str] | None = None) -> dict[str, int]:
        return {name: self.status(name)["releases"] for name in names or self.names}

    def all_meet(self, names: Sequence[str] | None = None) -> bool:
        """Whether everyone sees all its neighbors."""
        return all(
            self.status(name)["neighbors_up"] == len(self.neighbors(name)) for name in names or self.names
        )

    def _read(self, name: str, query: str) -> list[Any]:
        file = self.path(name) / "state" / "state.sqlite"
        if not file.is_file():
            return []
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            try:
                return connection.execute(query).fetchall()
            except sqlite3.OperationalError:  # its process is about to make the tables
                return []

    # What must hold at the end, when all processes have ended

    def assert_whole(self) -> None:
        """Every file is as SQLite wrote it, every folder opens, and no two messages have one number."""
        for name in self.names:
            for file in sorted((self.path(name) / "state").glob("*.sqlite")):
                with closing(sqlite3.connect(file)) as connection:
                    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], file
            FolderWorld([self.path(name)]).make(name).close()
            dropped = self.status(name)["dropped"]
            assert not dropped.keys() & NEVER_DROPPED, (name, dropped)

    def assert_nobody_is_ahead(self) -> None:
        """Without privacy: what neighbors hold from an agent is on its own disk, unless a later one is."""
        for name in self.names:
            (sent,) = (body_in(data) for (data,) in self._read(name, "SELECT data FROM sent"))
            for neighbor in self.neighbors(name):
                held = self.held_by(neighbor).get(name)
                assert held is not None
                assert held.number <= sent.number
                assert held.number < sent.number or held.payload == sent.payload

    def assert_within_budget(self) -> dict[str, int]:
        """All that anyone holds is in its sender's ledger, and no ledger costs more than its budget.

        How many releases each has made.
        """
        assert self.budget is not None
        limit, spent = self.budget, {}
        for name in self.names:
            with Ledger.open(self.path(name) / "state", name) as ledger:
                events = [entry.event for entry in ledger.entries]
                spent[name] = len(events)
                assert len(events) <= limit.updates
                if events:
                    cost = ACCOUNTANTS["zcdp"].epsilon(events, limit.delta)
                    assert cost <= limit.epsilon
                for neighbor in self.neighbors(name):
                    held = self.held_by(neighbor).get(name)
                    assert held is None or is_in(ledger, held, limit.updates), (name, neighbor)
        return spent


def drawn_samples(seed: int) -> Samples:
    """Samples of one agent, with labels by a line that turns from agent to agent."""
    chance = np.random.default_rng(seed)
    features = chance.uniform(-1, 1, (SAMPLES, DIMENSION))
    angle = 0.8 * np.sin(seed)
    side = features[:, 0] * np.cos(angle) + features[:, 1] * np.sin(angle)
    return Samples(features, np.where(side > 0, 1.0, -1.0))


def ring(n_agents: int, reach: int = 1) -> SimilarityGraph:
    """Each is a neighbor of the next `reach`."""
    agents = np.arange(n_agents)
    edges = [np.column_stack([agents, (agents + hop) % n_agents]) for hop in range(1, reach + 1)]
    pairs = np.unique(np.sort(np.concatenate(edges), axis=1), axis=0)
    return SimilarityGraph.from_edges(n_agents, pairs, np.ones(len(pairs)))


def body_in(data: bytes) -> ModelBody:
    body = open_signed(data, len(data)).body
    assert isinstance(body, ModelBody)
    return body


def is_in(ledger: Ledger, held: ModelBody, updates: int) -> bool:
    """Whether it is the public start, a release that the ledger has, or the mean of all at the end."""
    if held.number == 0:
        return held.payload == encode(0, np.zeros(DIMENSION))
    if held.number <= ledger.consumed:
        return held.payload == ledger.entries[held.number - 1].payload
    if held.number != updates + 1 or ledger.consumed != updates:
        return False
    payloads = [entry.payload for entry in ledger.entries[tail_start(updates) :]]
    released = [decode(payload)[1] for payload in payloads if payload is not None]
    mean = [math.fsum(values) / len(released) for values in zip(*released, strict=True)]
    return held.payload == encode(held.number, np.array(mean))


class Processes:
    """Runs folders in processes of their own, and ends them all with itself, whatever happens."""

    def __init__(self, network: RealNetwork, prefixes: Mapping[str, Sequence[str]] | None = None) -> None:
        """prefixes: of an agent's command, such as one that puts it into a namespace."""
        self._network = network
        self._prefixes = {} if prefixes is None else prefixes
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._files = ExitStack()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        with self._files:
            for process in self._running.values():
                process.send_signal(signal.SIGCONT)
                process.terminate()
            for process in self._running.values():
                _end(process)

    def start(self, *names: str) -> None:
        for name in names:
            errors = self._files.enter_context((self._network.folder / f"{name}.errors").open("ab"))
            self._running[name] = subprocess.Popen(
                [*self._prefixes.get(name, ()), *command("agent", "run", self._network.path(name))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def wait(self, name: str, condition: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> dict:
        """The status of a running agent, once the condition holds; its process has to have written it."""

        def found() -> dict[str, Any] | None:
            status = self._network.status(name)
            is_own = status["pid"] == self._running[name].pid
            return status if is_own and condition(status) else None

        return wait_for(found, seconds, f"{name} is as expected")

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        self.end_of(name)

    def stop(self, *names: str) -> None:
        """As an operator does; all of them if none is named."""
        stopped = [self._running.pop(name) for name in names or tuple(self._running)]
        for process in stopped:
            process.terminate()
        assert [_end(process) for process in stopped] == [0] * len(stopped)

    def end_of(self, name: str) -> int:
        """With what code it ends by itself."""
        return self._running.pop(name).wait(SECONDS_TO_STOP)

    def errors(self, name: str) -> str:
        """What it has said on its standard error."""
        return (self._network.folder / f"{name}.errors").read_text()

    def assert_running(self) -> None:
        ended = {name: p.returncode for name, p in self._running.items() if p.poll() is not None}
        assert not ended, {name: (code, self.errors(name)) for name, code in ended.items()}


@contextmanager
def supervised(network: RealNetwork) -> Iterator[None]:
    """All agents by `flockwise network up`, one in each process, until the block ends."""
    with (
        (network.folder / "up.errors").open("wb") as errors,
        subprocess.Popen(
            command("network", "up", network.folder, "--processes", "0"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as supervisor,
    ):
        try:
            yield
            assert supervisor.poll() is None, (network.folder / "up.errors").read_text()
        finally:
            supervisor.terminate()
            _end(supervisor, 2 * SECONDS_TO_STOP)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "flockwise.cli", *map(str, arguments)]


def _end(process: subprocess.Popen[bytes], seconds: float = SECONDS_TO_STOP) -> int:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
