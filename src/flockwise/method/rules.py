"""The four kinds of rule that a method can prepare; engines run kinds of rule and know no method.

    Solved     finished: nothing is left to simulate
    Descent    an agent acts on its own tick, on what it last heard from its neighbors
    Meetings   two agents act together: gossip ADMM
    Rounds     a conversation between neighbors, in rounds, which may release

A rule is plain arrays by position, and the loss. `ids` gives each position's agent number, by which random
numbers, ties and network conditions go: a part of the agents can so be run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.graph import SimilarityGraph
from flockwise.objective import AnchoredObjective, LocalObjective, Loss, Problem
from flockwise.privacy.mechanisms import MECHANISMS, Mechanism, Norm
from flockwise.privacy.plan import Plan
from flockwise.privacy.schedule import Schedule
from flockwise.protocol.conversation import Conversation, Releases, no_release

Vector: TypeAlias = NDArray[Any]


class Edges(NamedTuple):
    """The neighbors of position i are neighbors[offsets[i]:offsets[i + 1]], with `weights` beside them."""

    offsets: NDArray[np.int64]
    neighbors: NDArray[np.int32]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, graph: SimilarityGraph) -> Edges:
        return cls(graph.offsets, graph.neighbors, graph.weights)

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def degrees(self) -> NDArray[np.float64]:
        """D_ii: the sum of an agent's weights."""
        owners = np.repeat(np.arange(len(self.counts)), self.counts)
        return np.bincount(owners, self.weights, len(self.counts)).astype(np.float64)

    def around(self, position: int) -> dict[int, float]:
        """A position's neighbors and the weights of its edges."""
        own = slice(self.offsets[position], self.offsets[position + 1])
        return dict(zip(self.neighbors[own].tolist(), self.weights[own].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class LocalData:
    """ℒ_i(θ) = mean loss over the samples of position i + λ_i‖θ‖²."""

    loss: Loss
    features: NDArray[Any]
    targets: NDArray[Any]
    offsets: NDArray[np.int64]
    l2_penalties: NDArray[np.float64]

    @classmethod
    def of(cls, problem: Problem) -> LocalData:
        """All agents of a problem, with their samples as they exchange them."""
        samples = problem.exchanged
        return cls(problem.loss, samples.features, samples.targets, samples.offsets, problem.l2_penalties)

    def at(self, position: int) -> LocalObjective:
        own = slice(self.offsets[position], self.offsets[position + 1])
        return LocalObjective(self.loss, self.features[own], self.targets[own], self.l2_penalties[position])


@dataclass(frozen=True, eq=False)
class LocalAnchors:
    """ℒ_i(θ) = ½‖θ − anchor_i‖² (supplement C)."""

    anchors: NDArray[Any]

    def at(self, position: int) -> AnchoredObjective:
        return AnchoredObjective(self.anchors[position])


@dataclass(frozen=True, eq=False)
class DescentNoise:
    """What the agents add to their clipped mean gradients, release by release: Eq. (6).

    clip: bound on the gradient of one sample, in the norm of the mechanism.
    sensitivities: 2·clip/m_i, and 0 for an agent without samples, whose messages say nothing of any.
    start_sensitivities: where the start itself is released, as the first release, how far it may move.
    """

    schedule: Schedule
    clip: float
    dimension: int
    sensitivities: NDArray[np.float64]
    start_sensitivities: NDArray[np.float64] | None = None

    @property
    def n_before(self) -> int:
        """Releases that are spent before the first update."""
        return 0 if self.start_sensitivities is None else 1

    @property
    def n_updates(self) -> int:
        return self.schedule.n_releases - self.n_before

    @property
    def tail_start(self) -> int:
        """The update from which on an agent's releases are averaged: the second half of them."""
        return tail_start(self.n_updates)

    @property
    def norm(self) -> Norm:
        return MECHANISMS[self.schedule.mechanism].norm

    @property
    def multipliers(self) -> NDArray[np.float64]:
        """Noise for a sensitivity of 1: one row per plan, one column per update."""
        return self.schedule.multipliers[:, self.n_before :]

    def stds(self) -> NDArray[np.float64]:
        """Standard deviation of one coordinate of the noisy mean gradient, by agent and update."""
        units = self.schedule.stds(self.dimension)[:, self.n_before :]
        return units * self.sensitivities[:, None]

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


def tail_start(n_updates: int) -> int:
    """The second half of an agent's releases is averaged."""
    return n_updates // 2


@dataclass(frozen=True, eq=False)
class Descent:
    """Block coordinate descent on Eq. (2): where each agent starts, how far it steps, how its own term pulls.

    start_is_public: whether everyone knows where everyone starts without a message; otherwise each agent
    broadcasts its start first. With `noise` every sample's gradient is clipped and every update adds what
    the plan says: Eq. (6).
    """

    ids: NDArray[np.int64]
    edges: Edges
    local: LocalData | LocalAnchors
    start: NDArray[Any]
    start_is_public: bool
    step_sizes: NDArray[np.float64]
    pulls: NDArray[np.float64]
    noise: DescentNoise | None = None

    @property
    def n_agents(self) -> int:
        return len(self.ids)

    @property
    def planned_updates(self) -> int | None:
        """How many updates of each agent a budget was planned for; None without one."""
        return None if self.noise is None else self.noise.n_updates


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
    data_weights: NDArray[np.float64]
    smoothness: NDArray[np.float64]

    @property
    def n_agents(self) -> int:
        return len(self.ids)

    @cached_property
    def copy_shares(self) -> NDArray[np.float64]:
        """s = W_ij / (W_ij + 2ρ) of each directed edge: how far a copy follows the own model."""
        return self.edges.weights / (self.edges.weights + 2 * self.penalty)

    @cached_property
    def stiffness(self) -> NDArray[np.float64]:
        """ρ Σ_j (1 + s_j): the curvature that an agent's edges add to its part."""
        owners = np.repeat(np.arange(self.n_agents), self.edges.counts)
        sums = np.zeros(self.n_agents)
        np.add.at(sums, owners, 1 + self.copy_shares)
        return self.penalty * sums

    @cached_property
    def step_sizes(self) -> NDArray[np.float64]:
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

    details: what the method's own finish needs besides.
    """

    models: NDArray[np.float64]
    rounds: NDArray[np.int64]
    traffic: Traffic
    details: Any = None


@dataclass(frozen=True, eq=False)
class Rounds:
    """A conversation between neighbors; agents without neighbors say nothing.

    converse: one agent's side of it, from its position, its number and the weights of its edges by the
    neighbors' numbers. release: how an agent's samples answer requests, by position. collect: the outcome,
    from everyone's results by position and what was sent. at_once: the same outcome for all agents together,
    from their numbers, if there is a fast way.
    """

    ids: NDArray[np.int64]
    edges: Edges
    converse: Callable[[int, int, Mapping[int, float]], Conversation[Any]]
    collect: Callable[[Mapping[int, Any], Traffic], Outcome]
    release: Callable[[int], Releases] = lambda position: no_release
    at_once: Callable[[NDArray[np.int64]], Outcome] | None = None

    @property
    def n_agents(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Solved:
    """Models that are there already: no tick, no message."""

    models: NDArray[Any]

    @property
    def n_agents(self) -> int:
        return len(self.models)


Rule: TypeAlias = Solved | Descent | Meetings | Rounds
