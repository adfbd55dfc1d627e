"""The sections of a configuration. Where a section comes in kinds, each kind has just its own keys.

Kinds of graph, methods, losses and noise are not listed here: their sections come from what is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from flockwise.checks import (
    Allowed,
    Count,
    CountFromZero,
    NotNegative,
    Positive,
    Probability,
    Seed,
    ShareBelowOne,
    ShareInside,
    field_types,
)
from flockwise.config.generate import (
    Setting,
    optional,
    optional_keys,
    section,
    settings_of,
    settings_of_tuple,
)
from flockwise.config.values import Flag, FloatType, Folder, Name, Names, Section, Table
from flockwise.data.tables import SUFFIXES
from flockwise.engine import ENGINES, Conditions
from flockwise.engine.simulate import Stops
from flockwise.graph import GRAPHS
from flockwise.method import METHODS
from flockwise.method.base import Variant
from flockwise.method.rules import Descent, Meetings
from flockwise.objective import LOSSES

AUTO = "auto"
EDGES = "edges"
CLOCKED = (Descent, Meetings)


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


DataSection = SyntheticData | MovieLensData | TableData


class EdgesGraph(Section):
    """`read_edges`: a file with one edge per row.

    private: whether the edges were made from private data; left out, their origin is unknown.
    """

    kind: Literal["edges"]
    file: Table
    columns: Annotated[
        list[str], Field(min_length=2, max_length=3), Allowed("a list of 2 or 3 column names")
    ] = Field(default=["source", "target", "weight"])
    private: Flag | None = None


class General(Section):
    """What stands before the sections."""

    seed: Seed = 0


class NetworkSection(Section):
    """Read by `flockwise network init` alone.

    tick_rate: updates a second of each agent, in the mean.
    listen: where the agents are reached: a number or a name, the same for all of them.
    port: of the first agent; the others follow. Left out, ports that are free now are taken.
    round_timeout: seconds without a sign of life after which a conversation goes on without a neighbor.
    """

    name: Name = "flockwise"
    tick_rate: Positive = 1.0
    listen: Name = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535), Allowed("a whole number from 1 to 65535")] | None = None
    round_timeout: Positive = 60.0


class NoPrivacy(Section):
    """Models are sent as they are; such a run has to say so."""

    kind: Literal["none"]


TargetRange = Annotated[
    list[float], Field(min_length=2, max_length=2), Allowed("a list of two numbers, the smaller first")
]

# Words that complete "allowed: …" where a kind is missing or unknown.
SOURCES = '"synthetic", "movielens", or a .csv or .parquet file'
ORIGINS = ("profiles", "models", "targets", "ratings")


def data_kind(values: Mapping[str, Any]) -> type[Section] | None:
    source = values.get("source")
    if source in ("synthetic", "movielens"):
        return SyntheticData if source == "synthetic" else MovieLensData
    is_table = isinstance(source, str | Path) and Path(source).suffix.lower() in SUFFIXES
    return TableData if is_table else None


def graph_names() -> tuple[str, ...]:
    return (*GRAPHS.names, EDGES)


def graph_kind(values: Mapping[str, Any]) -> type[Section] | None:
    kind = values.get("kind")
    if kind == EDGES:
        return EdgesGraph
    if not isinstance(kind, str) or kind not in GRAPHS:
        return None
    part = GRAPHS[kind]
    more: dict[str, Any] = {}
    if hasattr(part, "of_vectors"):
        more = {
            "file": (optional(Table), None),
            "columns": (optional(Names), None),
            "agent": (optional(Name), None),
            "kind": (Literal[kind], ...),
            "origin": (Literal[ORIGINS], Field(alias="from")),
        }
    else:
        more = {"kind": (Literal[kind], ...)}
    return section("Graph", settings_of(part), **more)


def objective_kind(values: Mapping[str, Any]) -> type[Section]:
    """All losses' parameters are keys; which of them the loss has is checked later."""
    return section(
        "Objective",
        iter(()),
        loss=(Literal[LOSSES.names], "logistic"),
        tradeoff=(
            Annotated[
                Annotated[float, Field(gt=0)] | Literal["auto"], Allowed('a number above 0, or "auto"')
            ],
            "auto",
        ),
        validation_share=(ShareInside | None, None),
        l2=(NotNegative | None, None),
        max_samples=(Count | None, None),
        **optional_keys(LOSSES, settings_of_tuple),
        feature_bound=(Positive | None, None),
        target_range=(optional(TargetRange), None),
    )


def method_names() -> tuple[str, ...]:
    return (*METHODS.names, AUTO)


def method_kind(values: Mapping[str, Any]) -> type[Section] | None:
    name = values.get("name", AUTO)
    if name == AUTO:
        return section("Method", iter(()), name=(Literal["auto"], AUTO))
    if not isinstance(name, str) or name not in METHODS:
        return None
    variant = METHODS[name]
    stops = settings_of(Stops) if variant.rule in CLOCKED else iter(())
    own = settings_of(variant.kind, frozenset({"privacy", *variant.preset}))
    return section("Method", iter([*stops, *own]), name=(Literal[name], ...))


def privacy_kind(values: Mapping[str, Any], variant: Variant | None) -> type[Section] | None:
    """The budget, and how the method of this run spreads it."""
    if values.get("kind") == "none":
        return NoPrivacy
    if values.get("kind") != "dp":
        return None
    return section(
        "Privacy",
        iter(spending_settings(variant)),
        kind=(Literal["dp"], ...),
        epsilon=(Positive | None, None),
        budgets=(Table | None, None),
        delta=(ShareBelowOne | None, None),
    )


def spending_settings(variant: Variant | None) -> list[Setting]:
    """The keys of [privacy] beside the budget; for a planned run a clip is the public word on residuals."""
    if variant is None:
        return [Setting("clip_norm", "clip", Positive | None, None)]
    kind = privacy_class(variant)
    return [] if kind is None else list(settings_of(kind))


def privacy_class(variant: Variant) -> Any:
    """The dataclass of a method's privacy field; None if it takes just budgets, or has no private form."""
    options = (variant.privacy, *get_args(variant.privacy))
    return next((one for one in options if is_dataclass(one) and "budgets" in field_types(one)), None)


def engine_kind(values: Mapping[str, Any]) -> type[Section]:
    conditions = settings_of(Conditions, frozenset({"joins", "leaves"}))
    return section("Engine", conditions, name=(Literal[ENGINES.names], "cpu"), threads=(Count | None, None))
