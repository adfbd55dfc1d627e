"""From an agent's folder to a node that runs: its points, its ledger, its store, its way in and out."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

import numpy as np

from murmura.agent.agent import Clock
from murmura.errors import NetworkError
from murmura.net.folder import AgentFolder, NoPrivacy, OwnBudget
from murmura.net.growth import Meter, MeteredGate, OneBudget, points_so_far
from murmura.net.host import Resident
from murmura.net.intake import Intake
from murmura.net.learner import Protection, Settings, make_agent
from murmura.net.node import Node
from murmura.net.one_release import CONVERSING_RATE, Ground, largest_relay, open_one_release
from murmura.net.outbox import GateOutbox, PlainOutbox, Signer
from murmura.net.own import OwnSide
from murmura.net.signing import Verifier, public_key_of
from murmura.net.store import Batch, FileStore, Store
from murmura.net.task import Task
from murmura.net.time import PoissonClock, Time
from murmura.net.transport import Transport
from murmura.objective import Problem
from murmura.privacy.ledger import Ledger
from murmura.privacy.noise import SecureNoise


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
    store = opened.enter_context(FileStore(folder.state, name))
    points = points_so_far(first, store)
    problem = _problem(folder, settings, points)
    start = np.zeros(problem.dimension)
    key = folder.signing_key()
    signer = Signer(neighborhood.network, name, task.privacy, key, verifier)
    intake = _intake(folder, task, public_key_of(key), time, verifier)
    if task.method != "cd":
        ground = Ground(folder, task, first, store, problem, signer, intake, transport, time)
        return open_one_release(ground, opened)
    protection, meter = None, None
    if isinstance(privacy, OwnBudget) and first.targets.size:
        ledger = opened.enter_context(Ledger.open(folder.state, name))
        meter = Meter(privacy.budget, privacy.updates, privacy.clip, privacy.mechanism)
        gate = MeteredGate(meter, len(points.targets), ledger, SecureNoise(), start=start)
        protection = Protection(gate, privacy.clip)
        outbox = GateOutbox(signer, gate, ledger, privacy.updates)
        clock = PoissonClock(neighborhood.tick_rate, limit=privacy.updates)
    else:
        # An agent without points has nothing to protect.
        outbox = PlainOutbox(signer, store, start)
        clock = RenewedClock(PoissonClock(neighborhood.tick_rate), task.updates, store)
    agent = make_agent(name, problem, _weights(folder), clock, protection=protection, now=time.now())
    is_private = isinstance(privacy, OwnBudget)
    growth = OneBudget(settings, first, store, agent, protection, is_private=is_private)
    node = Node(
        agent,
        clock,
        intake,
        outbox,
        store,
        transport,
        time,
        version=neighborhood.version,
    )
    return Resident(
        node,
        neighborhood,
        gate=None if protection is None else protection.gate,
        budget=privacy.budget if isinstance(privacy, OwnBudget) else None,
        own=OwnSide(settings, agent, growth, time, is_private, meter),
    )


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


def _problem(folder: AgentFolder, settings: Settings, points: Batch) -> Problem:
    problem = settings.problem(points.features, points.targets)
    if problem.dimension != folder.neighborhood.dimension:
        raise NetworkError(
            f"agent {folder.name!r}: models of its {points.features.shape[1]} features have "
            f"{problem.dimension} coordinates, and those of the network {folder.neighborhood.dimension}; "
            "give it the same ones"
        )
    return problem


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
