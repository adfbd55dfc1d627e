"""The similarity graph, which says how much agents resemble each other, and the ways to build it."""

from flockwise.graph.build import angular_graph, knn_graph
from flockwise.graph.kinds import GRAPHS
from flockwise.graph.randomized import complete_graph, random_graph, rewired
from flockwise.graph.similarity import SimilarityGraph
from flockwise.graph.source import GraphSource
from flockwise.graph.tabular import profile_graph, profile_vectors, read_edges

__all__ = [
    "GRAPHS",
    "GraphSource",
    "SimilarityGraph",
    "angular_graph",
    "complete_graph",
    "knn_graph",
    "profile_graph",
    "profile_vectors",
    "random_graph",
    "read_edges",
    "rewired",
]
