"""Columns of any kind → numbers: one column per category, gaps filled and marked, and a scale for each.

Means, scales and categories come from everybody's rows. With a privacy budget they have to be public instead:
the bounds of each number and the categories of each text.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data.checks import quoted
from flockwise.errors import DataError, FlockwiseWarning, PrivacyError
from flockwise.estimators.columns import Columns, text_of

Bounds: TypeAlias = Mapping[str, tuple[float, float]]
Categories: TypeAlias = Mapping[str, Sequence[Any]]

# Of a text column the most frequent categories are kept, if they have at least so many rows.
MOST_CATEGORIES = 20
LEAST_ROWS = 5
# A column of zeros and ones, half of each, has this standard deviation.
INDICATOR_SCALE = 0.5
GAP = "missing"
OTHER = "other"


class Number(NamedTuple):
    """A column of numbers; gaps get `fill`, and a column of their own if there were any."""

    name: str
    fill: float
    center: float
    scale: float
    share_of_gaps: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} {GAP}") if self.share_of_gaps else (self.name,)

    def encoded(self, values: NDArray[Any]) -> list[Floats]:
        if values.dtype.kind == "O":
            text = next((value for value in values if value is not None), None)
            if text is not None:
                raise DataError(f"column {self.name!r} held numbers in fit and now holds the text {text!r}")
            values = np.full(len(values), np.nan)
        gaps = np.isnan(values)
        filled = np.where(gaps, self.fill, values)
        return [filled, gaps.astype(np.float64)] if self.share_of_gaps else [filled]

    def scales(self) -> Iterator[tuple[float, float]]:
        yield self.center, self.scale
        if self.share_of_gaps:
            yield self.share_of_gaps, INDICATOR_SCALE


class Category(NamedTuple):
    """A column of text: one column for each category but the first, which the others are compared with.

    Any other category counts as `other` where there is one, and else as the first; so does a gap.
    shares: of all rows, if learned from them. rare: categories that counted as others in fit.
    """

    name: str
    categories: tuple[str, ...]
    shares: tuple[float, ...] | None = None
    rare: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category}" for category in self.categories[1:])

    def encoded(self, values: NDArray[Any]) -> list[Floats]:
        labels = _labels(values)
        known = set(self.categories)
        rest = OTHER if OTHER in known else self.categories[0]
        labels = np.array([label if label in known else rest for label in labels], dtype=object)
        return [(labels == category).astype(np.float64) for category in self.categories[1:]]

    def is_new(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Rows with a category that fit did not know; gaps are none."""
        known = {GAP, *self.categories, *self.rare}
        return np.array([label not in known for label in _labels(values)], dtype=bool)

    def scales(self) -> Iterator[tuple[float, float]]:
        if self.shares is None:
            return ((0.0, 1.0) for _ in self.categories[1:])
        return ((share, INDICATOR_SCALE) for share in self.shares[1:])


Kind: TypeAlias = Number | Category


@dataclass(frozen=True)
class Preparation:
    """What becomes of each column."""

    columns: tuple[Kind, ...]

    def __call__(self, columns: Columns) -> Floats:
        """The numbers of these rows, before they are scaled."""
        parts = [part for kind in self.columns for part in kind.encoded(columns[kind.name])]
        return np.column_stack(parts) if parts else np.empty((len(next(iter(columns.values()))), 0))

    def new_categories(self, columns: Columns) -> tuple[int, list[str]]:
        """How many rows hold categories that fit did not know, and in which columns."""
        found = {
            kind.name: kind.is_new(columns[kind.name]) for kind in self.columns if isinstance(kind, Category)
        }
        rows = np.any(list(found.values()), axis=0).sum() if found else 0
        return int(rows), [name for name, is_new in found.items() if is_new.any()]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for kind in self.columns for name in kind.names)

    @property
    def scales(self) -> tuple[Floats, Floats]:
        """Centers and units of the numbers, for models that treat all of them alike."""
        pairs = [pair for kind in self.columns for pair in kind.scales()]
        centers, units = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return centers, units

    @property
    def feature_bound(self) -> float:
        """The largest length of a scaled row within public bounds, with an intercept of 1."""
        return float(np.sqrt(1 + len(self.columns)))


def as_they_are(columns: Columns) -> Preparation:
    """Numbers without gaps, not scaled."""
    for name, values in columns.items():
        if values.dtype.kind == "O":
            raise DataError(
                f'column {name!r} holds text; use prepare="auto", or encode it with a transformer of '
                "scikit-learn before"
            )
        if np.isnan(values).any():
            row = int(np.argmax(np.isnan(values)))
            raise DataError(
                f'column {name!r}, row {row + 1}: missing value (NaN); use prepare="auto", or fill it before'
            )
    return Preparation(tuple(Number(name, 0.0, 0.0, 1.0) for name in columns))


def learned(columns: Columns, weights: Floats) -> Preparation:
    """Means, standard deviations, gaps and categories from the rows, which count with these weights."""
    return Preparation(tuple(_learned_kind(name, values, weights) for name, values in columns.items()))


def public(columns: Columns, bounds: Bounds | None, categories: Categories | None) -> Preparation:
    """From what is known without the rows: numbers within their bounds go to [−1, 1], gaps to the middle."""
    bounds, categories = bounds or {}, categories or {}
    stranger = next((name for name in (*bounds, *categories) if name not in columns), None)
    if stranger is not None:
        raise DataError(
            f"bounds= or categories= name {stranger!r}, but the columns are {quoted(list(columns))}"
        )
    return Preparation(
        tuple(_public_kind(name, values, bounds, categories) for name, values in columns.items())
    )


def _learned_kind(name: str, values: NDArray[Any], weights: Floats) -> Kind:
    if values.dtype.kind == "O":
        return _frequent(name, _labels(values), weights)
    gaps = np.isnan(values)
    known, counted = values[~gaps], weights[~gaps]
    if not counted.sum() > 0:
        return Number(name, 0.0, 0.0, 1.0)
    # Differences from one of the values first: squares of large numbers would swallow small ones.
    away = known - known[0]
    mean = float(np.average(away, weights=counted))
    center = mean + float(known[0])
    spread = float(np.sqrt(np.average((away - mean) ** 2, weights=counted)))
    scale = spread if spread > 10 * np.finfo(np.float64).eps * abs(center) else 1.0
    return Number(name, center, center, scale, float(np.average(gaps, weights=weights)))


def _public_kind(name: str, values: NDArray[Any], bounds: Bounds, categories: Categories) -> Kind:
    if name in categories:
        return _listed(name, values, tuple(map(_label, categories[name])))
    if name in bounds:
        low, high = map(float, bounds[name])
        if not (np.isfinite([low, high]).all() and low < high):
            raise PrivacyError(
                f"bounds[{name!r}] must be two numbers, the smaller first, got {bounds[name]!r}"
            )
        middle = (low + high) / 2
        return Number(name, middle, middle, (high - low) / 2)
    if values.dtype.kind == "O":
        raise PrivacyError(
            f"column {name!r}: categories taken from the data would leak with a budget; give "
            f"categories={{{name!r}: [...]}}, all that there can be, or drop the column"
        )
    raise PrivacyError(
        f"column {name!r}: a scale taken from the data would leak with a budget; give "
        f"bounds={{{name!r}: (low, high)}}, known without the data, or drop the column"
    )


def _listed(name: str, values: NDArray[Any], found: tuple[str, ...]) -> Category:
    """Words about rows name the list alone: whoever wrote it learns no more of the data."""
    if len(set(found)) < max(len(found), 2):
        raise PrivacyError(f"categories[{name!r}] must name at least two different values, got {found!r}")
    kind = Category(name, found)
    is_new, is_gap = kind.is_new(values), _labels(values) == GAP
    if is_new.any() and (is_new | is_gap).all():
        raise DataError(
            f"column {name!r}: no row holds one of categories[{name!r}] = {quoted(found)}; write them as the "
            "column does"
        )
    if is_new.any():
        warnings.warn(
            f"column {name!r} holds values beside categories[{name!r}] = {quoted(found)}: they count as the "
            "first of these",
            FlockwiseWarning,
            stacklevel=7,
        )
    return kind


def _labels(values: NDArray[Any]) -> NDArray[Any]:
    """Text for every row."""
    return np.array([_label(value) for value in values], dtype=object)


def _label(value: Any) -> str:
    text = text_of(value)
    return GAP if text is None else text


def _frequent(name: str, labels: NDArray[Any], weights: Floats) -> Category:
    """The most frequent categories, the first of all first, and `other` for the rest."""
    found, codes = np.unique(labels.astype(str), return_inverse=True)
    shares = np.bincount(codes, weights, len(found)) / weights.sum()
    order = sorted(range(len(found)), key=lambda place: (-shares[place], found[place]))
    least = LEAST_ROWS / weights.sum()
    kept = [place for place in order if shares[place] >= least][:MOST_CATEGORIES] or order[:1]
    names, kept_shares = [str(found[place]) for place in kept], [float(shares[place]) for place in kept]
    rare = frozenset(found.tolist()) - set(names)
    if rare and OTHER not in names:
        return Category(name, (*names, OTHER), (*kept_shares, 1 - sum(kept_shares)), rare)
    return Category(name, tuple(names), tuple(kept_shares), rare)
