"""Limits of values, written once beside the field: constructors check them, configurations read them.

@dataclass(frozen=True)
class Budget:
    epsilon: Positive

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)
"""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from annotated_types import Ge, Gt, Le, Lt


class Allowed(NamedTuple):
    """The allowed values in words that complete "allowed: …"."""

    words: str


class Key(NamedTuple):
    """The key of a field in a configuration file, where it differs from the name of the field."""

    name: str


class Configured(NamedTuple):
    """The values that a configuration file may give to a field; None for none. Python allows more."""

    annotation: Any


class Choice(NamedTuple):
    """A field that holds the name of a registered part."""

    registry: Any


class Part(NamedTuple):
    """A field that holds a registered part: a configuration names it under `key`, beside its own keys."""

    registry: Any
    key: str


Positive: TypeAlias = Annotated[float, Gt(0), Allowed("a number above 0")]
NotNegative: TypeAlias = Annotated[float, Ge(0), Allowed("a number from 0 on")]
Count: TypeAlias = Annotated[int, Ge(1), Allowed("a whole number from 1 on")]
CountFromZero: TypeAlias = Annotated[int, Ge(0), Allowed("a whole number from 0 on")]
Seed: TypeAlias = Annotated[int, Ge(0), Lt(2**64), Allowed("a whole number from 0 to below 2^64")]
Probability: TypeAlias = Annotated[float, Ge(0), Le(1), Allowed("a number from 0 to 1")]
ShareBelowOne: TypeAlias = Annotated[float, Ge(0), Lt(1), Allowed("a number from 0 to below 1")]
ShareInside: TypeAlias = Annotated[float, Gt(0), Lt(1), Allowed("a number between 0 and 1, both excluded")]
ShareAboveZero: TypeAlias = Annotated[float, Gt(0), Le(1), Allowed("a number above 0 and at most 1")]
Duration: TypeAlias = Annotated[float, Ge(1e-6), Le(1e6), Allowed("a number from 1e-6 to 1e6")]
Delay: TypeAlias = Annotated[float, Ge(0), Lt(1e6), Allowed("a number from 0 to below 1e6")]

_HOLDS = {
    Gt: lambda value, limit: value > limit.gt,
    Ge: lambda value, limit: value >= limit.ge,
    Lt: lambda value, limit: value < limit.lt,
    Le: lambda value, limit: value <= limit.le,
}


def check_fields(record: Any, error: type[Exception]) -> None:
    """Refuse the first field of a dataclass that is not what its annotation allows."""
    for name, annotation in field_types(type(record)).items():
        value = getattr(record, name)
        if not fits(value, annotation):
            raise error(f"{name} must be {allowed_words(annotation)}, got {name}={value!r}")


def check_kind(value: Any, kind: type, name: str, error: type[Exception]) -> None:
    """Refuse an argument that is not of its class, or the class itself where one of its objects belongs."""
    if not isinstance(value, kind):
        given = (
            f"the class {value.__name__}: call it" if isinstance(value, type) else f"a {type(value).__name__}"
        )
        raise error(f"{name} must be of class {kind.__name__}, got {given}")


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value is within its limits; what has no limits written beside it fits."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *notes = get_args(annotation)
        limits = [note for note in notes if type(note) in _HOLDS]
        if not limits:
            return fits(value, inner)
        return _is_number(value, inner) and all(_HOLDS[type(limit)](value, limit) for limit in limits)
    if origin in (Union, types.UnionType):
        return any(fits(value, option) for option in get_args(annotation))
    if origin is Literal:
        return any(
            value is option or value == option
            for option in get_args(annotation)
            if type(option) is type(value)
        )
    if annotation is type(None):
        return value is None
    if origin is tuple or annotation in (str, tuple):
        return isinstance(value, tuple if origin is tuple else annotation)
    if origin is Sequence:
        (item,) = get_args(annotation)
        return (
            hasattr(value, "__len__") and not isinstance(value, str) and all(fits(one, item) for one in value)
        )
    return isinstance(value, annotation) if is_dataclass(annotation) else True  # type: ignore[arg-type]


def allowed_words(annotation: Any) -> str:
    """The allowed values of a field, in words."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *notes = get_args(annotation)
        return next((note.words for note in notes if isinstance(note, Allowed)), None) or allowed_words(inner)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        return " or ".join(dict.fromkeys(allowed_words(option) for option in options))
    if origin is Literal:
        return " or ".join(repr(option) for option in get_args(annotation))
    if origin is Sequence:
        return f"a sequence of {allowed_words(get_args(annotation)[0])}"
    return {bool: "true or false", str: "text", int: "a whole number", float: "a number"}.get(
        annotation, getattr(annotation, "__name__", str(annotation))
    )


@lru_cache(maxsize=256)
def field_types(kind: type) -> dict[str, Any]:
    """The annotations of the fields of a dataclass or NamedTuple, with all that is written beside them."""
    hints = get_type_hints(kind, include_extras=True)
    names = kind._fields if issubclass(kind, tuple) else [field.name for field in fields(kind)]  # type: ignore[attr-defined]
    return {name: hints[name] for name in names}


def _is_number(value: Any, kind: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    if kind is int:
        return isinstance(value, int | np.integer)
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)
