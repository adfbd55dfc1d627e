"""Named parts: losses, mechanisms, accountants, statistics, graphs, methods and engines, ours and yours.

A registry is where configuration files, plans and reports look a part up by its name. A part of your own
takes one line, and nothing else in the package has to know it:

    @fw.METHODS.register
    class MyMethod: ...

The command line finds the parts of an installed package by an entry point in the group "flockwise" that names
the module where they are registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from flockwise.errors import ConfigError, FlockwiseError

Part = TypeVar("Part")
Given = TypeVar("Given")
OWN_PACKAGE = __name__.partition(".")[0]


def own_name(part: Any) -> Iterable[tuple[str, Any]]:
    """A part under its own name, as it is."""
    return [(part.name, part)]


class Registry(Generic[Part]):
    """Parts of one kind by name, in the order in which they were registered."""

    def __init__(
        self,
        kind: str,
        error: type[FlockwiseError] = ConfigError,
        *,
        entries: Callable[[Any], Iterable[tuple[str, Part]]] = own_name,
    ) -> None:
        """error: what an unknown name raises. entries: under which names a part is kept, and as what."""
        self.kind = kind
        self._error = error
        self._entries = entries
        self._parts: dict[str, Part] = {}

    def register(self, part: Given) -> Given:
        """Add a part under all its names; also a decorator. A name that another part has is refused."""
        entries = dict(self._entries(part))
        for name, entry in entries.items():
            before = self._parts.get(name)
            if before is not None and _home(before) != _home(entry):
                raise self._error(
                    f"there is a {self.kind} named {name!r} already ({_home(before)}); rename yours"
                )
        self._parts |= entries
        return part

    def unregister(self, name: str) -> None:
        """Take a part out again, for tests."""
        del self._parts[name]

    def __getitem__(self, name: str) -> Part:
        if name not in self._parts:
            raise self._error(f"there is no {self.kind} {name!r}; choose one of {', '.join(self._parts)}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts.values())

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._parts)


@cache
def load_installed_parts() -> None:
    """Import the modules in which installed packages register parts."""
    for entry in entry_points(group=OWN_PACKAGE):
        entry.load()


def declared_by(part: Any) -> str | None:
    """The package that a part comes from, if it is not this one: its word is not ours."""
    kind = part if isinstance(part, type) else type(part)
    package = kind.__module__.partition(".")[0]
    return None if package == OWN_PACKAGE else package


def part_to_json(part: Any) -> dict[str, Any]:
    """A registered dataclass as plain values, its name among them."""
    return {"name": part.name, **{field.name: getattr(part, field.name) for field in fields(part)}}


def part_from_json(registry: Registry[Any], document: Mapping[str, Any]) -> Any:
    """What part_to_json wrote."""
    values = dict(document)
    return registry[values.pop("name")](**values)


def _home(part: Any) -> str:
    kind = getattr(part, "kind", part)
    kind = kind if isinstance(kind, type) else type(kind)
    return f"{kind.__module__}.{kind.__qualname__}"
