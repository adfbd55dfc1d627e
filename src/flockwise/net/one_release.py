"""Agents that release once and then talk: what they release, what they talk about, and their own model.

They release the mean of y·x/‖x‖ through their gate (flockwise.method.point_mean), for all of their budget. The
conversation after it is that of `release_once` or of `lowpass`; both end with a direction for the agent's
own separator, which it finishes with on its own data.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flockwise.agent import Shelter
from flockwise.agent.agent import Clock
from flockwise.errors import NetworkError, PrivacyError
from flockwise.method import release_once_protocol
from flockwise.method.conversation import Conversation, Direction, Public
from flockwise.method.finish import finish_along_directions
from flockwise.method.lowpass import protocol
from flockwise.method.point_mean import signal_power, unit_rows
from flockwise.net.conversing import ConversingNode, Voice
from flockwise.net.folder import AgentFolder, OwnBudget
from flockwise.net.growth import Meter, MeteredGate, OneBudget
from flockwise.net.host import Resident
from flockwise.net.intake import Intake
from flockwise.net.journal import FileJournal
from flockwise.net.learner import LearningAgent, Protection
from flockwise.net.outbox import GateOutbox, PlainOutbox, Signer
from flockwise.net.own import OwnSide
from flockwise.net.promise import promise
from flockwise.net.rate import RateLimit
from flockwise.net.store import Batch, Store
from flockwise.net.task import Task
from flockwise.net.time import SECOND, PoissonClock, Time
from flockwise.net.transport import Transport
from flockwise.objective import LocalObjective, Problem
from flockwise.objective.solitary import solve_local_models
from flockwise.privacy.ledger import Book, Ledger
from flockwise.privacy.messages import decode
from flockwise.privacy.noise import SecureNoise

# No y·x/‖x‖ is longer.
CLIP: Final = 1.0
# A neighbor says one thing a round, and rounds follow each other as fast as a small network carries them.
CONVERSING_RATE: Final = RateLimit(per_second=1000.0, burst=1000)


class OneReleaseAgent(LearningAgent):
    """Releases the mean of y·x/‖x‖ on its one tick; one without a gate has nothing to release."""

    def __init__(
        self,
        name: str,
        problem: Problem,
        weights: Mapping[Hashable, float],
        clock: Clock,
        protection: Protection | None,
        *,
        now: int = 0,
    ) -> None:
        self._points = problem.population.samples(0)
        term = LocalObjective.of_agent(problem, 0)
        super().__init__(
            name,
            term,
            np.zeros(problem.dimension),
            weights,
            step_size=1.0,
            pull=1.0,
            clock=clock,
            shelter=None if protection is None else protection.shelter(term),
            now=now,
        )

    def relearn(self, problem: Problem, protection: Protection | None, now: int) -> None:
        """New points count in the release if it is yet to come; afterwards for the own model alone."""
        self._points = problem.population.samples(0)
        # Only drawn ahead; a gate that cannot release any more says so on the tick.
        with suppress(PrivacyError):
            self.prepare(now)

    def _released(self, shelter: Shelter) -> NDArray[Any]:
        shelter.gate.release_mean(unit_rows(*self._points), shelter.clip)
        return shelter.released(self.model.dtype)


def largest_relay(task: Task, dimension: int) -> int:
    """The most coordinates of a relay in a network of this task; 0 where there are none."""
    if task.method == "cd":
        return 0
    return (protocol if task.method == "lowpass" else release_once_protocol).largest_relay(dimension)


def conversation_about(
    task: Task, number: int, public: Public, ties: Mapping[int, float]
) -> Conversation[Direction | None]:
    """What the agents of this task talk about; `number` is the agent's own."""
    if task.method == "lowpass":
        return protocol.find_direction(number, public, ties)
    return release_once_protocol.find_direction(number, public, ties, task.smoothing)


def public_side(ledger: Book | None, dimension: int) -> Public:
    """What an agent released, and how noisy it is, as its ledger has it; nothing without a release.

    With m points one moves the mean by 2/m: from the sensitivity that was charged follows the m of then.
    """
    entries = [] if ledger is None else [entry for entry in ledger.entries if entry.payload is not None]
    if not entries:
        return Public(np.zeros(dimension), np.inf, np.inf, signal_power(dimension))
    event, payload = entries[-1].event, entries[-1].payload
    assert payload is not None
    noise, samples = event.scale**2, 2 * CLIP / event.sensitivity
    sampling = samples * event.sensitivity**2 / (4 * dimension)
    return Public(decode(payload)[1], noise + sampling, noise, signal_power(dimension))


def finished(problem: Problem, direction: Direction | None) -> NDArray[np.float64]:
    """The agent's own model: from its points alone, or along a direction that it was told."""
    if direction is None:
        return solve_local_models(problem)[0]
    return finish_along_directions(problem, direction.vector[None], np.array([direction.quality]))[0]


@dataclass(frozen=True)
class Ground:
    """What an agent stands on, as its folder has it. points: those that it began with, and all since."""

    folder: AgentFolder
    task: Task
    first: Batch
    points: Batch
    store: Store
    signer: Signer
    intake: Intake
    transport: Transport
    time: Time


def open_one_release(ground: Ground, opened: ExitStack) -> Resident:
    """The agent with its gate, its journal and its conversation; `opened` closes them."""
    folder, task, privacy = ground.folder, ground.task, ground.folder.settings.privacy
    name, neighborhood = folder.name, folder.neighborhood
    assert isinstance(privacy, OwnBudget)
    check_one_release(name, privacy)
    settings = task.learning()
    problem = settings.problem(ground.points.features, ground.points.targets)
    dimension = problem.dimension
    protection = meter = ledger = None
    if ground.first.targets.size:
        ledger = opened.enter_context(Ledger.open(folder.state, name))
        meter = Meter(privacy.budget, privacy.updates, CLIP)
        samples, start = problem.population.n_samples, np.zeros(dimension)
        gate = MeteredGate(meter, samples, ledger, SecureNoise(), start=start)
        protection, outbox = Protection(gate, CLIP), GateOutbox(ground.signer, gate, ledger)
    else:
        outbox = PlainOutbox(ground.signer, ground.store, np.zeros(dimension))
    clock = PoissonClock(neighborhood.tick_rate, limit=0 if protection is None else 1)
    weights: dict[Hashable, float] = {link.name: link.weight for link in neighborhood.neighbors}
    agent = OneReleaseAgent(name, problem, weights, clock, protection, now=ground.time.now())
    journal = FileJournal(folder.state)
    opened.callback(journal.close)
    node = ConversingNode(
        agent,
        clock,
        ground.intake,
        outbox,
        ground.store,
        ground.transport,
        ground.time,
        voice=Voice(
            neighborhood.index,
            lambda ties: conversation_about(task, neighborhood.index, public_side(ledger, dimension), ties),
            ground.signer,
            journal,
            round(task.round_timeout * SECOND),
        ),
        neighbors=neighborhood.keys(),
        version=neighborhood.version,
    )
    growth = OneBudget(settings, ground.points, ground.store, agent, protection, is_private=True)

    def finish(problem: Problem) -> NDArray[np.float64]:
        return finished(problem, node.direction)

    return Resident(
        node,
        neighborhood,
        gate=None if protection is None else protection.gate,
        budget=privacy.budget,
        own=OwnSide(settings, agent, growth, ground.time, True, promise(task, [privacy]), meter, finish),
    )


def check_one_release(agent: str, privacy: OwnBudget) -> None:
    """An agent's own settings have to be those of one release of means."""
    wanted = (1, CLIP, "gaussian", "one_budget")
    if (privacy.updates, privacy.clip, privacy.mechanism, privacy.growth) != wanted:
        raise NetworkError(
            f"agent {agent!r}: in this network an agent releases once, a mean of vectors of length 1 with "
            f'Gaussian noise: its budget has to be for updates = 1, clip = {CLIP!r}, mechanism = "gaussian", '
            'growth = "one_budget"'
        )
