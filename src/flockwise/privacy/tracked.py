"""Models that remember where they came from: what may start a private run, and what must never be sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.exported import exported_origin
from flockwise.privacy.guarantee import Guarantee, added, added_if_all_collude
from flockwise.privacy.origin import STATUSES, Adversary, Origin, weakest

OWN = Origin("own models, made of private data without noise", "private")
UNTRACKED = Origin("an array", "unknown")
# Functions of NumPy that write into their first argument.
_WRITERS = (np.copyto, np.place, np.putmask, np.put_along_axis, np.fill_diagonal)


class TrackedModels(np.ndarray):
    """An array with an `origin`, as have its copies, slices and multiples.

    A sum or a mean of several allows what the worst of them allows, and adds up what was spent on them. What
    is computed with an array that nobody keeps track of is of unknown origin, as is what is written to with a
    number or such an array. A slice and the array that it is a slice of share their memory and this.
    agent_names: whose the rows are; the models of a run know it, and copies, slices and sums do not.
    """

    _origin: Origin | None = None
    agent_names: Sequence[str] | None = None

    def __array_finalize__(self, made_from: Any) -> None:
        self._origin = origin_of(made_from)

    @property
    def origin(self) -> Origin | None:
        """Its own, or that of the array that it is a slice of, which may have been written to since."""
        return worst_of([one._origin for one in self._sharing()])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [np.asarray(value) if isinstance(value, TrackedModels) else value for value in inputs]
        if isinstance(options.get("where"), TrackedModels):
            options["where"] = np.asarray(options["where"])
        if out is not None:
            options["out"] = tuple(np.asarray(one) if isinstance(one, TrackedModels) else one for one in out)
        result = getattr(ufunc, method)(*plain, **options)
        in_place = method == "at"
        origin = worst_of([origin_of(value) for value in inputs if in_place or np.ndim(value)])
        for one in inputs[:1] if in_place else out or ():
            _mark_written(one, origin)
        return tracked(result, origin) if isinstance(result, np.ndarray) else result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        given = [*args, *kwargs.values()]
        if func in _WRITERS:
            _mark_written(given[0], worst_of([origin_of(one) for one in given]))
        _mark_written(kwargs.get("out"), None)
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        _mark_written(self, origin_of(value))

    def fill(self, value: Any) -> None:
        super().fill(value)
        _mark_written(self, None)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        super().put(indices, values, mode)
        _mark_written(self, origin_of(values))

    def _sharing(self) -> list[TrackedModels]:
        """Itself, and the array that it is a slice of."""
        return [self, self.base] if isinstance(self.base, TrackedModels) else [self]


def _mark_written(models: Any, origin: Origin | None) -> None:
    """An array is no more public than the least public thing that was ever written into it."""
    if isinstance(models, TrackedModels):
        for one in models._sharing():
            one._origin = worst_of([one._origin, origin])


def tracked(models: NDArray[Any], origin: Origin | None) -> TrackedModels:
    """The models, with where they came from."""
    view = np.asarray(models).view(TrackedModels)
    view._origin = origin
    return view


def own_models(models: NDArray[Any], agent_names: Sequence[str] | None = None) -> TrackedModels:
    """Models that agents keep for themselves, to be read only."""
    return _read_only(models, OWN, agent_names)


def run_models(
    models: NDArray[Any],
    method: str,
    guarantee: Guarantee | None,
    seeds: Iterable[int] = (),
    agent_names: Sequence[str] | None = None,
) -> TrackedModels:
    """The models of a run, to be read only, with their origin and whose they are."""
    return _read_only(models, run_origin(method, guarantee, seeds), agent_names)


def run_origin(method: str, guarantee: Guarantee | None, seeds: Iterable[int] = ()) -> Origin:
    """Of the models of a run: what it released, or what it computed from private data."""
    if guarantee is None:
        return Origin(f"models of {method}, made of private data without noise", "private")
    what, status = f"models released by {method}", "released"
    if not guarantee.is_private:
        what, status = f"{what}, whose guarantee leaves gaps", "unknown"
    return Origin(
        what,
        status,
        guarantee.spent,
        guarantee.declared,
        seeds=frozenset(seeds),
        against=Adversary(guarantee.against, guarantee.assumes),
        if_all_collude=guarantee.if_all_collude,
    )


def _read_only(models: NDArray[Any], origin: Origin, agent_names: Sequence[str] | None) -> TrackedModels:
    """A copy of it can be written to."""
    view = tracked(models, origin)
    view.agent_names = agent_names
    view.flags.writeable = False
    return view


def origin_of(models: Any) -> Origin | None:
    """None for models that nobody keeps track of. A table of exported ones has it in its metadata."""
    known = getattr(models, "origin", None)
    return known if isinstance(known, Origin) else exported_origin(models)


def worst_of(origins: list[Origin | None]) -> Origin | None:
    """The origin that allows least, with all that was spent on any of them; None counts as unknown.

    Each is counted once, also where it was mixed with others before.
    """
    given = [UNTRACKED if origin is None else origin for origin in origins]
    parts = tuple({id(part): part for origin in given for part in origin.parts or (origin,)}.values())
    worst = max(parts, key=lambda part: STATUSES.index(part.status))
    paid = [part for part in parts if part.spent is not None]
    if all(part is worst for part in paid):
        return None if worst is UNTRACKED else worst
    what = ", mixed with ".join(part.words for part in parts)
    declared = tuple(dict.fromkeys(package for part in parts for package in part.declared))
    spent = added(part.spent for part in paid if part.spent is not None)
    left = added_if_all_collude((part.spent, part.if_all_collude) for part in paid if part.spent is not None)
    against = weakest(part.against for part in paid)
    seeds = frozenset[int]().union(*(part.seeds for part in parts))
    return Origin(what, worst.status, spent, declared, parts, seeds, against, left)
