"""Models that remember where they came from: what may start a private run, and what must never be sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import EllipsisType, NoneType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.exported import exported_origin
from flockwise.privacy.guarantee import Guarantee, added, added_if_all_collude
from flockwise.privacy.origin import STATUSES, Adversary, Origin, weakest

OWN = Origin("own models, made of private data without noise", "private")
UNTRACKED = Origin("an array", "unknown")
# With an axis at most, these compute from their first argument alone.
_KEEPERS: Final = (np.concatenate, np.stack, np.mean)


class TrackedModels(np.ndarray):
    """An array with an `origin`. One that a guarantee may cover is read-only, so its values are what it says.

    Slices keep it. Of several arrays, `np.stack`, `np.concatenate` and `np.mean` allow what the worst of them
    allows, and add up what was spent on them. All else that NumPy makes is of unknown origin at best: copies,
    and what other functions compute. What is made of private models stays private, but for numbers, tuples
    and lists, and what `np.asarray` gives: they know no origin.
    agent_names: whose the rows are; the models of a run know it, and what is made of them does not.
    """

    origin: Origin | None = None
    agent_names: Sequence[str] | None = None

    def __array_finalize__(self, made_from: Any) -> None:
        """Of every array that NumPy makes from this one: nobody knows what else it will hold."""
        self.origin = worst_of([origin_of(made_from), None])

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, TrackedModels) and _is_slice(key):
            found.origin = self.origin
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "at" and isinstance(inputs[0], TrackedModels) and not inputs[0].flags.writeable:
            raise ValueError("assignment destination is read-only")  # some calls of NumPy's would write to it
        result = getattr(ufunc, method)(*_plain(inputs), **_plain(options))
        out = options.get("out", ())
        return out[0] if len(out) == 1 else _tracked_array(result, [*inputs, None])

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, _plain(args), _plain(kwargs))
        keeps = func in _KEEPERS and len(args) in (1, 2) and kwargs.keys() <= {"axis"}
        return _tracked_array(result, _leaves(args[0]) if keeps else [*_leaves([args, kwargs]), None])


def _is_slice(key: Any) -> bool:
    """A key of positions as Python writes them; an array of them may have been computed from anything."""
    if isinstance(key, tuple):
        return all(_is_slice(part) for part in key)
    if isinstance(key, slice):
        return all(_is_slice(part) for part in (key.start, key.stop, key.step))
    return type(key) in (int, NoneType, EllipsisType)


def _plain(given: Any) -> Any:
    """Arguments of NumPy, with arrays as NumPy knows them."""
    if isinstance(given, TrackedModels):
        return np.asarray(given)
    if isinstance(given, dict):
        return {name: _plain(one) for name, one in given.items()}
    return type(given)(map(_plain, given)) if type(given) in (list, tuple) else given


def _leaves(given: Any) -> Iterator[Any]:
    """What is in arguments of NumPy, however nested."""
    if isinstance(given, list | tuple | Mapping):
        for one in given.values() if isinstance(given, Mapping) else given:
            yield from _leaves(one)
    else:
        yield given


def _tracked_array(result: Any, given: Iterable[Any]) -> Any:
    """What NumPy computed of what was given."""
    is_array = isinstance(result, np.ndarray)
    return tracked(result, worst_of([origin_of(one) for one in given])) if is_array else result


def tracked(models: NDArray[Any], origin: Origin | None) -> TrackedModels:
    """The models, with where they came from."""
    values = np.asarray(models)
    if origin is not None and origin.is_covered:
        # Unlike a flag, nobody can take this back.
        values = np.asarray(values.data.toreadonly())
    view = values.view(TrackedModels)
    view.origin = origin
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
    worst = max(parts, key=lambda part: (STATUSES.index(part.status), part is not UNTRACKED))
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
