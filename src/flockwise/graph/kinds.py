"""Kinds of graph that a configuration can ask for: a frozen dataclass each, whose fields are its keys.

A kernel compares agents by their vectors (`of_vectors`). Other kinds need to know only how many agents there
are (`of_agents`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from flockwise.checks import Allowed, Count, Positive, check_fields
from flockwise.errors import GraphError
from flockwise.graph.build import angular_graph, knn_graph
from flockwise.graph.randomized import complete_graph, random_graph
from flockwise.graph.similarity import SimilarityGraph
from flockwise.graph.source import GraphSource
from flockwise.registry import Registry

GRAPHS: Registry[type[Any]] = Registry("graph", GraphError)


@GRAPHS.register
@dataclass(frozen=True)
class AngularKernel:
    """`angular_graph`: exp((cos − 1)/γ) between vectors."""

    gamma: Positive = 0.1
    threshold: Annotated[
        Annotated[float, Ge(0), Le(1)] | Literal["connected"], Allowed('a number from 0 to 1, or "connected"')
    ] = 0.01
    name: ClassVar[str] = "angular"

    def __post_init__(self) -> None:
        check_fields(self, GraphError)

    def of_vectors(
        self, vectors: Any, source: GraphSource, agent_names: Sequence[str] | None
    ) -> SimilarityGraph:
        return angular_graph(
            vectors, gamma=self.gamma, threshold=self.threshold, source=source, agent_names=agent_names
        )


@GRAPHS.register
@dataclass(frozen=True)
class NearestNeighbors:
    """`knn_graph`: either one is among the k nearest of the other.

    metric: by default Euclidean for profiles, which are standardized columns, and cosine for all else: models
    differ in length.
    """

    k: Count = 10
    metric: Literal["cosine", "euclidean"] | None = None
    name: ClassVar[str] = "knn"

    def __post_init__(self) -> None:
        check_fields(self, GraphError)

    def of_vectors(
        self, vectors: Any, source: GraphSource, agent_names: Sequence[str] | None
    ) -> SimilarityGraph:
        metric = self.metric or ("euclidean" if source.kind == "profiles" else "cosine")
        return knn_graph(vectors, self.k, metric=metric, source=source, agent_names=agent_names)


@GRAPHS.register
@dataclass(frozen=True)
class RandomEdges:
    """`random_graph`: neighbors who have nothing in common, for trials of size and speed."""

    degree: Count = 10
    name: ClassVar[str] = "random"

    def of_agents(self, n_agents: int, seed: int) -> SimilarityGraph:
        return random_graph(n_agents, self.degree, seed)


@GRAPHS.register
@dataclass(frozen=True)
class CompleteGraph:
    """`complete_graph`: everyone is a neighbor of everyone."""

    name: ClassVar[str] = "complete"

    def of_agents(self, n_agents: int, seed: int) -> SimilarityGraph:
        return complete_graph(n_agents)
