"""Models that remember where they came from: what may start a private run, and what must never be sent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.origin import Origin

OWN = Origin("own models, made of private data without noise", "private")
# From the one that can be used for anything to the one that can be used for least.
_ORDER = ("public", "released", "unknown", "private")


class TrackedModels(np.ndarray):
    """An array with an `origin`, as have its copies, slices and multiples.

    A sum or a mean of several has the origin of the one that can be used for least. What is computed with an
    array that nobody keeps track of has none.
    """

    origin: Origin | None = None

    def __array_finalize__(self, made_from: Any) -> None:
        self.origin = getattr(made_from, "origin", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [np.asarray(value) if isinstance(value, TrackedModels) else value for value in inputs]
        if out is not None:
            options["out"] = tuple(np.asarray(one) if isinstance(one, TrackedModels) else one for one in out)
        result = getattr(ufunc, method)(*plain, **options)
        origin = worst_of([origin_of(value) for value in inputs if np.ndim(value)])
        for one in out or ():
            if isinstance(one, TrackedModels):
                one.origin = origin
        return tracked(result, origin) if isinstance(result, np.ndarray) else result

    def __setitem__(self, key: Any, value: Any) -> None:
        if np.ndim(value):
            self.origin = worst_of([self.origin, origin_of(value)])
        super().__setitem__(key, value)


def tracked(models: NDArray[Any], origin: Origin | None) -> TrackedModels:
    """The models, with where they came from."""
    view = np.asarray(models).view(TrackedModels)
    view.origin = origin
    return view


def own_models(models: NDArray[Any]) -> TrackedModels:
    """Models that agents keep for themselves."""
    return tracked(models, OWN)


def run_models(models: NDArray[Any], method: str, guarantee: Guarantee | None) -> TrackedModels:
    """The models of a run: what it released, or without a guarantee what it computed from private data."""
    if guarantee is None:
        return tracked(models, Origin(f"models of {method}, made of private data without noise", "private"))
    what = f"models released by {method}"
    if guarantee.is_private:
        return tracked(models, Origin(what, "released", guarantee.spent))
    return tracked(models, Origin(f"{what}, whose guarantee leaves gaps", "unknown", guarantee.spent))


def origin_of(models: Any) -> Origin | None:
    """None for models that nobody keeps track of."""
    return getattr(models, "origin", None)


def worst_of(origins: list[Origin | None]) -> Origin | None:
    """The origin that allows least; None counts as unknown."""

    def rank(origin: Origin | None) -> int:
        return _ORDER.index("unknown" if origin is None else origin.status)

    return max(origins, key=rank)
