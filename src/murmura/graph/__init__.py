"""Who resembles whom: the similarity graph and the ways to build it."""

from murmura.graph.build import angular_graph, knn_graph
from murmura.graph.edges import read_edges
from murmura.graph.profiles import profile_graph, profile_vectors
from murmura.graph.randomized import random_graph, rewired
from murmura.graph.similarity import SimilarityGraph
from murmura.graph.source import GraphSource

__all__ = [
    "GraphSource",
    "SimilarityGraph",
    "angular_graph",
    "knn_graph",
    "profile_graph",
    "profile_vectors",
    "random_graph",
    "read_edges",
    "rewired",
]
