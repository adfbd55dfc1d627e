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
    from flockwise.engine import ENGINES, Conditions, RunSettings, simulate
    from flockwise.errors import FlockwiseError
    from flockwise.graph import (
        GRAPHS,
        GraphSource,
        SimilarityGraph,
        angular_graph,
        complete_graph,
        knn_graph,
        profile_graph,
        random_graph,
        read_edges,
    )
    from flockwise.method import (
        METHODS,
        CoordinateDescent,
        Global,
        GossipADMM,
        Local,
        LocalDP,
        LowPass,
        ModelPropagation,
        Prepared,
        PrivateUpdates,
        Propagation,
        PublicModels,
        ReleaseOnce,
        WarmStart,
        descent_update,
        step,
    )
    from flockwise.objective import (
        LOSSES,
        CappedLogistic,
        CollaborativeObjective,
        Huber,
        Logistic,
        Objective,
        Problem,
        Quadratic,
        Softmax,
    )
    from flockwise.privacy import ACCOUNTANTS, MECHANISMS, Budget, Guarantee, default_delta
    from flockwise.release import STATISTICS, ObjectivePerturbation, OutputPerturbation, PointMean
    from flockwise.results import Record, Trajectory, choose_tradeoff
    from flockwise.solve import solve_local_models, solve_optimum
    from flockwise.theory import convergence_theory, utility_theory

# Where each name lives. It is imported when it is first used: the privacy package alone starts in a
# fraction of the time that the compiled engines take.
_HOMES = {
    "agent": ("Agent", "Message"),
    "data": (
        "Population",
        "linear_classification",
        "load_movielens",
        "population_from_frame",
        "read_population",
    ),
    "engine": ("ENGINES", "Conditions", "RunSettings", "simulate"),
    "errors": ("FlockwiseError",),
    "graph": (
        "GRAPHS",
        "GraphSource",
        "SimilarityGraph",
        "angular_graph",
        "complete_graph",
        "knn_graph",
        "profile_graph",
        "random_graph",
        "read_edges",
    ),
    "method": (
        "METHODS",
        "CoordinateDescent",
        "Global",
        "GossipADMM",
        "Local",
        "LocalDP",
        "LowPass",
        "ModelPropagation",
        "Prepared",
        "PrivateUpdates",
        "Propagation",
        "PublicModels",
        "ReleaseOnce",
        "WarmStart",
        "descent_update",
        "step",
    ),
    "objective": (
        "LOSSES",
        "CappedLogistic",
        "CollaborativeObjective",
        "Huber",
        "Logistic",
        "Objective",
        "Problem",
        "Quadratic",
        "Softmax",
    ),
    "privacy": ("ACCOUNTANTS", "MECHANISMS", "Budget", "Guarantee", "default_delta"),
    "release": ("STATISTICS", "ObjectivePerturbation", "OutputPerturbation", "PointMean"),
    "results": ("Record", "Trajectory", "choose_tradeoff"),
    "solve": ("solve_local_models", "solve_optimum"),
    "theory": ("convergence_theory", "utility_theory"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted([*_HOME_OF, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: Any = version("flockwise")
        except PackageNotFoundError:
            value = "(not installed)"
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(f"flockwise.{_HOME_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'flockwise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
