"""Sections made from the parts themselves: the fields of a dataclass are the keys of its section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from flockwise.checks import Choice, Configured, Key, Part, field_types
from flockwise.config.values import Section
from flockwise.registry import Registry


class Setting(NamedTuple):
    """One key: the field that it sets, what it may be, and its default (... for none)."""

    key: str
    field: str
    annotation: Any
    default: Any


def settings_of(kind: type[Any], leave_out: frozenset[str] = frozenset()) -> Iterator[Setting]:
    """The keys of a dataclass, those of its registered parts included."""
    for field in fields(kind):
        annotation = field_types(kind)[field.name]
        notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        configured = next((note for note in notes if isinstance(note, Configured)), None)
        part = next((note for note in notes if isinstance(note, Part)), None)
        if field.name in leave_out or (configured is not None and configured.annotation is None):
            continue
        if part is not None:
            yield from _settings_of_part(part, field.default_factory())  # type: ignore[misc]
            continue
        if configured is not None:
            annotation = configured.annotation
        key = next((note.name for note in notes if isinstance(note, Key)), field.name)
        default = ... if field.default is MISSING else field.default
        yield Setting(key, field.name, chosen_from(annotation, notes), default)


def settings_of_tuple(kind: type[Any]) -> Iterator[Setting]:
    """The keys of a NamedTuple, a loss for instance."""
    hints = get_type_hints(kind, include_extras=True)
    for name in kind._fields:
        yield Setting(name, name, hints[name], kind._field_defaults.get(name, ...))


def optional_keys(kinds: Registry[type[Any]], of: Any) -> dict[str, Any]:
    """All keys of all parts of a registry, each of which may be left out."""
    keys = {setting.key: setting.annotation for kind in kinds for setting in of(kind)}
    return {key: (optional(annotation), None) for key, annotation in keys.items()}


def section(title: str, settings: Iterator[Setting], /, **more: Any) -> type[Section]:
    """A section with these keys, and more of them."""
    keys: dict[str, Any] = {
        one.key: (one.annotation, Field() if one.default is ... else one.default) for one in settings
    }
    return create_model(title, __base__=Section, **(more | keys))


def arguments(
    kind: type[Any], values: Mapping[str, Any], leave_out: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """What a section says, as arguments of its dataclass; registered parts are made."""
    found: dict[str, Any] = {name: _made(part, values) for name, part in _parts_of(kind).items()}
    for setting in settings_of(kind, leave_out):
        if setting.field in found or setting.key not in values or _is_of_part(kind, setting):
            continue
        found[setting.field] = values[setting.key]
    return found


def strange_keys(place: str, kind: type[Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Keys of other parts than the one that was chosen, in a line each."""
    for part in _parts_of(kind).values():
        chosen = values[part.key]
        own = {setting.key for setting in settings_of(part.registry[chosen])}
        for other in part.registry:
            for setting in settings_of(other):
                if setting.key not in own and values.get(setting.key) is not None:
                    yield f'{place}.{setting.key}: only for {part.key} = "{other.name}"; leave it out'


def chosen_from(annotation: Any, notes: tuple[Any, ...]) -> Any:
    """A name of a registered part is one of those that are registered."""
    choice = next((note for note in notes if isinstance(note, Choice)), None)
    if choice is None:
        return annotation
    names = Literal[choice.registry.names]  # type: ignore[valid-type]
    is_optional = type(None) in get_args(get_args(annotation)[0])
    return optional(names) if is_optional else names


def optional(annotation: Any) -> Any:
    """What may also be left out."""
    return annotation | None


def _settings_of_part(part: Part, default: Any) -> Iterator[Setting]:
    """The part's name, and the keys of all parts of its kind: which of them it has is checked later."""
    yield Setting(part.key, part.key, Literal[part.registry.names], default.name)  # type: ignore[valid-type]
    seen: set[str] = set()
    for kind in part.registry:
        for setting in settings_of(kind):
            if setting.key not in seen:
                seen.add(setting.key)
                yield Setting(setting.key, setting.key, optional(setting.annotation), None)


def _parts_of(kind: type[Any]) -> dict[str, Part]:
    """The fields that hold registered parts."""
    notes = {name: get_args(hint)[1:] for name, hint in field_types(kind).items()}
    return {name: note for name, many in notes.items() for note in many if isinstance(note, Part)}


def _made(part: Part, values: Mapping[str, Any]) -> Any:
    kind = part.registry[values[part.key]]
    known = {setting.key: setting.field for setting in settings_of(kind)}
    return kind(**{field: values[key] for key, field in known.items() if values.get(key) is not None})


def _is_of_part(kind: type[Any], setting: Setting) -> bool:
    return setting.field not in {field.name for field in fields(kind)}
