"""Flockwise: agents with a little private data each learn a model each, from the neighbors they resemble."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flockwise.later import homes_in

# The public names, each in the form that type checkers take as public. At run time nothing of it is executed:
# a name is imported when it is first used, because the privacy package alone starts in a fraction of the time
# that the compiled engines take.
if TYPE_CHECKING:
    from flockwise.agent import Agent as Agent, Message as Message
    from flockwise.data import (
        Population as Population,
        linear_classification as linear_classification,
        load_movielens as load_movielens,
        open_population as open_population,
        population_from_frame as population_from_frame,
        read_population as read_population,
    )
    from flockwise.engine import (
        Checkpoint as Checkpoint,
        Conditions as Conditions,
        ENGINES as ENGINES,
        RayEngine as RayEngine,
        RunSettings as RunSettings,
        simulate as simulate,
    )
    from flockwise.estimators import (
        PersonalizedClassifier as PersonalizedClassifier,
        PersonalizedRegressor as PersonalizedRegressor,
    )
    from flockwise.errors import FlockwiseError as FlockwiseError
    from flockwise.errors import FlockwiseWarning as FlockwiseWarning
    from flockwise.graph import (
        GRAPHS as GRAPHS,
        GraphSource as GraphSource,
        SimilarityGraph as SimilarityGraph,
        angular_graph as angular_graph,
        complete_graph as complete_graph,
        knn_graph as knn_graph,
        profile_graph as profile_graph,
        random_graph as random_graph,
        read_edges as read_edges,
    )
    from flockwise.method import (
        CoordinateDescent as CoordinateDescent,
        Global as Global,
        GossipADMM as GossipADMM,
        LearnedPrior as LearnedPrior,
        Local as Local,
        LocalDP as LocalDP,
        LowPass as LowPass,
        METHODS as METHODS,
        ModelPropagation as ModelPropagation,
        Prepared as Prepared,
        PrivateUpdates as PrivateUpdates,
        Propagation as Propagation,
        PublicModels as PublicModels,
        ReleaseOnce as ReleaseOnce,
        TunedLocal as TunedLocal,
        WarmStart as WarmStart,
        descent_update as descent_update,
        step as step,
    )
    from flockwise.runtime.testing import (
        ManualTime as ManualTime,
        MemoryNetwork as MemoryNetwork,
        MemoryStore as MemoryStore,
    )
    from flockwise.objective import (
        CappedLogistic as CappedLogistic,
        CollaborativeObjective as CollaborativeObjective,
        Huber as Huber,
        LOSSES as LOSSES,
        Logistic as Logistic,
        Objective as Objective,
        Problem as Problem,
        Quadratic as Quadratic,
        Softmax as Softmax,
    )
    from flockwise.privacy import (
        ACCOUNTANTS as ACCOUNTANTS,
        Budget as Budget,
        Guarantee as Guarantee,
        MECHANISMS as MECHANISMS,
        default_delta as default_delta,
    )
    from flockwise.privacy.gate import Gate as Gate
    from flockwise.privacy.ledger import Ledger as Ledger
    from flockwise.privacy.noise import SecureNoise as SecureNoise
    from flockwise.privacy.plan import Plan as Plan
    from flockwise.release import (
        ObjectivePerturbation as ObjectivePerturbation,
        OutputPerturbation as OutputPerturbation,
        PointMean as PointMean,
        STATISTICS as STATISTICS,
    )
    from flockwise.results import (
        Record as Record,
        Trajectory as Trajectory,
        choose_tradeoff as choose_tradeoff,
    )
    from flockwise.solve import (
        choose_l2 as choose_l2,
        solve_local_models as solve_local_models,
        solve_optimum as solve_optimum,
    )
    from flockwise.theory import convergence_theory as convergence_theory, utility_theory as utility_theory


_HOME_OF = homes_in(__name__)
__all__ = sorted([*_HOME_OF, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: Any = version("flockwise")
        except PackageNotFoundError:
            value = "(not installed)"
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'flockwise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
