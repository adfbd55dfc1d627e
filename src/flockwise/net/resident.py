"""From an agent's folder to a node that runs: its points, its ledger, its store, its way in and out."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.agent.agent import Clock
from flockwise.errors import NetworkError
from flockwise.net.batches import BatchAgent, BatchGates, BatchLedgers, BatchOutbox, ByBatches, plan_of_batch
from flockwise.net.folder import AgentFolder, NoPrivacy, OwnBudget
from flockwise.net.growth import Growth, Meter, MeteredGate, OneBudget, joined
from flockwise.net.host import Resident, Spender
from flockwise.net.intake import Intake
from flockwise.net.learner import LearningAgent, Protection, Settings, make_agent
from flockwise.net.node import Node
from flockwise.net.one_release import CONVERSING_RATE, Ground, largest_relay, open_one_release
from flockwise.net.outbox import GateOutbox, Outbox, PlainOutbox, Signer
from flockwise.net.own import OwnSide
from flockwise.net.promise import promise
from flockwise.net.signing import Verifier, public_key_of
from flockwise.net.store import Batch, FileStore, Store
from flockwise.net.task import Task
from flockwise.net.time import PoissonClock, Time
from flockwise.net.transport import Transport
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.ledger_file import NAME as LEDGER_NAME
from flockwise.privacy.noise import SecureNoise


def open_resident(
    folder: AgentFolder, transport: Transport, time: Time, verifier: Verifier | None = None
) -> Resident:
    """The agent as it was when it last stopped, however it did; nobody else may run it meanwhile."""
    with ExitStack() as opened:
        resident = _opened(folder, transport, time, verifier, opened)
        return dataclasses.replace(resident, close=opened.pop_all().close)


def _opened(
    folder: AgentFolder, transport: Transport, time: Time, verifier: Verifier | None, opened: ExitStack
) -> Resident:
    name, neighborhood = folder.name, folder.neighborhood
    task, privacy = Task.of(neighborhood), folder.settings.privacy
    check_label(name, task, privacy)
    settings, first = task.learning(), Batch(*folder.points())
    _check_dimension(folder, settings, first)
    store = opened.enter_context(FileStore(folder.state, name))
    key = folder.signing_key()
    signer = Signer(neighborhood.network, name, task.privacy, key, verifier)
    intake = _intake(folder, task, public_key_of(key), time, verifier)
    batches = [first, *store.load().batches]
    _check_has_not_lost_points(folder, first)
    if task.method != "cd":
        ground = Ground(folder, task, first, joined(batches), store, signer, intake, transport, time)
        return open_one_release(ground, opened)
    making = _Making(folder, task, settings, batches, store, signer, time.now())
    if not isinstance(privacy, OwnBudget) or not first.targets.size:
        # An agent without points has nothing to protect.
        parts = _plain(making)
    elif privacy.growth == "batches":
        parts = _by_batches(making, privacy, opened)
    else:
        parts = _by_one_budget(making, privacy, opened)
    node = Node(
        parts.agent,
        parts.clock,
        intake,
        parts.outbox,
        store,
        transport,
        time,
        version=neighborhood.version,
    )
    is_private, words = isinstance(privacy, OwnBudget), promise(task, [privacy])
    return Resident(
        node,
        neighborhood,
        gate=parts.gate,
        budget=privacy.budget if isinstance(privacy, OwnBudget) else None,
        own=OwnSide(settings, parts.agent, parts.growth, time, is_private, words, parts.meter),
    )


@dataclass(frozen=True)
class _Making:
    """What every agent is made of. batches: its points, those that it began with first."""

    folder: AgentFolder
    task: Task
    settings: Settings
    batches: list[Batch]
    store: Store
    signer: Signer
    now: int

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def tick_rate(self) -> float:
        return self.folder.neighborhood.tick_rate

    @property
    def start(self) -> NDArray[np.float64]:
        return np.zeros(self.folder.neighborhood.dimension)

    def agent(self, points: Batch, clock: Clock, protection: Protection | None = None) -> LearningAgent:
        problem = self.settings.problem(points.features, points.targets)
        return make_agent(
            self.name, problem, _weights(self.folder), clock, protection=protection, now=self.now
        )


@dataclass(frozen=True)
class _Parts:
    """What differs between agents by what they may spend, and on what."""

    agent: LearningAgent
    clock: Clock
    outbox: Outbox
    growth: Growth
    gate: Spender | None = None
    meter: Meter | None = None


def _plain(making: _Making) -> _Parts:
    points, store = joined(making.batches), making.store
    clock = RenewedClock(PoissonClock(making.tick_rate), making.task.updates, store)
    agent = making.agent(points, clock)
    growth = OneBudget(making.settings, points, store, agent, is_private=making.task.privacy == "dp")
    return _Parts(agent, clock, PlainOutbox(making.signer, store, making.start), growth)


def _by_one_budget(making: _Making, privacy: OwnBudget, opened: ExitStack) -> _Parts:
    points, meter = joined(making.batches), privacy.meter
    ledger = opened.enter_context(Ledger.open(making.folder.state, making.name))
    gate = MeteredGate(meter, len(points.targets), ledger, SecureNoise(), start=making.start)
    protection = Protection(gate, privacy.clip)
    clock = PoissonClock(making.tick_rate, limit=privacy.updates)
    agent = making.agent(points, clock, protection)
    growth = OneBudget(making.settings, points, making.store, agent, protection, is_private=True)
    return _Parts(agent, clock, GateOutbox(making.signer, gate, ledger, privacy.updates), growth, gate, meter)


def _by_batches(making: _Making, privacy: OwnBudget, opened: ExitStack) -> _Parts:
    meter, ledgers = privacy.meter, BatchLedgers(making.folder.state, making.name)
    opened.callback(ledgers.close)

    def open_gate(place: int, batch: Batch, start: NDArray[np.float64]) -> tuple[Gate, Ledger]:
        ledger = ledgers.open(place)
        return Gate(plan_of_batch(meter, batch, ledger), ledger, SecureNoise(), start=start), ledger

    gates = BatchGates(open_gate, making.batches, making.start, ledgers.make)
    clock = PoissonClock(making.tick_rate)
    weights = _weights(making.folder)
    agent = BatchAgent(making.name, making.settings, gates, privacy.clip, weights, clock, now=making.now)
    growth = ByBatches(agent, gates, making.store)
    return _Parts(agent, clock, BatchOutbox(making.signer, gates), growth, gates, meter)


class RenewedClock:
    """A clock that stops after a number of updates, and is given as many again whenever points arrive."""

    def __init__(self, clock: Clock, updates: int | None, store: Store) -> None:
        self._clock = clock
        self._updates = updates
        self._store = store

    def next_tick(self, updates: int, now: int) -> int | None:
        if self._updates is None or updates < self._updates * self._rounds(updates):
            return self._clock.next_tick(updates, now)
        return None

    def _rounds(self, updates: int) -> int:
        """The first, and one for every arrival; it is asked for seldom, since it takes a look at the disk."""
        assert self._updates is not None
        return 1 if updates < self._updates else 1 + len(self._store.load().batches)


def check_label(agent: str, task: Task, privacy: NoPrivacy | OwnBudget) -> None:
    """An agent's own word on privacy and the network's have to be the same."""
    own = "dp" if isinstance(privacy, OwnBudget) else "none"
    if own != task.privacy:
        raise NetworkError(
            f"agent {agent!r}: its own settings say privacy.kind = {own!r}, and the network's "
            f"{task.privacy!r}; a network is private for all of its agents or for none"
        )


def _check_has_not_lost_points(folder: AgentFolder, first: Batch) -> None:
    """An agent with a ledger never runs without its gate, whatever became of its points."""
    if not first.targets.size and (folder.state / LEDGER_NAME).exists():
        raise NetworkError(
            f"agent {folder.name!r}: it has a ledger, and no points in {folder.settings.data!r} any more; "
            "give them back to it, or let it leave the network"
        )


def _check_dimension(folder: AgentFolder, settings: Settings, points: Batch) -> None:
    dimension, n_features = settings.loss.outputs * points.features.shape[1], points.features.shape[1]
    if dimension != folder.neighborhood.dimension:
        raise NetworkError(
            f"agent {folder.name!r}: models of its {n_features} features have {dimension} coordinates, and "
            f"those of the network {folder.neighborhood.dimension}; give it the same ones"
        )


def _weights(folder: AgentFolder) -> dict[Any, float]:
    return {link.name: link.weight for link in folder.neighborhood.neighbors}


def _intake(
    folder: AgentFolder, task: Task, public_key: bytes, time: Time, verifier: Verifier | None
) -> Intake:
    neighborhood = folder.neighborhood
    return Intake(
        folder.name,
        neighborhood.network,
        neighborhood.dimension,
        # An agent without points sends plain models in a private network as well, under the same label.
        (task.privacy,),
        neighborhood.keys(),
        task.magnitude_bound,
        public_key=public_key,
        clock=time.now,
        relay_dimension=largest_relay(task, neighborhood.dimension),
        rate=None if task.method == "cd" else CONVERSING_RATE,
        verifier=verifier,
    )
