"""The four kinds of rule that a method can prepare; engines run kinds of rule and know no method.

    Solved     finished: nothing is left to simulate
    Descent    an agent acts on its own tick, on what it last heard from its neighbors; ClippedDescent is
               one that trusts none of them too far
    Meetings   two agents act together: gossip ADMM
    Rounds     a conversation between neighbors, in rounds, which may release

A rule is plain arrays by position, and the loss. `ids` gives each position's agent number, by which random
numbers, ties and network conditions go: a part of the agents can so be run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from flockwise.arrays import Floats
from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.graph.stored import StoredGraph
from flockwise.objective import AnchoredObjective, LocalObjective, Loss, Objective, Problem
from flockwise.objective.problem import exchanged_samples
from flockwise.privacy.mechanisms import MECHANISMS, Mechanism, Norm
from flockwise.privacy.plan import Plan, tail_start
from flockwise.privacy.schedule import Schedule
from flockwise.privacy.sums import SumNoise
from flockwise.protocol.conversation import Conversation, Releases, SumRequest, no_release
from flockwise.solve.prior import Prior

Vector: TypeAlias = NDArray[Any]


class Edges(NamedTuple):
    """The neighbors of position i are neighbors[offsets[i]:offsets[i + 1]], with `weights` beside them.

    folder: where these arrays lie, if they are mapped from files.
    """

    offsets: NDArray[np.int64]
    neighbors: NDArray[np.int32]
    weights: Floats
    folder: str | None = None

    @classmethod
    def of(cls, graph: SimilarityGraph) -> Edges:
        folder = graph.folder if isinstance(graph, StoredGraph) else None
        return cls(graph.offsets, graph.neighbors, graph.weights, folder)

    @classmethod
    def none(cls, n_agents: int) -> Edges:
        """For agents without neighbors."""
        return cls(np.zeros(n_agents + 1, np.int64), np.empty(0, np.int32), np.empty(0))

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def degrees(self) -> Floats:
        """D_ii: the sum of an agent's weights."""
        known = int(self.neighbors.max(initial=-1)) + 1
        rows = sparse.csr_array(
            (self.weights, self.neighbors, self.offsets), shape=(len(self.offsets) - 1, known)
        )
        return rows @ np.ones(known)

    def offsets_for(self, n_known: int) -> NDArray[np.int64]:
        """With empty rows for positions that are known as neighbors only."""
        return np.append(self.offsets, np.repeat(self.offsets[-1], n_known - len(self.counts)))

    def around(self, position: int) -> dict[int, float]:
        """A position's neighbors and the weights of its edges."""
        own = slice(self.offsets[position], self.offsets[position + 1])
        return dict(zip(self.neighbors[own].tolist(), self.weights[own].tolist(), strict=True))


def rows_of(
    offsets: NDArray[np.int64], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of these agents, one agent after the other, and where each begins among them."""
    counts = np.diff(offsets)[positions]
    starts = np.concatenate([[0], np.cumsum(counts)])
    return np.repeat(offsets[positions] - starts[:-1], counts) + np.arange(starts[-1]), starts


@dataclass(frozen=True, eq=False)
class LocalData:
    """ℒ_i(θ) = mean loss over the samples of position i + λ_i‖θ‖²."""

    loss: Loss
    features: NDArray[Any]
    targets: NDArray[Any]
    offsets: NDArray[np.int64]
    l2_penalties: Floats

    @classmethod
    def of(cls, problem: Problem) -> LocalData:
        """All agents of a problem, with their samples as they exchange them."""
        samples = problem.exchanged
        return cls(problem.loss, samples.features, samples.targets, samples.offsets, problem.l2_penalties)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """What an update of each agent reads of its own, in rows."""
        return np.diff(self.offsets)

    def only(self, positions: NDArray[np.int64]) -> LocalData:
        """The same of these agents, by their new positions."""
        rows, offsets = rows_of(self.offsets, positions)
        own = self.features[rows], self.targets[rows], offsets
        return LocalData(self.loss, *own, self.l2_penalties[positions])

    def at(self, position: int) -> LocalObjective:
        own = slice(self.offsets[position], self.offsets[position + 1])
        return LocalObjective(self.loss, self.features[own], self.targets[own], self.l2_penalties[position])


@dataclass(frozen=True, eq=False)
class StoredData:
    """The same, of samples that are still in their files: whoever runs the agents reads them."""

    objective: Objective
    population: Population
    l2_penalties: Floats

    @property
    def sizes(self) -> NDArray[np.int64]:
        """What an update of each agent reads of its own, in rows."""
        return self.population.sample_counts

    def only(self, positions: NDArray[np.int64]) -> StoredData:
        """The same of these agents."""
        return StoredData(self.objective, self.population.select(positions), self.l2_penalties[positions])

    def read(self) -> LocalData:
        samples = exchanged_samples(self.population.in_memory, self.objective)
        own = samples.features, samples.targets, samples.offsets
        return LocalData(self.objective.loss, *own, self.l2_penalties)


def local_data(problem: Problem) -> LocalData | StoredData:
    """All agents' samples, or where they are."""
    if problem.population.is_read:
        return LocalData.of(problem)
    return StoredData(replace(problem.objective, l2=None), problem.population, problem.l2_penalties)


@dataclass(frozen=True, eq=False)
class LocalAnchors:
    """ℒ_i(θ) = ½‖θ − anchor_i‖² (supplement C)."""

    anchors: NDArray[Any]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """What an update of each agent reads of its own, in rows."""
        return np.ones(len(self.anchors), np.int64)

    def only(self, positions: NDArray[np.int64]) -> LocalAnchors:
        """The same of these agents."""
        return LocalAnchors(self.anchors[positions])

    def at(self, position: int) -> AnchoredObjective:
        return AnchoredObjective(self.anchors[position])


@dataclass(frozen=True, eq=False)
class DescentNoise:
    """What the agents add to their clipped mean gradients, release by release: Eq. (6).

    clip: bound on the gradient of one sample, in the norm of the mechanism.
    sensitivities: 2·clip/m_i, and 0 for an agent without samples, whose messages say nothing of any.
    start_sensitivities: where the start itself is released, as the first release, how far it may move.
    shown: of an agent's models the mean of the later half, or the last.
    """

    schedule: Schedule
    clip: float
    dimension: int
    sensitivities: Floats
    start_sensitivities: Floats | None = None
    shown: Literal["tail", "last"] = "tail"

    @property
    def n_before(self) -> int:
        """Releases that are spent before the first update."""
        return 0 if self.start_sensitivities is None else 1

    @property
    def n_updates(self) -> int:
        return self.schedule.n_releases - self.n_before

    @property
    def tail_start(self) -> int:
        """The update from which on an agent's releases are averaged: the second half of them, or the last."""
        return tail_start(self.n_updates) if self.shown == "tail" else self.n_updates - 1

    @property
    def norm(self) -> Norm:
        return MECHANISMS[self.schedule.mechanism].norm

    @property
    def multipliers(self) -> Floats:
        """Noise for a sensitivity of 1: one row per plan, one column per update."""
        return self.schedule.multipliers[:, self.n_before :]

    def stds(self) -> Floats:
        """Standard deviation of one coordinate of the noisy mean gradient, by agent and update."""
        units = self.schedule.stds(self.dimension)[:, self.n_before :]
        return units * self.sensitivities[:, None]

    def only(self, positions: NDArray[np.int64]) -> DescentNoise:
        """The same of these agents."""
        start = self.start_sensitivities
        return replace(
            self,
            schedule=Schedule(self.schedule.plans, self.schedule.rows[positions]),
            sensitivities=self.sensitivities[positions],
            start_sensitivities=None if start is None else start[positions],
        )

    def plan_of(self, position: int) -> Plan | None:
        """What one agent's own gate is granted; None for an agent without samples."""
        return None if self.sensitivities[position] == 0 else self.schedule.plan_of(position)

    def events_of(self, position: int, count: int) -> list[Mechanism]:
        """The first releases of one agent."""
        plan = self.schedule.plan_of(position)
        own = [float(self.sensitivities[position])] * count
        if self.start_sensitivities is not None and count:
            own[0] = float(self.start_sensitivities[position])
        return [plan.event(number, value, self.dimension) for number, value in enumerate(own, start=1)]


@dataclass(frozen=True, eq=False)
class Descent:
    """Block coordinate descent on Eq. (2): where each agent starts, how far it steps, how its own term pulls.

    start_is_public: whether everyone knows where everyone starts without a message; otherwise each agent
    broadcasts its start first. With `noise` every sample's gradient is clipped and every update adds what
    the plan says: Eq. (6).
    """

    ids: NDArray[np.int64]
    edges: Edges
    local: LocalData | StoredData | LocalAnchors
    start: NDArray[Any]
    start_is_public: bool
    step_sizes: Floats
    pulls: Floats
    noise: DescentNoise | None = None

    @property
    def n_agents(self) -> int:
        return len(self.ids)

    @property
    def in_memory(self) -> Descent:
        """The same, with samples read that were still in their files."""
        return replace(self, local=self.local.read()) if isinstance(self.local, StoredData) else self

    @property
    def shown(self) -> str | None:
        """Which of its private models a run shows: "tail" or "last"; None without a budget."""
        return None if self.noise is None else self.noise.shown

    @property
    def planned_updates(self) -> int | None:
        """How many updates of each agent a budget was planned for; None without one."""
        return None if self.noise is None else self.noise.n_updates


@dataclass(frozen=True, eq=False)
class ClippedDescent(Descent):
    """Descent on a clipped mean of the neighbors' models (flockwise.protocol.aggregation).

    An engine that does not name this kind of rule refuses it.
    """

    words: ClassVar[str] = 'descent with neighbors = "clipped"'


@dataclass(frozen=True, eq=False)
class Meetings:
    """Gossip ADMM on Eq. (2): at its tick an agent wakes a random neighbor, and both act (method.admm).

    start_is_public: whether everyone knows where everyone starts without a message; otherwise each agent
    first sends its start to its neighbors, for their copies of it.
    """

    ids: NDArray[np.int64]
    edges: Edges
    local: LocalData
    start: NDArray[Any]
    start_is_public: bool
    penalty: float
    gradient_steps: int
    data_weights: Floats
    smoothness: Floats
    words: ClassVar[str] = "gossip ADMM"

    @property
    def n_agents(self) -> int:
        return len(self.ids)

    @cached_property
    def copy_shares(self) -> Floats:
        """s = W_ij / (W_ij + 2ρ) of each directed edge: how far a copy follows the own model."""
        return self.edges.weights / (self.edges.weights + 2 * self.penalty)

    @cached_property
    def stiffness(self) -> Floats:
        """ρ Σ_j (1 + s_j): the curvature that an agent's edges add to its part."""
        owners = np.repeat(np.arange(self.n_agents), self.edges.counts)
        sums = np.zeros(self.n_agents)
        np.add.at(sums, owners, 1 + self.copy_shares)
        return self.penalty * sums

    @cached_property
    def step_sizes(self) -> Floats:
        """1 / smoothness of an agent's part; 0 where the part is constant."""
        smoothness = self.data_weights * self.smoothness + self.stiffness
        return np.divide(1, smoothness, out=np.zeros_like(smoothness), where=smoothness > 0)


@dataclass
class Traffic:
    """Vectors and bytes sent along edges, by stage of a protocol."""

    vectors: dict[str, int]
    bytes: dict[str, int]

    @classmethod
    def none(cls) -> Traffic:
        return cls({}, {})

    def add(self, stage: str, vectors: int, numbers: int) -> None:
        """So many vectors of so many numbers each."""
        self.vectors[stage] = self.vectors.get(stage, 0) + vectors
        self.bytes[stage] = self.bytes.get(stage, 0) + vectors * BYTES_PER_NUMBER * numbers

    @property
    def all_vectors(self) -> int:
        return sum(self.vectors.values())

    @property
    def all_bytes(self) -> int:
        return sum(self.bytes.values())


BYTES_PER_NUMBER = 8


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a conversation ends with: everyone's model, how many rounds it took, what was sent.

    details: what the method's own finish needs besides. prior: over everyone's models, if one was learned.
    advice: what users should know, from public values.
    """

    models: Floats
    rounds: NDArray[np.int64]
    traffic: Traffic
    details: Any = None
    prior: Prior | None = None
    advice: str | None = None


class Contributions(NamedTuple):
    """How agents answer requests for a sum that is opened only as a whole (flockwise.privacy.sums).

    part: what the samples at one position add, in grid steps and without noise. whole: the sum of the parts
    of several positions, to the last digit. noise: what is added to them. least_present: with fewer agents a
    sum is not opened.
    """

    part: Callable[[int, SumRequest], NDArray[np.int64]]
    whole: Callable[[NDArray[np.intp], SumRequest], NDArray[np.int64]]
    noise: SumNoise
    least_present: int


def no_releases(position: int) -> Releases:
    """For agents without a gate."""
    return no_release


@dataclass(frozen=True, eq=False)
class Rounds:
    """A conversation between neighbors; agents without neighbors say nothing.

    With `sums` it is one of all agents together: it asks for sums, and needs no edges.

    converse: one agent's side of it, from its position, its number and the weights of its edges by the
    neighbors' numbers. release: how an agent's samples answer requests, by position. collect: the outcome,
    from everyone's results by position and what was sent. at_once: the same outcome for all agents together,
    from their numbers, if there is a fast way.
    """

    ids: NDArray[np.int64]
    edges: Edges
    converse: Callable[[int, int, Mapping[int, float]], Conversation[Any]]
    collect: Callable[[Mapping[int, Any], Traffic], Outcome]
    release: Callable[[int], Releases] = no_releases
    sums: Contributions | None = None
    at_once: Callable[[NDArray[np.int64]], Outcome] | None = None

    @property
    def n_agents(self) -> int:
        return len(self.ids)

    @property
    def spends(self) -> bool:
        """Whether something that is computed from samples is sent while agents talk."""
        return self.sums is not None or self.release is not no_releases


@dataclass(frozen=True, eq=False)
class Solved:
    """Models that are there already: no tick, no message. prior and advice: as in an outcome."""

    models: NDArray[Any]
    prior: Prior | None = None
    advice: str | None = None

    @property
    def n_agents(self) -> int:
        return len(self.models)


Rule: TypeAlias = Solved | Descent | Meetings | Rounds
