"""What pydantic found, in lines for people: section.field, the value given, what is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

# The key by which a section comes in kinds, and what it may be.
KINDS = {
    "data": ("source", '"synthetic", "movielens", or a .csv or .parquet file'),
    "graph": ("kind", '"angular", "knn", "edges", "random"'),
    "method": ("name", '"local", "global", "cd", "propagation", "admm", "release_once", "lowpass", "auto"'),
    "privacy": ("kind", '"none", "dp"'),
}
SAY_WHICH = 'write kind = "dp" under [privacy], or kind = "none": a run without privacy has to say so itself'


def problem_lines(config: type[BaseModel], error: ValidationError) -> list[str]:
    """One line per field that is wrong, in the order of the configuration."""
    lines: dict[tuple[Any, ...], str] = {}
    for details in error.errors(include_url=False):
        place = details["loc"]
        # In a section that comes in kinds, pydantic names the kind between section and field.
        field = place[2:3] if place[0] in KINDS else place[1:2]
        # A value that may be of two types is reported for both: the first line says it all.
        lines.setdefault((place[0], *field), _line(config, details, str(place[0]), field))
    return list(lines.values())


def _line(config: type[BaseModel], details: ErrorDetails, section: str, field: tuple[Any, ...]) -> str:
    if field:
        return _field_line(_section_model(config, details["loc"]), details, f"{section}.{field[0]}")
    if details["type"] == "extra_forbidden":
        return f"{section}: unknown section or key; known are {_keys(config)}"
    if section == "privacy" and not _names_a_kind(details["input"]):
        return f"privacy.kind: missing; {SAY_WHICH}"
    if section in KINDS and isinstance(details["input"], Mapping) and details["type"] != "missing":
        key, allowed = KINDS[section]
        return _wrong(f"{section}.{key}", details["input"].get(key), allowed)
    if details["type"] == "missing":
        key, allowed = KINDS[section]
        return f"[{section}]: missing; write it with {key} = {allowed}"
    field_info = config.model_fields[section]
    return _wrong(section, details["input"], field_info.description or f"a section [{section}]")


def _field_line(model: type[BaseModel], details: ErrorDetails, name: str) -> str:
    key = name.partition(".")[2]
    if details["type"] == "extra_forbidden":
        return f"{name}: unknown key; known here are {_keys(model)}"
    if details["type"] == "missing":
        return f"{name}: missing; allowed: {_allowed(_field(model, key))}"
    if details["type"] == "no_such_file":
        return f"{name}: got {_shown(details['input'])}; {details['msg']}"
    return _wrong(name, details["input"], _allowed(_field(model, key)))


def _names_a_kind(privacy: Any) -> bool:
    return isinstance(privacy, Mapping) and privacy.get("kind") is not None


def _wrong(name: str, value: Any, allowed: str) -> str:
    if value is None:
        return f"{name}: missing; allowed: {allowed}"
    return f"{name}: got {_shown(value)}; allowed: {allowed}"


def _section_model(config: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel]:
    """The class of the section, and of its kind where it has kinds."""
    annotation: Any = config.model_fields[str(place[0])].annotation
    if place[0] not in KINDS:
        return annotation
    for kind in get_args(annotation):
        model = get_args(kind)[0] if get_origin(kind) is not None else kind
        if place[1] in _tags(model, KINDS[str(place[0])][0]):
            return model
    raise AssertionError(f"no kind {place[1]!r} of section {place[0]!r}")


def _tags(model: type[BaseModel], key: str) -> tuple[Any, ...]:
    # A table is chosen by the ending of a file name, not by a fixed word.
    return get_args(model.model_fields[key].annotation) or ("table",)


def _field(model: type[BaseModel], key: str) -> FieldInfo:
    return next(info for name, info in model.model_fields.items() if key in (name, info.alias))


def _keys(model: type[BaseModel]) -> str:
    return ", ".join(info.alias or name for name, info in model.model_fields.items())


def _allowed(field: FieldInfo) -> str:
    if field.description:
        return field.description
    for option in (field.annotation, *get_args(field.annotation)):
        # Optional fields: the description and the choices are those of the type beside None.
        described = next(
            (part.description for part in get_args(option)[1:] if hasattr(part, "description")), None
        )
        if described:
            return described
        words = [word for word in get_args(option) if isinstance(word, str)]
        if words:
            return ", ".join(_shown(word) for word in words)
    return "another value"


def _shown(value: Any) -> str:
    """As it stands in the file, nearly."""
    return json.dumps(value, ensure_ascii=False, default=str)
