"""What is wrong with a section, in lines for people: section.field, the value given, what is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from flockwise.checks import Allowed


def error_lines(name: str, model: type[BaseModel], error: ValidationError) -> list[str]:
    """One line per field that is wrong."""
    lines: dict[Any, str] = {}
    for details in error.errors(include_url=False):
        field = details["loc"][0] if details["loc"] else None
        # A value that may be of two types is reported for both: the first line says it all.
        lines.setdefault(field, _line(name, model, details, field))
    return list(lines.values())


def wrong(place: str, value: Any, allowed: str) -> str:
    if value is None:
        return f"{place}: missing; allowed: {allowed}"
    return f"{place}: got {shown(value)}; allowed: {allowed}"


def shown(value: Any) -> str:
    """As it stands in the file, nearly."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _line(name: str, model: type[BaseModel], details: ErrorDetails, field: Any) -> str:
    place = f"{name}.{field}" if name else str(field)
    if field is None:
        return f"{name}: got {shown(details['input'])}; allowed: a section [{name}]"
    if details["type"] == "extra_forbidden":
        return f"{place}: unknown key; known here are {keys_of(model)}"
    allowed = _allowed(_field(model, str(field)))
    if details["type"] == "missing":
        return f"{place}: missing; allowed: {allowed}"
    if details["type"] == "no_such_file":
        return f"{place}: got {shown(details['input'])}; {details['msg']}"
    return wrong(place, details["input"], allowed)


def keys_of(model: type[BaseModel]) -> str:
    return ", ".join(info.alias or name for name, info in model.model_fields.items())


def _field(model: type[BaseModel], key: str) -> FieldInfo:
    return next(info for name, info in model.model_fields.items() if key in (name, info.alias))


def _allowed(field: FieldInfo) -> str:
    """Of an optional field, the words and choices are those of the type beside None."""
    own = next((note.words for note in field.metadata if isinstance(note, Allowed)), None)
    if own:
        return own
    for option in (field.annotation, *get_args(field.annotation)):
        notes = get_args(option)[1:] if get_origin(option) is not None else ()
        words = next((note.words for note in notes if isinstance(note, Allowed)), None)
        if words:
            return words
        choices = [word for word in get_args(option) if isinstance(word, str)]
        if choices:
            return ", ".join(shown(word) for word in choices)
    return "another value"


def quoted(names: tuple[str, ...]) -> str:
    return ", ".join(shown(name) for name in names)


def is_section(values: Any) -> bool:
    return isinstance(values, Mapping)
