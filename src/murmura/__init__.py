"""Murmura: agents with a little private data each learn a model each, from the neighbors they resemble."""

from murmura.agent import Agent, Message
from murmura.data import (
    Population,
    linear_classification,
    load_movielens,
    population_from_frame,
    read_population,
)
from murmura.engine import Conditions, simulate
from murmura.errors import MurmuraError
from murmura.graph import SimilarityGraph, angular_graph, knn_graph, profile_graph, read_edges
from murmura.method import CoordinateDescent, Global, GossipADMM, Local, ModelPropagation
from murmura.objective import (
    CollaborativeObjective,
    Huber,
    Logistic,
    Problem,
    Quadratic,
    Softmax,
    convergence_theory,
    solve_optimum,
)
from murmura.results import Trajectory, choose_tradeoff

__all__ = [
    "Agent",
    "CollaborativeObjective",
    "Conditions",
    "CoordinateDescent",
    "Global",
    "GossipADMM",
    "Huber",
    "Local",
    "Logistic",
    "Message",
    "ModelPropagation",
    "MurmuraError",
    "Population",
    "Problem",
    "Quadratic",
    "SimilarityGraph",
    "Softmax",
    "Trajectory",
    "angular_graph",
    "choose_tradeoff",
    "convergence_theory",
    "knn_graph",
    "linear_classification",
    "load_movielens",
    "population_from_frame",
    "profile_graph",
    "read_edges",
    "read_population",
    "simulate",
    "solve_optimum",
]
