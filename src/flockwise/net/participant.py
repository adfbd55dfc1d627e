"""Put an agent of a network together.

This is the only place where such an agent is made. Its definition says who it is: its slice of the roster,
its budget, its samples, its key. Its resources are files and secure noise (flockwise.net.durable), or memory
(flockwise.net.testing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.agent import Agent, Clock, GradientReleases, Releases
from flockwise.data.samples import Samples, joined
from flockwise.errors import LedgerError, NetworkError, PrivacyError
from flockwise.net.conversing import ConversationParts, ConversingNode
from flockwise.net.folder import NoPrivacy, OwnBudget
from flockwise.net.intake import Intake
from flockwise.net.journal import Journal
from flockwise.net.node import Node
from flockwise.net.outbox import Outbox, Signer
from flockwise.net.own_model import OwnModel, checked_samples
from flockwise.net.rate import CONVERSING_RATE
from flockwise.net.releases import BatchReleases, GateQueue, StatisticRelease, public_side
from flockwise.net.roster import Neighborhood
from flockwise.net.settings import NetworkSettings, promise
from flockwise.net.signing import SigningKey, Verifier, public_key_of
from flockwise.net.store import Store
from flockwise.net.time import SECOND, PoissonClock, Time
from flockwise.net.transport import Transport
from flockwise.objective import LocalUpdate, Objective
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import LedgerBase
from flockwise.privacy.noise import Noise, SecureNoise
from flockwise.protocol.conversation import Direction, Talk

# A clock of this rate, in ticks per second; it stops after as many updates as the function says.
MakeClock: TypeAlias = Callable[[float, Callable[[], float]], Clock]


@dataclass(frozen=True, eq=False)
class AgentDefinition:
    """An agent as its owner and the network's authority have settled it, before it runs.

    samples: those that the agent began with. Its store holds those that came later.
    """

    neighborhood: Neighborhood
    privacy: NoPrivacy | OwnBudget
    samples: Samples
    key: SigningKey

    def __post_init__(self) -> None:
        self._check_label()
        self._check_samples()
        if self.budget is not None:
            check_budget(self.name, self.settings, self.budget)

    @property
    def name(self) -> str:
        return self.neighborhood.agent

    @cached_property
    def settings(self) -> NetworkSettings:
        return NetworkSettings.of(self.neighborhood)

    @property
    def objective(self) -> Objective:
        return self.settings.objective

    @property
    def budget(self) -> OwnBudget | None:
        return self.privacy if isinstance(self.privacy, OwnBudget) else None

    def _check_label(self) -> None:
        own = "none" if self.budget is None else "dp"
        if own != self.settings.privacy:
            raise NetworkError(
                f"agent {self.name!r}: its own settings say privacy.kind = {own!r}, and the network's "
                f"{self.settings.privacy!r}; a network is private for all of its agents or for none"
            )

    def _check_samples(self) -> None:
        n_features = self.samples.features.shape[1]
        dimension = self.objective.loss.outputs * n_features
        if dimension != self.neighborhood.dimension:
            raise NetworkError(
                f"agent {self.name!r}: models of its {n_features} features have {dimension} coordinates, and "
                f"those of the network {self.neighborhood.dimension}; give it the same ones"
            )
        checked_samples(self.objective, *self.samples, n_features)


def check_budget(agent: str, settings: NetworkSettings, budget: OwnBudget) -> None:
    """An agent's own settings have to fit what the agents of this network release."""
    if not settings.converses:
        if budget.clip is None:
            raise NetworkError(
                f"agent {agent!r}: clip: missing; say what one sample's gradient is clipped to"
            )
        return
    mechanism = settings.statistic.mechanism
    wanted = (1, None, mechanism, "one_budget")
    if (budget.updates, budget.clip, budget.mechanism, budget.growth) != wanted:
        raise NetworkError(
            f"agent {agent!r}: in this network an agent releases once, with {mechanism} noise: its budget "
            f'has to be for updates = 1, mechanism = "{mechanism}", growth = "one_budget", without a clip'
        )


class Ledgers(Protocol):
    """The ledgers of an agent's batches of samples. The one of the first batch, 0, exists already."""

    def make(self, place: int) -> None: ...

    def open(self, place: int) -> LedgerBase: ...

    def has(self, place: int) -> bool: ...


@dataclass(frozen=True)
class AgentResources:
    """Everything outside an agent that it uses. It opens its ledgers and its journal only if it needs them.

    noise: a ledger on disk takes secure noise alone, which is drawn on a grid.
    verifier: of the process, shared by its agents.
    """

    store: Store
    ledgers: Ledgers
    open_journal: Callable[[], Journal]
    noise: Noise
    transport: Transport
    time: Time
    verifier: Verifier | None = None
    make_clock: MakeClock = PoissonClock


@dataclass
class Participant:
    """An agent of a network, ready to be started by its driver.

    neighborhood: as in the roster that is in effect; a newer one takes its place.
    own: what the agent does for its owner alone.
    gates: count what is spent. None for an agent without privacy, or without samples.
    close: gives back what the agent holds (its store, its ledger), once its node has stopped.
    """

    node: Node
    neighborhood: Neighborhood
    own: OwnModel
    gates: GateQueue | None = None
    budget: Budget | None = None
    close: Callable[[], None] = lambda: None


def make_participant(definition: AgentDefinition, resources: AgentResources) -> Participant:
    """The agent as it was when it last stopped, however it did; as new on empty resources."""
    return _Assembly(definition, resources).participant()


class _Assembly:
    """Makes one participant. `gates` is None for an agent that has nothing to protect."""

    def __init__(self, definition: AgentDefinition, resources: AgentResources) -> None:
        self._definition = definition
        self._resources = resources
        self._settings = definition.settings
        self._neighborhood = definition.neighborhood
        self._batches = [definition.samples, *resources.store.load().batches]
        self._start = np.zeros(definition.neighborhood.dimension)
        self._is_secure = isinstance(resources.noise, SecureNoise)
        self._by_batches = definition.budget is not None and definition.budget.growth == "batches"
        self._gates = self._open_gates()
        self._signer = Signer(
            self._neighborhood.network,
            definition.name,
            self._settings.privacy,
            definition.key,
            resources.verifier,
        )

    def participant(self) -> Participant:
        definition, resources = self._definition, self._resources
        agent = self._agent()
        node = self._node(agent)
        own = OwnModel(
            definition.objective,
            agent,
            self._batches,
            resources.store,
            resources.time,
            promise(self._settings, [definition.privacy], secure=self._is_secure),
            definition.budget is not None,
            self._admit,
            None if self._gates is None else self._noise_stds,
            (lambda: node.direction) if isinstance(node, ConversingNode) else None,
        )
        total = None if definition.budget is None else definition.budget.budget
        return Participant(node, self._neighborhood, own, self._gates, total)

    def _open_gates(self) -> GateQueue | None:
        budget, resources = self._definition.budget, self._resources
        if budget is None or not len(self._definition.samples.targets):
            return None
        self._check_growth()
        plan = budget.plan(on_grid=self._is_secure)

        def open_gate(place: int, start: NDArray[Any]) -> tuple[Gate, LedgerBase]:
            ledger = resources.ledgers.open(place)
            return Gate(plan, ledger, resources.noise, start=start), ledger

        return GateQueue(open_gate, lambda: len(self._batches) if self._by_batches else 1, self._start)

    def _check_growth(self) -> None:
        """Samples that have paid from one budget must not get another one each, nor the other way round."""
        for place in range(1, len(self._batches) + (not self._by_batches)):
            if self._resources.ledgers.has(place) == self._by_batches:
                continue
            found = "no ledger: it is lost" if self._by_batches else "a ledger of its own"
            raise LedgerError(
                f"agent {self._definition.name!r}: batch {place} of its samples has {found}, or `growth` was "
                "changed in its settings, which stays as it was when samples were added"
            )

    def _admit(self, place: int) -> None:
        """Make room for a batch of new samples. An agent cannot get a budget while it runs."""
        if self._definition.budget is not None and self._gates is None:
            raise PrivacyError(
                f"agent {self._definition.name!r} began without samples and has no budget for new ones; "
                "enroll an agent with these samples"
            )
        if self._by_batches:
            self._resources.ledgers.make(place)

    def _most_updates(self) -> float:
        if self._gates is not None:
            return math.inf if self._by_batches else len(self._gates.gate.plan)
        if self._settings.converses:  # it has nothing to release
            return 0
        # Every new batch allows as many updates again.
        updates = self._settings.updates
        return math.inf if updates is None else updates * len(self._batches)

    def _agent(self) -> Agent:
        local = LocalUpdate.of(self._definition.objective, joined(self._batches))
        return Agent(
            self._definition.name,
            local,
            self._start,
            {link.name: link.weight for link in self._neighborhood.neighbors},
            self._resources.make_clock(self._neighborhood.tick_rate, self._most_updates),
            self._releases(local),
            now=self._resources.time.now(),
        )

    def _releases(self, local: LocalUpdate) -> Releases | None:
        gates, objective, budget = self._gates, self._definition.objective, self._definition.budget
        if gates is None:
            return None
        if self._settings.converses:
            return StatisticRelease(gates.gate, self._settings.statistic, objective, joined(self._batches))
        assert budget is not None
        assert budget.clip is not None
        if self._by_batches:
            return BatchReleases(gates, self._batches, objective, budget.clip)
        return GradientReleases(gates.gate, local.objective, budget.clip)

    def _noise_stds(self) -> NDArray[np.float64]:
        """Of the noise in one coordinate of each release that the agent makes, as its samples are now."""
        budget, gates = self._definition.budget, self._gates
        assert gates is not None
        assert budget is not None
        assert budget.clip is not None
        plan = gates.gate.plan
        released = self._batches[gates.place] if self._by_batches else joined(self._batches)
        sensitivity = 2 * budget.clip / len(released.targets)
        dimension, grid = self._neighborhood.dimension, 1.0 if plan.on_grid else None
        # Real agents spend evenly: all releases have the same noise.
        releases = len(plan) * (len(self._batches) if self._by_batches else 1)
        return np.full(releases, plan.event(1, sensitivity, dimension, grid).noise_std)

    def _node(self, agent: Agent) -> Node:
        resources, version = self._resources, self._neighborhood.version
        parts = (
            agent,
            self._intake(),
            self._outbox(),
            resources.store,
            resources.transport,
            resources.time,
            version,
        )
        if not self._settings.converses:
            return Node(*parts)
        neighbors = self._neighborhood.keys()
        return ConversingNode(*parts, conversation=self._conversation(), neighbors=neighbors)

    def _outbox(self) -> Outbox:
        averaged = None
        if self._gates is not None and not self._by_batches and not self._settings.converses:
            # More batches mean more releases, and one release needs no average.
            averaged = len(self._gates.gate.plan)
        return Outbox(self._signer, self._resources.store, self._start, self._gates, averaged)

    def _conversation(self) -> ConversationParts:
        settings, number = self._settings, self._neighborhood.index
        ledger = None if self._gates is None else self._gates.ledgers[0]
        dimension = self._neighborhood.dimension

        def begin(edges: Mapping[int, float]) -> Talk[Direction | None]:
            public = public_side(settings.statistic, ledger, dimension)
            return Talk(number, settings.protocol.converse(number, public, edges))

        timeout = round(settings.round_timeout * SECOND)
        return ConversationParts(begin, self._signer, self._resources.open_journal(), timeout)

    def _intake(self) -> Intake:
        own, resources = self._neighborhood, self._resources
        return Intake(
            own.agent,
            own.network,
            own.dimension,
            # An agent without samples sends plain models in a private network as well, under the same label.
            self._settings.privacy,
            own.keys(),
            self._settings.magnitude_bound,
            public_key=public_key_of(self._definition.key),
            clock=resources.time.now,
            relay_dimension=self._settings.largest_relay(own.dimension),
            rate=CONVERSING_RATE if self._settings.converses else None,
            verifier=resources.verifier,
        )
