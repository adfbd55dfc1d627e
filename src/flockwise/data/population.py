"""Population: the samples of all agents, packed agent after agent in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from flockwise.data.checks import (
    FloatArray,
    as_floats,
    cell_error,
    distinct,
    first_nonfinite,
    float_dtype,
    nonfinite_words,
    quoted,
)
from flockwise.data.labels import encode_labels, is_numbered, label_array, names_of, packing_order
from flockwise.data.samples import Samples
from flockwise.errors import DataError
from flockwise.notebook import html_table
from flockwise.privacy.origin import Origin

# What `with_intercept` calls its feature.
INTERCEPT = "intercept"


@dataclass(frozen=True, eq=False, repr=False)
class Population:
    """Agent i's samples are rows offsets[i]:offsets[i + 1] of `features` and `targets`.

    Make one with `Population.from_arrays`, `Population.packed`, `population_from_frame`, `read_population`
    or, for samples that stay in their files, `open_population`. All arrays are read-only, all numbers finite;
    an agent may have no sample.
    origins: what in the samples was computed from private data of others, or of the whole agent at once,
    such as learned features or centers; every guarantee names it.
    has_intercept: whether `with_intercept` added the last feature. New rows can do without it.
    """

    features: FloatArray
    targets: FloatArray
    offsets: NDArray[np.int64]
    feature_names: tuple[str, ...]
    # None: agents are called "0", "1", …; a million names are then made only if someone asks.
    given_names: tuple[str, ...] | None
    origins: tuple[Origin, ...] = ()
    has_intercept: bool = False

    @classmethod
    def packed(
        cls,
        features: NDArray[Any],
        targets: NDArray[Any],
        offsets: NDArray[Any],
        *,
        agent_names: Iterable[str | int] | None = None,
        feature_names: Iterable[str] | None = None,
        origins: Iterable[Origin] = (),
    ) -> Population:
        """A population that shares the memory of arrays in agent order; do not write to them afterwards."""
        return cls(
            features,
            targets,
            offsets,
            _feature_names(feature_names, *features.shape[1:2]),
            None if agent_names is None else names_of(agent_names),
            tuple(origins),
        )

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        targets: ArrayLike,
        agents: ArrayLike,
        *,
        agent_names: Iterable[str | int] | None = None,
        feature_names: Iterable[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> Population:
        """A packed copy of rows in any order, `agents` giving the agent of each row.

        agents: labels (text or integers); where `agent_names` is text, integers are positions in it.
        agent_names: all agents in the wanted order, those without a row included; by default the
            labels found, sorted.
        dtype: by default float32 stays float32 and everything else becomes float64.
        """
        table, values = _numbers(features, "features", 2), _numbers(targets, "targets", 1)
        labels = np.asarray(agents)
        if not len(table) == len(values) == labels.size:
            lengths = f"{len(table)} rows of features, {len(values)} targets, {labels.size} agents"
            raise DataError(f"{lengths}: give one target and one agent per row")
        default = np.float32 if table.dtype == np.float32 else np.float64
        kept = float_dtype(default if dtype is None else dtype)
        columns = _feature_names(feature_names, table.shape[1])
        codes, names = _positions(labels, None if agent_names is None else tuple(agent_names))

        def owner(row: int) -> str:
            return names[codes[row]]

        # Before the rows move: a message gives the caller's row.
        table = _finite(table, kept, columns, owner)
        values = _finite(values[:, None], kept, ("target",), owner)[:, 0]
        order, offsets = packing_order(codes, len(names))
        return cls.packed(
            _reordered(table, order),
            _reordered(values, order),
            offsets,
            agent_names=None if is_numbered(names) else names,
            feature_names=columns,
        )

    def __post_init__(self) -> None:
        _check_layout(self.features, self.targets, self.offsets)
        for name in ("features", "targets", "offsets"):
            dtype = np.int64 if name == "offsets" else self.dtype
            object.__setattr__(self, name, _read_only(getattr(self, name).astype(dtype, copy=False)))
        if self.given_names is not None and len(self.given_names) != self.n_agents:
            raise DataError(
                f"{len(self.given_names)} agent names for {self.n_agents} agents; give one per agent"
            )
        _finite(self.features, self.dtype, self.feature_names, self._owner)
        _finite(self.targets[:, None], self.dtype, ("target",), self._owner)

    def _repr_html_(self) -> str:
        """For a notebook."""
        counts = self.sample_counts
        span = f"{counts.min():,} to {counts.max():,}, mean {counts.mean():,.1f}" if len(counts) else "none"
        rows = {
            "agents": f"{self.n_agents:,}",
            "samples": f"{self.n_samples:,}",
            "samples of an agent": span,
            "features": quoted(self.feature_names),
        }
        leaks = [origin.words for origin in self.origins if not origin.is_covered]
        return html_table(
            "Samples of many agents", rows | ({"made from private data": "; ".join(leaks)} if leaks else {})
        )

    def __repr__(self) -> str:
        return (
            f"Population({self.n_agents} agents, {self.n_samples} samples, "
            f"{self.n_features} features, {self.dtype.name})"
        )

    @property
    def n_agents(self) -> int:
        return len(self.offsets) - 1

    # Whether the samples are in memory; those in files are read when they are asked for.
    is_read: ClassVar[bool] = True

    @property
    def in_memory(self) -> Population:
        """The same, with its samples read."""
        return self

    @property
    def identity(self) -> tuple[NDArray[Any], ...]:
        """Arrays that are equal for equal samples."""
        return (self.features, self.targets, self.offsets)

    @property
    def n_samples(self) -> int:
        return int(self.offsets[-1])

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.features.dtype

    @cached_property
    def agent_names(self) -> tuple[str, ...]:
        """One name per agent; "0", "1", … where none were given."""
        if self.given_names is not None:
            return self.given_names
        return tuple(map(str, range(self.n_agents)))

    @cached_property
    def sample_counts(self) -> NDArray[np.int64]:
        """How many samples each agent has."""
        return _read_only(np.diff(self.offsets))

    def samples(self, agent: int) -> Samples:
        """Those of the agent at this position, as views."""
        self._check_position(agent)
        rows = slice(self.offsets[agent], self.offsets[agent + 1])
        return Samples(self.features[rows], self.targets[rows])

    def agent_index(self, name: str) -> int:
        """The position of the agent with this name."""
        place = self._positions.get(name)
        if place is None:
            raise DataError(f"there is no agent {name!r}; the agents are {quoted(self.agent_names)}")
        return place

    def split(self, test_share: float, seed: int) -> tuple[Population, Population]:
        """Train and test samples of every agent, drawn at random; see `held_out_rows` for how many."""
        held_out = held_out_rows(self.offsets, test_share, seed)
        return self._rows(~held_out), self._rows(held_out)

    def astype(self, dtype: DTypeLike) -> Population:
        """The same samples in float32 or float64."""
        kept = float_dtype(dtype)
        if kept == self.dtype:
            return self
        features = _finite(self.features, kept, self.feature_names, self._owner)
        targets = _finite(self.targets[:, None], kept, ("target",), self._owner)[:, 0]
        return self.with_samples(features, targets)

    def with_intercept(self) -> Population:
        """A last feature "intercept" that is 1 everywhere, for models with a constant term."""
        if INTERCEPT in self.feature_names:
            raise DataError("there is a feature 'intercept' already; drop or rename it")
        features = np.ones((self.n_samples, self.n_features + 1), dtype=self.dtype)
        features[:, :-1] = self.features
        names = (*self.feature_names, INTERCEPT)
        return replace(self.in_memory, features=features, feature_names=names, has_intercept=True)

    def select(self, agents: Sequence[str] | Sequence[int] | NDArray[Any]) -> Population:
        """Only these agents, in this order; text is a name, an integer a position."""
        chosen = self.chosen(agents)
        names = tuple(self.agent_names[place] for place in chosen)
        offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(self.sample_counts[chosen], out=offsets[1:])
        shifts = np.repeat(self.offsets[chosen] - offsets[:-1], self.sample_counts[chosen])
        rows = shifts + np.arange(offsets[-1])
        features, targets = self.features[rows], self.targets[rows]
        return replace(self, features=features, targets=targets, offsets=offsets, given_names=names)

    def chosen(self, agents: Sequence[str] | Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
        """The positions of agents given by name or position, each once."""
        places = [self.agent_index(a) if isinstance(a, str) else self._check_position(a) for a in agents]
        distinct((self.agent_names[place] for place in places), "agent")
        return np.array(places, np.int64)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.agent_names)}

    def _check_position(self, agent: int) -> int:
        if not 0 <= agent < self.n_agents:
            raise DataError(f"agent {agent}: positions go from 0 to {self.n_agents - 1}")
        return agent

    def _owner(self, row: int) -> str:
        return self.agent_names[int(np.searchsorted(self.offsets, row, side="right")) - 1]

    def _rows(self, mask: NDArray[np.bool_]) -> Population:
        kept_before = np.concatenate(([0], np.cumsum(mask, dtype=np.int64)))
        return self.with_samples(self.features[mask], self.targets[mask], kept_before[self.offsets])

    def with_samples(
        self, features: NDArray[Any], targets: NDArray[Any], offsets: NDArray[np.int64] | None = None
    ) -> Population:
        """The same agents and features with other numbers."""
        offsets = self.offsets if offsets is None else offsets
        return replace(self.in_memory, features=features, targets=targets, offsets=offsets)


def held_out_rows(offsets: NDArray[np.int64], test_share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows to test on: of each agent's m rows round(test_share·m) at random, and never all of them."""
    if not 0 < test_share < 1:
        raise DataError(f"test_share must lie between 0 and 1, got {test_share}")
    counts = np.diff(offsets)
    held_out = np.minimum(np.floor(test_share * counts + 0.5).astype(np.int64), np.maximum(counts - 1, 0))
    owner = np.repeat(np.arange(len(counts)), counts)
    # One sort of owner + uniform shuffles the rows within each agent, all agents at once.
    shuffled = np.argsort(owner + np.random.default_rng(seed).random(len(owner)), kind="stable")
    rank = np.empty(len(owner), dtype=np.int64)
    rank[shuffled] = np.arange(len(owner)) - np.repeat(offsets[:-1], counts)
    return rank < held_out[owner]


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    # A view: the flag of the caller's own array stays as it is.
    view = array.view()
    view.flags.writeable = False
    return view


def _check_layout(features: NDArray[Any], targets: NDArray[Any], offsets: NDArray[Any]) -> None:
    """Shapes and types that the engines read without conversion."""
    if features.ndim != 2 or features.shape[1] == 0:
        raise DataError(f"features must have shape (samples, features), got {features.shape}")
    if targets.shape != (len(features),):
        raise DataError(
            f"targets must hold one number per sample, shape ({len(features)},), got {targets.shape}"
        )
    advice = "convert both first, or use Population.from_arrays"
    if features.dtype not in (np.float32, np.float64) or features.dtype != targets.dtype:
        kinds = f"{features.dtype} and {targets.dtype}"
        raise DataError(f"features and targets must both be float32 or both float64, got {kinds}; {advice}")
    if not (features.flags.c_contiguous and targets.flags.c_contiguous):
        raise DataError(f"features and targets must be C-contiguous; {advice}")
    _check_offsets(offsets, len(features))


def _check_offsets(offsets: NDArray[Any], n_samples: int) -> None:
    if offsets.ndim != 1 or len(offsets) < 2 or offsets.dtype.kind not in "iu":
        raise DataError(
            "offsets must be a list of integers with one more entry than there are agents (at least one), "
            f"got shape {offsets.shape} of {offsets.dtype}"
        )
    if offsets[0] != 0 or offsets[-1] != n_samples:
        raise DataError(
            f"offsets must start at 0 and end at the number of samples, {n_samples}; "
            f"got {offsets[0]} and {offsets[-1]}"
        )
    # Compared, not subtracted: unsigned differences are never negative.
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        agent = int(np.argmax(falls))
        raise DataError(
            f"offsets must not decrease: agent {agent} would begin at {offsets[agent]} "
            f"and end at {offsets[agent + 1]}"
        )


def _feature_names(names: Iterable[str] | None, n_features: int = 0) -> tuple[str, ...]:
    if names is None:
        return tuple(f"x{column}" for column in range(n_features))
    kept = distinct(names, "feature")
    if len(kept) != n_features:
        raise DataError(f"{len(kept)} feature names for {n_features} features; give one per feature")
    return kept


def _numbers(values: ArrayLike, what: str, n_axes: int) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} must be numbers, got {array.dtype}; encode text and categories as numbers")
    if array.ndim != n_axes:
        wanted = "(samples, features)" if n_axes == 2 else "(samples,)"
        raise DataError(f"{what} must have shape {wanted}, got {array.shape}")
    return array


def _positions(
    labels: NDArray[Any], agent_names: tuple[str | int, ...] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The position of each row's agent, and the names of all agents."""
    if agent_names is None:
        if len(labels) == 0:
            raise DataError("there are no rows; give at least one sample, or name the agents in agent_names")
        return encode_labels(label_array(labels), "agent")
    names = names_of(agent_names)
    if len(names) == 0:
        raise DataError("agent_names is empty; name at least one agent")
    if len(labels) == 0:
        return np.empty(0, dtype=np.int64), names
    if labels.dtype.kind not in "iu" or not all(isinstance(name, str) for name in agent_names):
        return encode_labels(label_array(labels), "agent", names)
    outside = (labels < 0) | (labels >= len(names))
    if outside.any():
        row = int(np.argmax(outside))
        problem = f"position {labels[row]} is not among the {len(names)} agent_names"
        raise cell_error(None, "agent", row, problem)
    return labels.astype(np.int64), names


def _reordered(array: NDArray[Any], order: NDArray[np.int64] | slice) -> NDArray[Any]:
    """A C-contiguous copy in this order; never a view, through which the caller could change samples."""
    return array.copy() if isinstance(order, slice) else np.take(array, order, axis=0)


def _finite(
    table: NDArray[Any], dtype: np.dtype[Any], columns: tuple[str, ...], owner: Callable[[int], str]
) -> NDArray[Any]:
    """The table (rows, columns) in `dtype`; the first number that is not finite in it is refused."""
    converted = as_floats(table, dtype)
    place = first_nonfinite(converted)
    if place is not None:
        row, column = place
        raise cell_error(owner(row), columns[column], row, nonfinite_words(float(table[place]), dtype))
    return converted
