"""From an agent's folder to a node that runs: its points, its ledger, its store, its way in and out."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

import numpy as np

from murmura.errors import NetworkError
from murmura.net.folder import AgentFolder, NoPrivacy, OwnBudget
from murmura.net.host import Resident
from murmura.net.intake import Intake
from murmura.net.learner import Protection, make_agent
from murmura.net.node import Node
from murmura.net.outbox import GateOutbox, PlainOutbox, Signer
from murmura.net.signing import Verifier, public_key_of
from murmura.net.store import FileStore
from murmura.net.task import Task
from murmura.net.time import PoissonClock, Time
from murmura.net.transport import Transport
from murmura.objective import Problem
from murmura.privacy.gate import Gate
from murmura.privacy.grid import grid_for_mean
from murmura.privacy.ledger import Ledger
from murmura.privacy.mechanisms import Gaussian, Laplace, Mechanism
from murmura.privacy.noise import SecureNoise
from murmura.privacy.plan import Plan
from murmura.privacy.real_noise import accountant_of


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
    problem = _problem(folder, task)
    start = np.zeros(problem.dimension)
    store = opened.enter_context(FileStore(folder.state, name))
    key = folder.signing_key()
    signer = Signer(neighborhood.network, name, task.privacy, key)
    protection = None
    if isinstance(privacy, OwnBudget) and problem.population.n_samples:
        ledger = opened.enter_context(Ledger.open(folder.state, name))
        gate = Gate(plan_of(privacy, problem), ledger, SecureNoise(), start=start)
        protection, outbox = Protection(gate, privacy.clip), GateOutbox(signer, gate, ledger)
    else:
        # An agent without points has nothing to protect.
        outbox = PlainOutbox(signer, store, start)
    clock = PoissonClock(neighborhood.tick_rate, limit=task.updates)
    node = Node(
        make_agent(name, problem, _weights(folder), clock, protection=protection, now=time.now()),
        clock,
        _intake(folder, task, public_key_of(key), time, verifier),
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
    )


def check_label(agent: str, task: Task, privacy: NoPrivacy | OwnBudget) -> None:
    """An agent's own word on privacy and the network's have to be the same."""
    own = "dp" if isinstance(privacy, OwnBudget) else "none"
    if own != task.privacy:
        raise NetworkError(
            f"agent {agent!r}: its own settings say privacy.kind = {own!r}, and the network's "
            f"{task.privacy!r}; a network is private for all of its agents or for none"
        )


def plan_of(privacy: OwnBudget, problem: Problem) -> Plan:
    """Every release that the agent will make: equal noise, integer noise, least noise for its budget."""
    samples = problem.population.n_samples
    sensitivity = 2 * privacy.clip / samples
    kind = {"gaussian": Gaussian, "laplace": Laplace}[privacy.mechanism]
    event: Mechanism = kind(sensitivity, sensitivity, grid=grid_for_mean(sensitivity, samples))
    accountant = accountant_of(event, privacy.budget)
    return Plan.fitting(privacy.budget, event, accountant=accountant, updates=privacy.updates)


def _problem(folder: AgentFolder, task: Task) -> Problem:
    features, targets = folder.points()
    problem = task.learning().problem(features, targets)
    if problem.dimension != folder.neighborhood.dimension:
        raise NetworkError(
            f"agent {folder.name!r}: models of its {features.shape[1]} features have {problem.dimension} "
            f"coordinates, and those of the network {folder.neighborhood.dimension}; give it the same ones"
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
        verifier=verifier,
    )
