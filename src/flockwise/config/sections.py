"""The sections of a configuration. Where a section comes in kinds, each kind has just its own keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from flockwise.config.fields import (
    TABLE_SUFFIXES,
    Contraction,
    Count,
    CountFromZero,
    Delay,
    Duration,
    Flag,
    FloatType,
    Folder,
    Name,
    Names,
    NotNegative,
    OfflineLength,
    Positive,
    Probability,
    Section,
    ShareBelowOne,
    ShareInside,
    Table,
)


class SyntheticData(Section):
    """The paper's synthetic task; the keys are the parameters of `linear_classification`."""

    source: Literal["synthetic"]
    agents: Count = 100
    dimension: Count = 20
    min_samples: CountFromZero = 10
    max_samples: CountFromZero = 100
    test_samples: CountFromZero = 100
    label_noise: Probability = 0.05
    noisy_test: Flag = False
    features: Literal["uniform", "gaussian"] = "uniform"
    informative: Count = 2
    rotated: Flag = False
    dtype: FloatType = "float64"


class MovieLensData(Section):
    """MovieLens-100K; the keys are the parameters of `ratings_task`, and the folder of the data."""

    source: Literal["movielens"]
    folder: Folder | None = None
    features: Literal["als", "als_disjoint", "genres"] = "als"
    dimension: Count = 20
    centring: Literal["user_mean", "public"] = "user_mean"
    als_penalty: Positive = 0.1
    als_iterations: Count = 20
    test_share: ShareInside = 0.2
    dtype: FloatType = "float64"


class TableData(Section):
    """One's own table: a row per sample, with a column that names its agent."""

    source: Table
    agent: Name = "agent"
    target: Name
    features: Names | None = None
    intercept: Flag = False
    test_share: ShareBelowOne = 0.2
    dtype: FloatType = "float64"


def _kind_of_data(section: Any) -> str | None:
    source = section.get("source") if isinstance(section, dict) else getattr(section, "source", None)
    if source in ("synthetic", "movielens"):
        return source
    is_table = isinstance(source, str | Path) and Path(source).suffix.lower() in TABLE_SUFFIXES
    return "table" if is_table else None


class _Compared(Section):
    """A graph of agents whose vectors are alike."""

    file: Table | None = None
    columns: Names | None = None
    agent: Name | None = None


class AngularGraph(_Compared):
    """`angular_graph`: exp((cos − 1)/γ) between vectors."""

    kind: Literal["angular"]
    origin: Literal["profiles", "models", "targets"] = Field(alias="from")
    gamma: Positive = 0.1
    threshold: Annotated[
        Annotated[float, Field(ge=0, le=1)] | Literal["connected"],
        Field(description='a number from 0 to 1, or "connected"'),
    ] = 0.01


class KnnGraph(_Compared):
    """`knn_graph`: either one is among the k nearest of the other."""

    kind: Literal["knn"]
    origin: Literal["profiles", "models", "targets", "ratings"] = Field(alias="from")
    k: Count = 10
    metric: Literal["cosine", "euclidean"] | None = None


class EdgesGraph(Section):
    """`read_edges`: a file with one edge per row."""

    kind: Literal["edges"]
    file: Table
    columns: Annotated[
        list[str], Field(min_length=2, max_length=3, description="a list of 2 or 3 column names")
    ] = Field(default=["source", "target", "weight"])
    private: Flag = False


class RandomGraph(Section):
    """`random_graph`: neighbors who have nothing in common, for trials of size and speed."""

    kind: Literal["random"]
    degree: Count = 10


class Objective(Section):
    """What is minimised; l2 is 1/m_i where it is left out."""

    loss: Literal["logistic", "capped_logistic", "softmax", "quadratic", "huber"] = "logistic"
    tradeoff: Annotated[
        Annotated[float, Field(gt=0)] | Literal["auto"], Field(description='a number above 0, or "auto"')
    ] = "auto"
    validation_share: ShareInside | None = None
    l2: NotNegative | None = None
    max_samples: Count | None = None
    classes: Annotated[int, Field(ge=2, description="a whole number from 2 on")] | None = None
    width: Positive | None = None
    feature_bound: Positive | None = None


class BaselineMethod(Section):
    """A method that is solved and not simulated: it takes no time and sends nothing."""

    name: Literal["local", "global"]


class SimulatedMethod(Section):
    """When a simulated run stops, and how often it records."""

    updates: Count | None = None
    ticks: Count | None = None
    time: Duration | None = None
    tolerance: ShareInside | None = None
    record_every: Duration = 1.0


class DescentMethod(SimulatedMethod):
    """Eq. (4)."""

    name: Literal["cd"]
    start: Literal["zeros", "local"] = "zeros"


class PropagationMethod(SimulatedMethod):
    """Supplement C; it always starts from the local models."""

    name: Literal["propagation"]


class AdmmMethod(SimulatedMethod):
    """Gossip ADMM."""

    name: Literal["admm"]
    start: Literal["zeros", "local"] = "local"
    penalty: Positive = 1.0
    gradient_steps: Count = 10


class ReleaseOnceMethod(SimulatedMethod):
    """`ReleaseOnce`: one noisy vector of each agent, smoothed."""

    name: Literal["release_once"]
    kind: Literal["mean", "output", "objective"] = "mean"


class LowPassMethod(Section):
    """`LowPass`: one noisy vector of each agent, smoothed over as many hops as the releases tell."""

    name: Literal["lowpass"]
    kind: Literal["mean", "output"] = "mean"
    width: Positive | None = None


class PlannedMethod(Section):
    """The private method that promises most on generated twins, or none: the default of private runs."""

    name: Literal["auto"]


class NoPrivacy(Section):
    """Models are sent as they are; such a run has to say so."""

    kind: Literal["none"]


class DifferentialPrivacy(Section):
    """Everything that an agent sends stays within its budget."""

    kind: Literal["dp"]
    epsilon: Positive | None = None
    budgets: Table | None = None
    delta: ShareBelowOne | None = None
    mechanism: Literal["gaussian", "laplace", "knorm"] = "gaussian"
    accountant: Literal["basic", "theorem1", "remark", "kov", "zcdp", "gdp", "pld"] | None = None
    allocation: Literal["uniform", "late"] = "uniform"
    contraction: Contraction | None = None
    clip_norm: Positive | None = None


class Engine(Section):
    """What runs the agents, and how their network behaves; times in mean intervals between ticks."""

    name: Literal["cpu", "reference"] = "cpu"
    threads: Count | None = None
    delay: Delay = 0.0
    delay_kind: Literal["fixed", "exponential"] = "fixed"
    loss: ShareBelowOne = 0.0
    offline_share: ShareBelowOne = 0.0
    offline_length: OfflineLength = 5.0


Data: TypeAlias = Annotated[
    Annotated[SyntheticData, Tag("synthetic")]
    | Annotated[MovieLensData, Tag("movielens")]
    | Annotated[TableData, Tag("table")],
    Discriminator(_kind_of_data),
]
Graph: TypeAlias = Annotated[AngularGraph | KnnGraph | EdgesGraph | RandomGraph, Field(discriminator="kind")]
Method: TypeAlias = Annotated[
    BaselineMethod
    | DescentMethod
    | PropagationMethod
    | AdmmMethod
    | ReleaseOnceMethod
    | LowPassMethod
    | PlannedMethod,
    Field(discriminator="name"),
]
Privacy: TypeAlias = Annotated[NoPrivacy | DifferentialPrivacy, Field(discriminator="kind")]
