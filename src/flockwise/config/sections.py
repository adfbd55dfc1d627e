"""The sections of a configuration. Where a section comes in kinds, each kind has just its own keys.

Kinds of graph, methods, losses and noise are not listed here: their sections come from what is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, create_model
from pydantic_core import PydanticCustomError

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
)
from flockwise.config.parts import (
    LOSS,
    Setting,
    keys_elsewhere,
    part_setting,
    settings_of,
    spending_of,
    with_parts,
)
from flockwise.data.tables import SUFFIXES
from flockwise.engine import ENGINES, Conditions, RayEngine
from flockwise.engine.simulate import Stops
from flockwise.graph import GRAPHS
from flockwise.method import METHODS
from flockwise.method.base import Variant
from flockwise.method.rules import Descent, Meetings

AUTO = "auto"
EDGES = "edges"
CLOCKED = (Descent, Meetings)


class Section(BaseModel):
    """One [section]: no unknown keys, no conversions between kinds of value, no infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _existing(kind: str, fits: Callable[[str], bool], is_there: Callable[[Path], bool]) -> BeforeValidator:
    """A path that a configuration names, relative to the folder of the configuration itself."""

    def found(value: Any, info: ValidationInfo) -> Path:
        if not isinstance(value, str) or not fits(value):
            raise PydanticCustomError("not_a_path", "not a path")
        path = (info.context or {}).get("folder", Path()) / value
        if not is_there(path):
            words = "there is no {kind} {path}"
            raise PydanticCustomError("no_such_file", words, {"kind": kind, "path": str(path)})
        return path

    return BeforeValidator(found)


def is_table(name: Any) -> bool:
    return isinstance(name, str | Path) and Path(name).suffix.lower() in SUFFIXES


Name: TypeAlias = Annotated[str, Field(min_length=1), Allowed("a name in quotes")]
Names: TypeAlias = Annotated[list[str], Field(min_length=1), Allowed("a list of column names")]
Flag: TypeAlias = Annotated[bool, Allowed("true or false")]
FloatType: TypeAlias = Literal["float64", "float32"]
Table: TypeAlias = Annotated[
    Path, _existing("file", is_table, Path.is_file), Allowed("an existing .csv or .parquet file")
]
Folder: TypeAlias = Annotated[
    Path, _existing("folder", lambda name: True, Path.is_dir), Allowed("an existing folder, in quotes")
]
EdgeList: TypeAlias = Annotated[
    Path,
    _existing("file or folder", lambda name: is_table(name) or name.endswith("/"), Path.exists),
    Allowed('an existing .csv or .parquet file, or "FOLDER/"'),
]
NewFolder: TypeAlias = Annotated[
    Path,
    _existing("folder", lambda name: True, lambda path: path.parent.is_dir()),
    Allowed("a folder, in quotes"),
]
Tradeoff: TypeAlias = Annotated[
    Annotated[float, Field(gt=0)] | Literal["auto"], Allowed('a number above 0, or "auto"')
]
Penalty: TypeAlias = Annotated[
    Annotated[float, Field(ge=0)] | Literal["auto"], Allowed('a number from 0 on, or "auto"')
]
TargetRange: TypeAlias = Annotated[
    list[float], Field(min_length=2, max_length=2), Allowed("a list of two numbers, the smaller first")
]


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
    profile_noise: NotNegative = 0.2
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


class FolderData(Section):
    """A folder of .parquet files with such rows, in any order; engine "ray" has each shard read its own."""

    source: Folder
    agent: Name = "agent"
    target: Name
    features: Names | None = None
    dtype: FloatType = "float64"


DataSection = SyntheticData | MovieLensData | TableData | FolderData


class EdgesGraph(Section):
    """`read_edges`: a file with one edge per row, or a folder of such .parquet files.

    private: whether the edges were made from private data; left out, their origin is unknown.
    folder: where the graph of .parquet files is to stay.
    """

    kind: Literal["edges"]
    file: EdgeList
    columns: Annotated[
        list[str], Field(min_length=2, max_length=3), Allowed("a list of 2 or 3 column names")
    ] = Field(default=["source", "target", "weight"])
    private: Flag | None = None
    folder: NewFolder | None = None


class VectorsGraph(Section):
    """A kernel over vectors: of which origin they are, and the table if they are profiles in a file."""

    file: Table | None = None
    columns: Names | None = None
    agent: Name | None = None
    origin: Literal["profiles", "models", "targets", "ratings"] = Field(alias="from")


class General(Section):
    """The keys before all sections."""

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


class Kind(NamedTuple):
    """The form of a section, and for keys that it lacks where they belong."""

    model: type[Section]
    elsewhere: Mapping[str, str] = {}


def _kind(
    settings: Iterable[Setting],
    elsewhere: Mapping[str, str] | None = None,
    base: type[Section] = Section,
    **more: Any,
) -> Kind:
    """A section with these keys, and more of them."""
    keys: dict[str, Any] = {
        one.key: (one.annotation, Field() if one.default is ... else one.default) for one in settings
    }
    return Kind(create_model("Section", __base__=base, **(more | keys)), elsewhere or {})


def data_kind(values: Mapping[str, Any]) -> Kind | None:
    source = values.get("source")
    known: dict[Any, type[Section]] = {"synthetic": SyntheticData, "movielens": MovieLensData}
    if isinstance(source, str) and source in known:
        return Kind(known[source])
    if isinstance(source, str) and source.endswith("/"):
        return Kind(FolderData)
    return Kind(TableData) if is_table(source) else None


def graph_kind(values: Mapping[str, Any]) -> Kind | None:
    kind = values.get("kind")
    if kind == EDGES:
        return Kind(EdgesGraph)
    if not isinstance(kind, str) or kind not in GRAPHS:
        return None
    base = VectorsGraph if hasattr(GRAPHS[kind], "of_vectors") else Section
    return _kind(settings_of(GRAPHS[kind]), base=base, kind=(Literal[kind], ...))


def objective_kind(values: Mapping[str, Any]) -> Kind:
    loss = part_setting(LOSS, "loss", "logistic")
    return _kind(
        with_parts(iter([loss]), values),
        keys_elsewhere(iter([loss])),
        tradeoff=(Tradeoff, "auto"),
        validation_share=(ShareInside | None, None),
        l2=(Penalty | None, None),
        max_samples=(Count | None, None),
        feature_bound=(Positive | None, None),
        target_range=(TargetRange | None, None),
    )


def method_kind(values: Mapping[str, Any]) -> Kind | None:
    name = values.get("name", AUTO)
    if name == AUTO:
        return _kind((), name=(Literal["auto"], AUTO))
    if not isinstance(name, str) or name not in METHODS:
        return None
    variant = METHODS[name]
    own = list(settings_of(variant.kind, frozenset({"privacy", *variant.preset})))
    stops = settings_of(Stops) if variant.rule in CLOCKED else ()
    keys = [*stops, *with_parts(iter(own), values)]
    return _kind(keys, keys_elsewhere(iter(own)), name=(Literal[name], ...))


def privacy_kind(values: Mapping[str, Any], variant: Variant | None) -> Kind | None:
    """The budget, and how the method of this run spreads it."""
    if values.get("kind") == "none":
        return Kind(NoPrivacy)
    if values.get("kind") != "dp":
        return None
    elsewhere: dict[str, str] = {}
    for other in METHODS:
        for setting in _spending(other):
            elsewhere.setdefault(setting.key, f'method.name = "{other.name}"')
    return _kind(
        _spending(variant),
        elsewhere,
        kind=(Literal["dp"], ...),
        epsilon=(Positive | None, None),
        budgets=(Table | None, None),
        delta=(ShareBelowOne | None, None),
    )


def _spending(variant: Variant | None) -> list[Setting]:
    """The keys of [privacy] beside the budget; for a planned run a clip is the public word on residuals."""
    if variant is None:
        return [Setting("clip_norm", "clip", Positive | None, None)]
    kind = spending_of(variant)
    return [] if kind is None else list(settings_of(kind))


def engine_kind(values: Mapping[str, Any]) -> Kind:
    conditions = settings_of(Conditions, frozenset({"joins", "leaves"}))
    if values.get("name") != RayEngine.name:
        return _kind(conditions, name=(Literal[ENGINES.names], "cpu"), threads=(Count | None, None))
    return _kind(
        conditions,
        name=(Literal[ENGINES.names], "cpu"),
        threads=(Count | None, None),
        shards=(Count | None, None),
        address=(Name | None, None),
        gather=(Flag, True),
    )
