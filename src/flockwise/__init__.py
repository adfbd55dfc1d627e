"""Flockwise: agents with a little private data each learn a model each, from the neighbors they resemble."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flockwise.agent import Agent, Message
    from flockwise.data import (
        Population,
        linear_classification,
        load_movielens,
        population_from_frame,
        read_population,
    )
    from flockwise.engine import Conditions, simulate
    from flockwise.errors import FlockwiseError
    from flockwise.graph import SimilarityGraph, angular_graph, knn_graph, profile_graph, read_edges
    from flockwise.method import (
        CoordinateDescent,
        Global,
        GossipADMM,
        Local,
        LocalDP,
        ModelPropagation,
        PrivateUpdates,
        ReleaseOnce,
    )
    from flockwise.objective import (
        CollaborativeObjective,
        Huber,
        Logistic,
        Problem,
        Quadratic,
        Softmax,
        convergence_theory,
        solve_optimum,
    )
    from flockwise.privacy import Budget
    from flockwise.results import Trajectory, choose_tradeoff

# Where each name lives. It is imported when it is first used: the privacy package alone starts in a
# fraction of the time that the compiled engines take.
_HOMES = {
    "Agent": "agent",
    "Budget": "privacy",
    "CollaborativeObjective": "objective",
    "Conditions": "engine",
    "CoordinateDescent": "method",
    "Global": "method",
    "GossipADMM": "method",
    "Huber": "objective",
    "Local": "method",
    "LocalDP": "method",
    "Logistic": "objective",
    "Message": "agent",
    "ModelPropagation": "method",
    "FlockwiseError": "errors",
    "Population": "data",
    "PrivateUpdates": "method",
    "Problem": "objective",
    "Quadratic": "objective",
    "ReleaseOnce": "method",
    "SimilarityGraph": "graph",
    "Softmax": "objective",
    "Trajectory": "results",
    "angular_graph": "graph",
    "choose_tradeoff": "results",
    "convergence_theory": "objective",
    "knn_graph": "graph",
    "linear_classification": "data",
    "load_movielens": "data",
    "population_from_frame": "data",
    "profile_graph": "graph",
    "read_edges": "graph",
    "read_population": "data",
    "simulate": "engine",
    "solve_optimum": "objective",
}
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flockwise' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"flockwise.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
