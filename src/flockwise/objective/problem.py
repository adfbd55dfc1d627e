"""A problem: whose data, who resembles whom, and what they minimize."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.checks import check_kind
from flockwise.data.checks import quoted
from flockwise.data.labels import unless_numbered
from flockwise.data.population import Population
from flockwise.errors import GraphError, ObjectiveError
from flockwise.objective.bounds import ROWS_AT_ONCE, bounded_features, bounded_targets
from flockwise.objective.losses import Loss
from flockwise.objective.objective import Objective
from flockwise.privacy.origin import Origin

if TYPE_CHECKING:
    from flockwise.graph.similarity import SimilarityGraph

_DEPENDS_ON_TRADEOFF = ("pulls", "step_sizes", "block_smoothness", "fingerprint")


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Eq. (2) with everything that it needs; all arrays have one entry per agent.

    graph: who resembles whom; methods that need neighbors refuse a problem without one. A graph that knows
    its agents' names is put in the order of the population. One that compares a row of each agent has to, if
    the population does.
    """

    population: Population
    graph: SimilarityGraph | None = None
    objective: Objective = field(default_factory=Objective)

    def __post_init__(self) -> None:
        check_kind(self.population, Population, "population", ObjectiveError)
        check_kind(self.objective, Objective, "objective", ObjectiveError)
        if self.graph is not None and not hasattr(self.graph, "in_order"):
            raise ObjectiveError(
                f"graph must be a SimilarityGraph or None, got a {type(self.graph).__name__}"
            )
        if self.graph is not None:
            object.__setattr__(self, "graph", _aligned(self.graph, self.population))
        if not self.population.is_read:
            from flockwise.data.stored import StoredPopulation  # large, and no business of a real agent

            assert isinstance(self.population, StoredPopulation)
            check = partial(check_targets, loss=self.loss)
            object.__setattr__(self, "population", self.population.checked(check))
        else:
            check_targets(self.population, self.loss)
        if self.objective.l2 != "auto":
            _ = self.l2_penalties  # a bad l2 is refused here and not at its first use

    def __repr__(self) -> str:
        edges = "no graph" if self.graph is None else f"{self.graph.n_edges} edges"
        return (
            f"Problem({self.n_agents} agents, {self.population.n_samples} samples, {edges}, "
            f"{self.loss!r}, tradeoff={self.objective.tradeoff!r})"
        )

    @property
    def n_agents(self) -> int:
        return self.population.n_agents

    @property
    def loss(self) -> Loss:
        return self.objective.loss

    @property
    def tradeoff(self) -> float:
        """μ."""
        return self.objective.tradeoff

    @property
    def dimension(self) -> int:
        """p: the coordinates of one model, outputs × features."""
        return self.loss.outputs * self.population.n_features

    @property
    def neighbors(self) -> SimilarityGraph:
        """The graph, for those who cannot do without one."""
        if self.graph is None:
            raise GraphError("this needs a graph, and the problem has none; give Problem a graph")
        return self.graph

    @property
    def origins(self) -> tuple[Origin, ...]:
        """What samples, graph and settings were derived from: a guarantee names what it does not cover."""
        given = (self.graph and self.graph.source, self.objective.l2, self.objective.tradeoff)
        found = (getattr(one, "origin", None) for one in given)
        return (*self.population.origins, *(origin for origin in found if origin is not None))

    @cached_property
    def exchanged(self) -> Population:
        """The samples as everything that agents exchange uses them, within their public bounds.

        Longer ones are scaled and not refused, targets beyond their range are moved to its ends: a refusal
        would leak that there is one. In a regression the target of a row is scaled with it.
        """
        return exchanged_samples(self.population.in_memory, self.objective)

    @cached_property
    def l2_penalties(self) -> Floats:
        """λ_i of Eq. (1)."""
        return self.objective.penalties(self.population.sample_counts)

    @cached_property
    def sample_cap(self) -> int:
        """The m that a confidence of 1 stands for."""
        if self.objective.max_samples is not None:
            return self.objective.max_samples
        return max(int(self.population.sample_counts.max()), 1)

    @cached_property
    def confidences(self) -> Floats:
        """c_i = m_i / cap, at most 1, and a small constant without data."""
        return self.objective.confidences(self.population.sample_counts, self.sample_cap)

    @cached_property
    def local_smoothness(self) -> Floats:
        """L_i^loc: the Lipschitz constant of the gradient of Eq. (1); from public bounds if there are any."""
        public = self.objective.public_curvature
        if public is not None:
            return np.full(self.n_agents, public) + 2 * self.l2_penalties
        if not self.population.is_read:
            raise ObjectiveError(
                "step sizes would take all samples, which are still in their files: give "
                "Objective(feature_bound=...), from which they follow, or Problem(population.in_memory, ...)"
            )
        # Imported here: it brings a compiler, which a real agent with public bounds never needs.
        from flockwise.objective.spectrum import largest_gram_eigenvalues

        gram = largest_gram_eigenvalues(self.population.features, self.population.offsets)
        return self.loss.curvature * gram + 2 * self.l2_penalties

    @cached_property
    def pulls(self) -> Floats:
        """μ c_i: how strongly an agent's own data pulls, against its neighbors' 1."""
        return self.objective.tradeoff * self.confidences

    @cached_property
    def block_smoothness(self) -> Floats:
        """L_i = D_ii (1 + μ c_i L_i^loc)."""
        return self.neighbors.degrees * (1 + self.pulls * self.local_smoothness)

    @cached_property
    def step_sizes(self) -> Floats:
        """α_i = 1 / (1 + μ c_i L_i^loc) of Eq. (4)."""
        return 1 / (1 + self.pulls * self.local_smoothness)

    def with_objective(self, **settings: Any) -> Problem:
        """The same problem with other settings of its objective."""
        return replace(self, objective=replace(self.objective, **settings))

    def with_tradeoff(self, tradeoff: float) -> Problem:
        """The same problem with another μ; what does not depend on μ is not computed again."""
        objective = replace(self.objective, tradeoff=tradeoff)
        # Computed before the copy is made, so a sweep over μ computes them once.
        _ = self.confidences, self.local_smoothness
        other = copy.copy(self)
        object.__setattr__(other, "objective", objective)
        for name in _DEPENDS_ON_TRADEOFF:
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the arrays and parameters: equal for equal problems, for checks on resuming."""
        digest = hashlib.sha256()
        kind = type(self.loss)
        parameters = (
            f"{kind.__module__}.{kind.__qualname__}",
            repr(self.objective.to_json() | {"max_samples": self.sample_cap, "l2": None}),
        )
        digest.update("\n".join(parameters).encode())
        arrays = [*self.population.identity]
        if self.graph is not None:
            arrays += [self.graph.offsets, self.graph.neighbors, self.graph.weights]
        for array in (*arrays, self.l2_penalties):
            digest.update(f"\n{array.dtype.str}{array.shape}\n".encode())
            digest.update(_bytes_of(array))
        return digest.hexdigest()


def exchanged_samples(population: Population, objective: Objective) -> Population:
    """Samples within their public bounds, each whatever the others are."""
    if not population.n_samples:
        return population
    features, targets = population.features, objective.in_range(population.targets)
    if objective.feature_bound is not None:
        targets = bounded_targets(features, targets, objective)
        features = bounded_features(features, objective.feature_bound)
    if features is population.features and targets is population.targets:
        return population
    return population.with_samples(features, targets)


def _aligned(graph: SimilarityGraph, population: Population) -> SimilarityGraph:
    """The graph in the population's order of agents."""
    if graph.agent_names is not None:
        return graph.in_order(population.agent_names)
    if graph.n_agents != population.n_agents:
        raise ObjectiveError(
            f"the graph has {graph.n_agents} agents and the population {population.n_agents}; "
            "build the graph on the same agents, in the same order"
        )
    names = unless_numbered(population.given_names)
    if graph.source.compares_rows and names is not None:
        raise ObjectiveError(
            f"the agents of the population have names ({quoted(names)}), and the graph does not say which "
            "row is whose: build it from a data frame whose index names the agents, give profile_graph the "
            "column of names as agent=, or, for rows in the population's order, "
            "agent_names=population.agent_names"
        )
    return graph


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """The array's own memory as bytes, without a copy; empty arrays have no memory to view."""
    return memoryview(b"") if array.size == 0 else np.ascontiguousarray(array).data.cast("B")


def check_targets(population: Population, loss: Loss) -> None:
    """Refuse training samples that the loss does not accept."""
    misfit = target_misfit(population, loss, "training")
    if misfit is not None:
        raise ObjectiveError(misfit)


def target_misfit(population: Population, loss: Loss, kind: Literal["training", "held-out"]) -> str | None:
    """The first target that the loss does not accept, in words; None if it accepts them all."""
    # Some at a time: room for what a loss compares takes longer than comparing.
    pieces = np.split(population.targets, range(ROWS_AT_ONCE, population.n_samples, ROWS_AT_ONCE))
    valid = np.concatenate([loss.valid_targets(piece) for piece in pieces])
    if valid.all():
        return None
    row = int(np.argmin(valid))
    return (
        f"{_place_of(population, row, kind)}: target {population.targets[row].item()!r} does not fit "
        f"{type(loss).__name__}, which expects {loss.expects}; "
        f"{np.count_nonzero(~valid):,} of {valid.size:,} targets do not fit in all"
    )


def _place_of(population: Population, row: int, kind: str) -> str:
    agent = int(np.searchsorted(population.offsets, row, side="right")) - 1
    number = row - population.offsets[agent] + 1
    return f"agent {population.agent_names[agent]!r}, {kind} sample {number} (counted from 1)"
