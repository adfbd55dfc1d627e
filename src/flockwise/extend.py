"""Names for parts of your own: methods, losses, mechanisms, statistics, graph kernels, protocols, engines.

Import from here and from `flockwise` alone; these names are frozen by a test. A part registers itself
(flockwise.registry), and CONTRIBUTING.md says what each kind of part has to state.
"""

from flockwise.checks import (
    Allowed,
    Choice,
    Configured,
    Count,
    CountFromZero,
    Key,
    NotNegative,
    Part,
    Positive,
    Probability,
    check_fields,
)
from flockwise.data.samples import Samples
from flockwise.engine.base import (
    ENGINES,
    Engine,
    Judge,
    Result,
    Run,
    RunAtOnce,
    RunSettings,
    State,
    Status,
    Sums,
    show_solved,
)
from flockwise.errors import ConfigError, DataError, GraphError, NetworkError, PrivacyError, SimulationError
from flockwise.graph.kinds import GRAPHS
from flockwise.graph.source import GraphSource
from flockwise.method.base import METHODS, Candidate, Deployment, Method, Prepared, PublicFacts
from flockwise.method.rules import (
    ClippedDescent,
    Contributions,
    Descent,
    DescentNoise,
    Edges,
    LocalAnchors,
    LocalData,
    Meetings,
    Outcome,
    Rounds,
    Rule,
    Solved,
    Traffic,
)
from flockwise.objective.losses import LOSSES, Loss, has_two_classes
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.gate import Bounded, Gate, Rows
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import MECHANISMS, IntegerLaw, Mechanism, Norm
from flockwise.privacy.messages import Relay, Release
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.origin import Origin
from flockwise.privacy.plan import Plan
from flockwise.privacy.schedule import Schedule, distinct_budgets
from flockwise.protocol.conversation import (
    PROTOCOLS,
    Conversation,
    Public,
    ReleaseRequest,
    Say,
    SumRequest,
    Talk,
)
from flockwise.randomness.noise import Sampler, draw_fractions, draw_laplaces, draw_normals, padded
from flockwise.registry import Registry, declared_by
from flockwise.release.finish import finish_along_directions, finish_around_models, finish_own_block
from flockwise.release.statistic import STATISTICS, Misfit, Released, Statistic, release_once

__all__ = [
    "ACCOUNTANTS",
    "ENGINES",
    "GRAPHS",
    "LOSSES",
    "MECHANISMS",
    "METHODS",
    "PROTOCOLS",
    "STATISTICS",
    "Allowed",
    "Bounded",
    "Candidate",
    "Choice",
    "ClippedDescent",
    "ConfigError",
    "Configured",
    "Contributions",
    "Conversation",
    "Count",
    "CountFromZero",
    "DataError",
    "Deployment",
    "Descent",
    "DescentNoise",
    "Edges",
    "Engine",
    "Gate",
    "GraphError",
    "GraphSource",
    "Guarantee",
    "IntegerLaw",
    "Judge",
    "Key",
    "LocalAnchors",
    "LocalData",
    "Loss",
    "Mechanism",
    "Meetings",
    "MemoryLedger",
    "Method",
    "Misfit",
    "NetworkError",
    "Norm",
    "NotNegative",
    "Origin",
    "Outcome",
    "Part",
    "Plan",
    "Positive",
    "Prepared",
    "PrivacyError",
    "Probability",
    "Public",
    "PublicFacts",
    "Registry",
    "Relay",
    "Release",
    "ReleaseRequest",
    "Released",
    "Result",
    "Rounds",
    "Rows",
    "Rule",
    "Run",
    "RunAtOnce",
    "RunSettings",
    "Sampler",
    "Samples",
    "Say",
    "Schedule",
    "SimulatedNoise",
    "SimulationError",
    "Solved",
    "State",
    "Statistic",
    "Status",
    "SumRequest",
    "Sums",
    "Talk",
    "Traffic",
    "check_fields",
    "declared_by",
    "distinct_budgets",
    "draw_fractions",
    "draw_laplaces",
    "draw_normals",
    "finish_along_directions",
    "finish_around_models",
    "finish_own_block",
    "has_two_classes",
    "padded",
    "release_once",
    "show_solved",
]
