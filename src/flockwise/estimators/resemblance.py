"""The argument graph= of an estimator: from what users have to a graph among the agents of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from flockwise.arrays import Floats
from flockwise.data.labels import names_of
from flockwise.data.tables import as_table, columns_of, is_table
from flockwise.errors import GraphError
from flockwise.estimators.columns import is_frame
from flockwise.graph import GraphSource, SimilarityGraph, knn_graph
from flockwise.graph.tabular import named_vectors

NEIGHBORS = 10
KINDS = 'None, "models", "profiles", a matrix, or edges'


def models_graph(models: Floats, agents: Sequence[str]) -> SimilarityGraph | None:
    """The nearest neighbors by direction of the models that agents learned alone."""
    placed = np.flatnonzero(np.abs(models).max(axis=1) > 0)
    if len(placed) < 2:
        return None
    found = knn_graph(models[placed], min(NEIGHBORS, len(placed) - 1), source="models")
    matrix = sparse.coo_array(found.to_scipy())
    rows, columns = placed[matrix.coords[0]], placed[matrix.coords[1]]
    shape = (len(models), len(models))
    whole = sparse.csr_array((matrix.data, (rows, columns)), shape=shape)
    return SimilarityGraph.from_scipy(whole, found.source, agent_names=agents)


@dataclass(frozen=True, eq=False)
class Profiles:
    """The public facts of each agent as a vector; also of agents that are not in a fit."""

    vectors: Floats
    position: dict[str, int]
    source: GraphSource

    @classmethod
    def of(cls, profiles: Any, agent: str | None) -> Profiles:
        if profiles is None:
            raise GraphError('graph="profiles" needs profiles=, a frame with one row per agent')
        _, column = _with_names(profiles, agent or "agent")
        vectors, names, source = named_vectors(profiles, agent=column)
        assert names is not None
        return cls(vectors, {name: place for place, name in enumerate(names)}, source)

    def graph(self, agents: Sequence[str]) -> SimilarityGraph | None:
        """The nearest neighbors among these agents."""
        stranger = next((name for name in agents if name not in self.position), None)
        if stranger is not None:
            raise GraphError(f"agent {stranger!r} has no row in profiles=; add one")
        if len(agents) < 2:
            return None
        vectors = self.vectors[[self.position[name] for name in agents]]
        k = min(NEIGHBORS, len(agents) - 1)
        source = self.source.more(f"{k} nearest neighbors, euclidean")
        return knn_graph(vectors, k, metric="euclidean", source=source, agent_names=agents)

    def start(self, name: str, agents: Sequence[str], models: Floats) -> Floats | None:
        """For an agent that was not in the fit: the mean model of the agents nearest to it."""
        if name not in self.position:
            return None
        vectors = self.vectors[[self.position[one] for one in agents]]
        away = ((vectors - self.vectors[self.position[name]]) ** 2).sum(axis=1)
        return models[np.argsort(away, kind="stable")[:NEIGHBORS]].mean(axis=0)


def given_graph(graph: Any, agents: tuple[str, ...]) -> SimilarityGraph:
    """A matrix or edges that the user brought, for the agents of this fit; other agents are left out."""
    if isinstance(graph, SimilarityGraph):
        return _among(graph, graph.agent_names, agents)
    if is_frame(graph):
        return _from_frame(graph, agents)
    if sparse.issparse(graph) or (isinstance(graph, np.ndarray) and graph.dtype.kind in "biuf"):
        return _among(SimilarityGraph.from_scipy(graph), None, agents)
    if isinstance(graph, str) or not isinstance(graph, Sequence | np.ndarray):
        raise GraphError(f"graph must be {KINDS}; got {graph!r}")
    rows = [tuple(row) for row in graph]
    if any(len(row) not in (2, 3) for row in rows):
        raise GraphError("edges must be pairs of agents, or pairs with a weight")
    weights = [float(row[2]) if len(row) == 3 else 1.0 for row in rows]
    return _from_edges([row[0] for row in rows], [row[1] for row in rows], weights, agents)


def _from_frame(frame: Any, agents: tuple[str, ...]) -> SimilarityGraph:
    """A square table named by agents on both sides, or a table of edges."""
    table = as_table(frame)
    columns = columns_of(table)
    if {"source", "target"} <= set(columns):
        weights = table["weight"].to_pylist() if "weight" in columns else [1.0] * table.num_rows
        return _from_edges(table["source"].to_pylist(), table["target"].to_pylist(), weights, agents)
    named, column = _with_names(frame, "agent")
    names = names_of(named[column].to_pylist())
    others = [name for name in columns_of(named) if name != column]
    if set(others) != set(names):
        raise GraphError(
            "a frame as graph= has columns source, target and perhaps weight, or it is square, with the "
            "agents' names as index and as columns"
        )
    matrix = np.column_stack([named[name].to_numpy() for name in names])
    return _among(SimilarityGraph.from_scipy(matrix, agent_names=names), names, agents)


def _from_edges(
    sources: list[Any], targets: list[Any], weights: list[float], agents: tuple[str, ...]
) -> SimilarityGraph:
    position = {name: place for place, name in enumerate(agents)}
    ends = [(position.get(str(a)), position.get(str(b))) for a, b in zip(sources, targets, strict=True)]
    kept = [k for k, (a, b) in enumerate(ends) if a is not None and b is not None]
    if not kept:
        raise GraphError("no edge of graph= joins two agents of the data; name agents as the data do")
    return SimilarityGraph.from_edges(
        len(agents), np.array([ends[k] for k in kept]), [weights[k] for k in kept], agent_names=agents
    )


def _among(graph: SimilarityGraph, names: Sequence[str] | None, agents: tuple[str, ...]) -> SimilarityGraph:
    """The part of a graph between these agents, in their order; without names row i is the i-th agent."""
    if names is None:
        if graph.n_agents != len(agents):
            raise GraphError(
                f"the matrix has {graph.n_agents} rows and the data {len(agents)} agents (sorted by name); "
                "cross-validation may leave agents out: give a frame named by agents, or edges"
            )
        names = agents
    position = {name: place for place, name in enumerate(names)}
    stranger = next((name for name in agents if name not in position), None)
    if stranger is not None:
        raise GraphError(f"agent {stranger!r} is not in graph=; add it, without edges if it has none")
    order = np.array([position[name] for name in agents])
    part = graph.to_scipy()[order][:, order]
    return SimilarityGraph.from_scipy(part, graph.source, agent_names=agents)


def _with_names(frame: Any, column: str) -> tuple[pa.Table, str]:
    """The table, and which column names the agents: this one, or the index of a pandas frame."""
    if not is_table(frame):
        raise GraphError(f"a frame with one row per agent is needed, got a {type(frame).__name__}")
    table = as_table(frame)
    if column in table.column_names:
        return table, column
    index = [name for name in table.column_names if name not in columns_of(table)]
    if not index:
        raise GraphError(f"say whose row it is: name the agents in a column {column!r} or in the index")
    return table, index[0]
