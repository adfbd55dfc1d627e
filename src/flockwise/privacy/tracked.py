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
    and results of other functions. Results of private models are private, and so is an array with an origin
    that they are written into. Nobody knows the origin of numbers, of what `np.asarray` and `tolist` give or
    NumPy makes of a list or tuple of models, and of the places that the methods `nonzero` and `searchsorted`
    find.
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

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        _mark_written([self], _made_of([key, value]))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "at" and isinstance(inputs[0], TrackedModels) and not inputs[0].flags.writeable:
            raise ValueError("assignment destination is read-only")  # some calls of NumPy's would write to it
        result = getattr(ufunc, method)(*_plain(inputs), **_plain(options))
        written = inputs[:1] if method == "at" else options.get("out", ())
        made_of = _made_of([inputs, options])
        _mark_written(written, made_of)
        if result is not None and len(written) == 1 and isinstance(written[0], TrackedModels):
            return written[0]
        return _tracked_result(result, made_of)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, _plain(args), _plain(kwargs))
        keeps = func in _KEEPERS and len(args) in (1, 2) and kwargs.keys() <= {"axis"}
        made_of = worst_of([*map(origin_of, _leaves(args[0]))]) if keeps else _made_of([args, kwargs])
        _mark_written([one for one in _leaves([args, kwargs]) if _is_written(one, result)], made_of)
        return _tracked_result(result, made_of)


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


def _made_of(given: Any) -> Origin | None:
    """What NumPy computes of it is of unknown origin at best."""
    return worst_of([*map(origin_of, _leaves(given)), None])


def _tracked_result(result: Any, made_of: Origin | None) -> Any:
    """What NumPy returned, one array or several."""
    if isinstance(result, np.ndarray):
        return tracked(result, made_of)
    if not isinstance(result, list | tuple):
        return result
    several = [_tracked_result(one, made_of) for one in result]
    return type(result)(*several) if hasattr(result, "_fields") else type(result)(several)


def _is_written(given: Any, result: Any) -> bool:
    """Whether a function of NumPy may have written to it: it returned nothing, or the same memory."""
    if not isinstance(given, TrackedModels) or not given.flags.writeable:
        return False
    return result is None or (isinstance(result, np.ndarray) and np.may_share_memory(_plain(given), result))


def _mark_written(arrays: Iterable[Any], made_of: Origin | None) -> None:
    """They hold what was made of it now, and so do the arrays that they are slices of."""
    for array in arrays:
        while isinstance(array, TrackedModels):
            array.origin = worst_of([array.origin, made_of])
            array = array.base


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
        simulated=guarantee.simulated or guarantee.simulated_before,
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
    simulated = any(part.simulated for part in parts)
    seeds = frozenset[int]().union(*(part.seeds for part in parts))
    return Origin(what, worst.status, spent, declared, parts, simulated, seeds, against, left)
