"""SimilarityGraph: how much agents resemble each other. Its invariants hold by construction.

Rows of an edge list are counted from 1 in messages, agents from 0 unless they have names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from flockwise.data.checks import quoted
from flockwise.data.labels import names_of
from flockwise.data.rows import named_rows
from flockwise.errors import GraphError, MissingExtra
from flockwise.graph.canonical import (
    LARGEST_INT32,
    agent_blocks,
    agent_label,
    canonical_matrix,
    check_entries,
    check_layout,
    check_symmetry,
    entries_of,
    mirrored,
    owners_of,
    upper_triangle,
)
from flockwise.graph.source import GraphSource, SourceKind, as_source
from flockwise.notebook import html_table
from flockwise.privacy.tracked import origin_of, worst_of

if TYPE_CHECKING:
    import networkx

Symmetrize: TypeAlias = Literal["either", "mean"]

SHOWN = 5  # how many agents or components `describe` lists before it says "and … more"


@dataclass(frozen=True, eq=False, repr=False)
class SimilarityGraph:
    """Symmetric, finite, positive weights W without self-loops, stored agent after agent.

    Agent i's neighbors are `neighbors[offsets[i]:offsets[i + 1]]`, in ascending order, with
    `weights` beside them; every edge is stored in both directions. The constructor checks all of
    this for arrays that are already in this form; `from_scipy`, `from_edges` and `from_networkx`
    bring other forms into it. The arrays are read-only.
    agent_names: who the agents are, if known; a `Problem` then puts them in the order of its population.
    """

    offsets: NDArray[np.int64]
    neighbors: NDArray[np.int32]
    weights: NDArray[np.float64]
    source: GraphSource
    agent_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        offsets, neighbors = np.asarray(self.offsets), np.asarray(self.neighbors)
        weights = np.asarray(self.weights)
        check_layout(offsets, neighbors, weights)
        self._freeze("offsets", offsets, np.int64)
        self._freeze("neighbors", neighbors, np.int32)
        self._freeze("weights", weights, np.float64)
        check_entries(self.offsets, self.neighbors, self.weights)
        self._check_symmetry()
        if self.agent_names is not None and len(self.agent_names) != self.n_agents:
            raise GraphError(f"{len(self.agent_names)} agent_names for {self.n_agents} agents; give one each")

    def _check_symmetry(self) -> None:
        check_symmetry(self.to_scipy())

    def _freeze(self, name: str, array: NDArray[Any], dtype: type[np.generic]) -> None:
        view = np.ascontiguousarray(array, dtype=dtype).view()
        view.flags.writeable = False
        object.__setattr__(self, name, view)

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        source: GraphSource | SourceKind = "matrix",
        *,
        symmetrize: Symmetrize | None = None,
        agent_names: Sequence[str] | None = None,
    ) -> SimilarityGraph:
        """From a square SciPy sparse matrix of any format, or a dense array; a zero is not an edge.

        `symmetrize="either"` makes an edge if either row says so, with the larger weight;
        `"mean"` averages the two directions. Without it an asymmetric matrix is refused. The
        arrays are copied. `source` says what the matrix was made from; unsaid, its origin is unknown.
        """
        rows = named_rows(matrix, agent_names)
        if rows.columns is not None and rows.agent_names not in (None, rows.columns):
            raise GraphError(
                "the rows and the columns of the matrix are not the same agents in the same order"
            )
        csr = canonical_matrix(rows.numbers)
        if symmetrize is not None:
            check_entries(csr.indptr, csr.indices, csr.data)
            csr = _symmetrized(csr, symmetrize)
        return cls.from_canonical(csr, as_source(source, made_of=origin_of(matrix)), rows.agent_names)

    @classmethod
    def from_canonical(
        cls, csr: Any, source: GraphSource | SourceKind, agent_names: Sequence[str] | None = None
    ) -> SimilarityGraph:
        """From a CSR matrix in this class's own form, whose arrays it takes over without a copy."""
        names = None if agent_names is None else names_of(agent_names)
        return cls(csr.indptr, csr.indices, csr.data, as_source(source), names)

    @classmethod
    def from_edges(
        cls,
        n_agents: int,
        edges: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        source: GraphSource | SourceKind = "edges",
        agent_names: Sequence[str] | None = None,
    ) -> SimilarityGraph:
        """From undirected edges, one row (agent, agent) each, in either direction; weight 1 by default.

        An edge may be listed again, in either direction, with the same weight.
        """
        upper = upper_triangle(n_agents, edges, weights, agent_names)
        known = [part for part in (edges, weights) if origin_of(part) is not None]
        made_of = worst_of([origin_of(part) for part in known]) if known else None
        return cls.from_canonical(mirrored(upper), as_source(source, made_of=made_of), agent_names)

    @classmethod
    def from_networkx(
        cls,
        graph: networkx.Graph[Any],
        agent_names: Sequence[Any] | None = None,
        *,
        source: GraphSource | SourceKind = "edges",
    ) -> SimilarityGraph:
        """From an undirected NetworkX graph; the edge attribute `weight` is used, 1 where absent.

        Nodes 0 … n−1 are agents 0 … n−1. With any other labels `agent_names` gives their order,
        because the order in which NetworkX met them says nothing about the agents' data.
        """
        if graph.is_directed():
            raise GraphError("the graph is directed; similarity is mutual: pass graph.to_undirected()")
        names = list(range(len(graph))) if agent_names is None else list(agent_names)
        index = {name: agent for agent, name in enumerate(names)}
        unknown = [node for node in graph.nodes if node not in index]
        if unknown:
            raise GraphError(
                f"node {unknown[0]!r} is none of the {len(names)} agents; pass agent_names, "
                "the nodes in the order of the agents"
            )
        triples = list(graph.edges(data="weight", default=1.0))
        edges = np.array([(index[one], index[other]) for one, other, _ in triples], dtype=np.int64)
        weights = np.array([weight for _, _, weight in triples], dtype=np.float64)
        shown = None if agent_names is None else [str(name) for name in names]
        return cls.from_edges(len(names), edges.reshape(-1, 2), weights, source=source, agent_names=shown)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        counts = self.neighbor_counts
        span = f"{counts.min():,} to {counts.max():,}, mean {counts.mean():,.1f}" if len(counts) else "none"
        isolated = int((counts == 0).sum())
        rows = {
            "agents": f"{self.n_agents:,}",
            "edges": f"{self.n_edges:,}",
            "neighbors of an agent": span,
            "without neighbors": f"{isolated:,}",
            "origin": self.source.describe(),
        }
        return html_table("Who resembles whom", rows)

    def __repr__(self) -> str:
        return f"SimilarityGraph(n_agents={self.n_agents}, n_edges={self.n_edges}, source={self.source!r})"

    def in_order(self, agent_names: Sequence[str]) -> SimilarityGraph:
        """The same graph with its agents in this order; refused if these are not its agents."""
        if self.agent_names is None or self.agent_names == tuple(agent_names):
            return self
        position = {name: place for place, name in enumerate(self.agent_names)}
        strangers = [name for name in agent_names if name not in position]
        if strangers or len(agent_names) != self.n_agents:
            known = set(agent_names)
            who = strangers or [name for name in self.agent_names if name not in known]
            where = "not in the graph" if strangers else "in the graph and have no place in the population"
            raise GraphError(
                f"agents {quoted(who)} are {where}; build the graph on the same agents, with the names that "
                "they have in the population"
            )
        order = np.array([position[name] for name in agent_names])
        return self.from_canonical(
            canonical_matrix(self.to_scipy()[order][:, order]), self.source, agent_names
        )

    @property
    def n_agents(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_edges(self) -> int:
        """Undirected edges: half of the stored entries."""
        return len(self.neighbors) // 2

    @cached_property
    def neighbor_counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """D_ii = Σ_j W_ij, the weighted degrees."""
        return self.row_sums(lambda entries: self.weights[entries])

    def row_sums(self, terms: Callable[[slice], NDArray[np.float64]]) -> NDArray[np.float64]:
        """For each agent the sum over its entries; terms: those of a block of entries."""
        sums = np.zeros(self.n_agents)
        for block in agent_blocks(self.offsets):
            owners, values = owners_of(self.offsets, block), terms(entries_of(self.offsets, block))
            sums[block] = np.bincount(owners - block.start, values, block.stop - block.start)
        return sums

    def neighbors_of(self, agent: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """An agent's neighbors, ascending, and the weights of its edges to them."""
        agent = range(self.n_agents)[agent]  # the usual index rules, and an IndexError beyond them
        own = slice(self.offsets[agent], self.offsets[agent + 1])
        return self.neighbors[own], self.weights[own]

    @property
    def isolated(self) -> NDArray[np.int64]:
        """Agents without any neighbor: they learn alone."""
        return np.flatnonzero(self.neighbor_counts == 0)

    @cached_property
    def components(self) -> NDArray[np.int32]:
        """The component each agent belongs to, numbered from 0."""
        return csgraph.connected_components(self.to_scipy(), directed=False)[1]

    @property
    def is_connected(self) -> bool:
        return int(self.components.max()) == 0

    def to_scipy(self) -> sparse.csr_array:
        """W as a SciPy sparse array that shares this graph's read-only memory; copy it to change it."""
        # SciPy wants one index type for both arrays, and int32 wherever it is enough.
        index = np.int32 if len(self.neighbors) <= LARGEST_INT32 else np.int64
        offsets, neighbors = self.offsets.astype(index), self.neighbors.astype(index, copy=False)
        return sparse.csr_array((self.weights, neighbors, offsets), shape=(self.n_agents,) * 2)

    def to_networkx(self) -> networkx.Graph[int]:
        """A NetworkX graph over 0 … n−1 with the edge attribute `weight`."""
        try:
            import networkx
        except ImportError as error:
            raise MissingExtra("to_networkx", "graphs") from error
        upper = sparse.triu(self.to_scipy(), format="coo")
        graph: networkx.Graph[int] = networkx.empty_graph(self.n_agents)
        ends = (end.tolist() for end in upper.coords)
        graph.add_weighted_edges_from(zip(*ends, upper.data.tolist(), strict=True))
        return graph

    def laplacian(self) -> sparse.csr_array:
        """D − W."""
        return sparse.csr_array(sparse.diags_array(self.degrees) - self.to_scipy())

    def describe(self, agent_names: Sequence[str] | None = None) -> str:
        """The graph in plain words: origin, size, degrees, isolated agents, components."""
        sizes = np.sort(np.bincount(self.components))[::-1]
        alone = [agent_label(agent_names, agent) for agent in self.isolated[:SHOWN]]
        isolated = f"{len(self.isolated)} ({_first_few(alone, len(self.isolated))})" if alone else "none"
        together = "connected" if self.is_connected else f"of {_first_few(sizes, len(sizes))} agents"
        return "\n".join(
            (
                f"Similarity graph of {self.n_agents} agents with {self.n_edges} edges.",
                self.source.describe(),
                f"Neighbors per agent: {_spread(self.neighbor_counts)}.",
                f"Degrees (sums of weights): {_spread(self.degrees)}.",
                f"Isolated agents: {isolated}.",
                f"Components: {len(sizes)} ({together}).",
            )
        )


def _symmetrized(csr: Any, how: Symmetrize) -> Any:
    if how == "either":
        return csr.maximum(csr.T.tocsr())
    if how == "mean":
        return (csr + csr.T.tocsr()) * 0.5
    raise GraphError(f"symmetrize must be 'either', 'mean' or None, got {how!r}")


def _first_few(items: Sequence[Any] | NDArray[Any], total: int) -> str:
    shown = ", ".join(str(item) for item in items[:SHOWN])
    return shown if total <= SHOWN else f"{shown}, …"


def _spread(values: NDArray[Any]) -> str:
    return f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"
