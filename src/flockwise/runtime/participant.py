"""An agent of a network, put together.

This is the only place where such an agent is made. Its definition says who it is: its slice of the roster,
its budget, its samples, its key. Its resources are files and secure noise (flockwise.runtime.durable), or
memory (flockwise.runtime.testing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.agent import Agent, Clock, GradientReleases, Releases
from flockwise.data.samples import Samples, joined
from flockwise.deploy.folder import NoBudget, OwnBudget
from flockwise.deploy.roster import SignedNeighborhood
from flockwise.deploy.settings import NetworkSettings, check_budget, promise
from flockwise.errors import DataError, LedgerError, NetworkError, PrivacyError
from flockwise.net.conversing import Conversing
from flockwise.net.gates import GateQueue
from flockwise.net.intake import Intake
from flockwise.net.journal import Journal
from flockwise.net.node import Descending, Node
from flockwise.net.outbox import Outbox, Signer
from flockwise.net.rate import CONVERSING_RATE
from flockwise.net.signing import SigningKey, Verifier, public_key_of
from flockwise.net.store import Store
from flockwise.net.time import SECOND, PoissonClock, Time
from flockwise.net.transport import Transport
from flockwise.objective import LocalUpdate, Objective
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import LedgerBase
from flockwise.privacy.noise import Noise, SecureNoise
from flockwise.privacy.plan import tail_start
from flockwise.privacy.tracked import own_models
from flockwise.protocol.aggregation import NEIGHBOR_MEANS
from flockwise.protocol.conversation import Direction, Talk
from flockwise.runtime.own_model import along, checked_samples, finished_model, problem_of_one
from flockwise.runtime.releases import BatchReleases, StatisticRelease, public_side

# A clock of this rate, in ticks per second; it stops after as many updates as the function says.
MakeClock: TypeAlias = Callable[[float, Callable[[], float]], Clock]


@dataclass(frozen=True, eq=False)
class AgentDefinition:
    """An agent as its owner and the network's authority have settled it, before it runs.

    samples: those that the agent began with. Its store holds those that came later.
    """

    neighborhood: SignedNeighborhood
    privacy: NoBudget | OwnBudget
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
        return self.privacy.own_budget

    def _check_label(self) -> None:
        own = self.privacy.label
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


def check_newest(neighborhood: SignedNeighborhood, newest: int) -> None:
    """Refuse a roster that was replaced before: it may name an agent that has been removed since."""
    if neighborhood.version < newest:
        raise NetworkError(
            f"agent {neighborhood.agent!r}: its roster has version {neighborhood.version}, and version "
            f"{newest} was in force here; get the newest one from the people who run the network"
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


class Participant:
    """An agent of a network, ready to be started by its driver.

    It is as it was when it last stopped, however it did; as new on empty resources.

    neighborhood: as in the roster that is in effect; a newer one takes its place.
    batches: all its samples, as they came.
    gates: count what is spent. None for an agent without privacy, or without samples: it has nothing to
        protect.
    close: gives back what the agent holds (its store, its ledger), once its node has stopped.
    """

    def __init__(self, definition: AgentDefinition, resources: AgentResources) -> None:
        self.neighborhood = definition.neighborhood
        state = resources.store.load()
        check_newest(self.neighborhood, state.roster)
        if self.neighborhood.version > state.roster:
            resources.store.mark_roster(self.neighborhood.version)
        self.batches = [definition.samples, *state.batches]
        self.close: Callable[[], None] = lambda: None
        self._definition = definition
        self._resources = resources
        self._settings = definition.settings
        self._start = np.zeros(definition.neighborhood.dimension)
        self._is_secure = isinstance(resources.noise, SecureNoise)
        self._by_batches = definition.budget is not None and definition.budget.has_batches
        self.gates = self._open_gates()
        self.agent = self._make_agent()
        self.node = self._make_node()

    # For its owner alone

    @property
    def budget(self) -> Budget | None:
        return None if self._definition.budget is None else self._definition.budget.budget

    @property
    def guarantee(self) -> str:
        """What holds for its samples, in plain words."""
        return promise(self._settings, [self._definition.privacy], secure=self._is_secure)

    @property
    def samples(self) -> Samples:
        """All that the agent learns from."""
        return joined(self.batches)

    def own_model(self) -> NDArray[np.float64]:
        """Its data without noise, around what its neighbors released: never sent, never logged.

        Without privacy the model that the agent sends is its own. With privacy it is the silent finish of
        the simulator (flockwise.release.finish), computed whenever it is asked for, and kept nowhere. It
        remembers that it is private: a private run refuses to start from it.
        """
        if self._definition.budget is None:
            return np.array(self.agent.model, np.float64)
        problem = problem_of_one(self._definition.objective, self.samples)
        if isinstance(self.node.role, Conversing):
            return own_models(along(problem, self.node.role.direction))
        neighbors, mean = self.agent.neighbors.values(), NEIGHBOR_MEANS[self._settings.neighbors]
        return own_models(finished_model(problem, neighbors, self._noise_stds(), mean))

    def predict(self, features: NDArray[Any]) -> NDArray[Any]:
        """By the own model, one label or value per row."""
        loss, n_features = self._definition.objective.loss, self.batches[0].features.shape[1]
        rows = np.asarray(features, np.float64)
        if rows.ndim != 2 or rows.shape[1] != n_features:
            raise DataError(f"features must have the shape (samples, {n_features}), got {rows.shape}")
        blocks = np.asarray(self.own_model()).reshape(loss.outputs, n_features)
        return loss.predict(rows @ blocks.T)

    def add_data(self, features: ArrayLike, targets: ArrayLike) -> None:
        """Learn from these samples too; they are on disk when this returns, or refused whole."""
        objective, resources = self._definition.objective, self._resources
        batch = checked_samples(objective, features, targets, self.batches[0].features.shape[1])
        if not len(batch.targets):
            raise DataError("there is no sample in it; add one or more")
        if self._definition.budget is not None and self.gates is None:
            raise PrivacyError(
                f"agent {self._definition.name!r} began without samples and has no budget for new ones; "
                "enroll an agent with these samples"
            )
        if self._by_batches:
            resources.ledgers.make(len(self.batches))
        resources.store.add_batch(batch)
        self.batches.append(batch)
        self.agent.set_data(LocalUpdate.of(objective, self.samples), resources.time.now())

    def _noise_stds(self) -> NDArray[np.float64] | None:
        """Of the noise in one coordinate of each release that the agent makes, as its samples are now."""
        budget, gates = self._definition.budget, self.gates
        if gates is None:
            return None
        assert budget is not None
        assert budget.clip is not None
        plan = gates.gate.plan
        released = self.batches[gates.place] if self._by_batches else self.samples
        sensitivity = 2 * budget.clip / len(released.targets)
        dimension, grid = self.neighborhood.dimension, 1.0 if plan.on_grid else None
        # Real agents spend evenly: all releases have the same noise.
        releases = len(plan) * (len(self.batches) if self._by_batches else 1)
        return np.full(releases, plan.event(1, sensitivity, dimension, grid).noise_std)

    # How it is put together

    def _open_gates(self) -> GateQueue | None:
        budget, resources = self._definition.budget, self._resources
        if budget is None:
            return None
        if not len(self._definition.samples.targets):
            self._check_has_none()
            return None
        self._check_growth()
        plan = budget.plan(on_grid=self._is_secure)

        def open_gate(place: int, start: NDArray[Any]) -> tuple[Gate, LedgerBase]:
            ledger = resources.ledgers.open(place)
            return Gate(plan, ledger, resources.noise, start=start), ledger

        return GateQueue(open_gate, lambda: len(self.batches) if self._by_batches else 1, self._start)

    def _check_has_none(self) -> None:
        """Samples of an agent without a gate would be sent without noise."""
        if len(self.samples.targets):
            raise PrivacyError(
                f"agent {self._definition.name!r}: samples were added to it, and those that it began with "
                "are gone; give them back to it, or let it leave the network"
            )

    def _check_growth(self) -> None:
        """Samples that have paid from one budget must not get another one each, nor the other way round."""
        for place in range(1, len(self.batches) + (not self._by_batches)):
            if self._resources.ledgers.has(place) == self._by_batches:
                continue
            found = "no ledger: it is lost" if self._by_batches else "a ledger of its own"
            raise LedgerError(
                f"agent {self._definition.name!r}: batch {place} of its samples has {found}, or `growth` was "
                "changed in its settings, which stays as it was when samples were added"
            )

    def _make_agent(self) -> Agent:
        local = LocalUpdate.of(self._definition.objective, self.samples)
        return Agent(
            self._definition.name,
            local,
            self._start,
            {link.name: link.weight for link in self.neighborhood.neighbors},
            self._resources.make_clock(self.neighborhood.tick_rate, self._most_updates),
            self._releases(local),
            now=self._resources.time.now(),
            neighbor_mean=NEIGHBOR_MEANS[self._settings.neighbors],
        )

    def _most_updates(self) -> float:
        if self.gates is not None:
            return math.inf if self._by_batches else len(self.gates.gate.plan)
        if self._settings.converses:  # it has nothing to release
            return 0
        # Every new batch allows as many updates again.
        updates = self._settings.updates
        return math.inf if updates is None else updates * len(self.batches)

    def _releases(self, local: LocalUpdate) -> Releases | None:
        gates, objective, budget = self.gates, self._definition.objective, self._definition.budget
        if gates is None:
            return None
        if self._settings.converses:
            return StatisticRelease(gates.gate, self._settings.statistic, objective, self.samples)
        assert budget is not None
        assert budget.clip is not None
        if self._by_batches:
            return BatchReleases(gates, self.batches, objective, budget.clip)
        return GradientReleases(gates.gate, local.objective, budget.clip)

    def _make_node(self) -> Node:
        resources, settings, own = self._resources, self._settings, self.neighborhood
        key, verifier = self._definition.key, resources.verifier
        signer = Signer(own.network, own.agent, settings.privacy, key, verifier)
        # More batches mean more releases, and one release needs no average.
        averaged = None
        if self.gates is not None and not self._by_batches and not settings.converses:
            last = len(self.gates.gate.plan)
            averaged = range(tail_start(last), last)
        return Node(
            self.agent,
            self._intake(),
            Outbox(signer, resources.store, self._start, self.gates, averaged),
            resources.store,
            resources.transport,
            resources.time,
            self._conversing(signer) if settings.converses else Descending,
        )

    def _conversing(self, signer: Signer) -> Callable[[Node], Conversing]:
        settings, number = self._settings, self.neighborhood.index
        ledger = None if self.gates is None else self.gates.ledgers[0]
        dimension = self.neighborhood.dimension

        def begin(edges: Mapping[int, float]) -> Talk[Direction | None]:
            public = public_side(settings.statistic, ledger, dimension)
            return Talk(number, settings.protocol.converse(number, public, edges))

        timeout = round(settings.round_timeout * SECOND)
        return partial(Conversing, begin, signer, self._resources.open_journal(), timeout)

    def _intake(self) -> Intake:
        own, resources = self.neighborhood, self._resources
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
            settings_version=own.settings_version,
            relay_dimension=self._settings.largest_relay(own.dimension),
            rate=CONVERSING_RATE if self._settings.converses else None,
            verifier=resources.verifier,
        )
