"""A configuration, read and checked: every problem is found at once, in a line each."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from flockwise.checks import Allowed
from flockwise.config.misfits import misfits
from flockwise.config.sections import (
    AUTO,
    EDGES,
    FolderData,
    General,
    Kind,
    NetworkSection,
    Section,
    data_kind,
    engine_kind,
    graph_kind,
    method_kind,
    objective_kind,
    privacy_kind,
)
from flockwise.engine import RayEngine
from flockwise.errors import ConfigError
from flockwise.graph import GRAPHS
from flockwise.method import METHODS
from flockwise.method.base import Variant
from flockwise.registry import load_installed_parts

KNOWN = ("seed", "data", "graph", "objective", "method", "privacy", "engine", "network")
SOURCES = '"synthetic", "movielens", a .csv or .parquet file, or "FOLDER/"'
SAY_WHICH = 'write kind = "dp" under [privacy], or kind = "none": a run without privacy has to say so itself'


@dataclass(frozen=True, eq=False)
class Config:
    """What `flockwise simulate` runs: data, graph, objective, method, privacy and engine."""

    seed: int
    data: Any
    graph: Any
    objective: Any
    method: Any
    privacy: Any
    engine: Any
    network: NetworkSection

    @property
    def stays_in_files(self) -> bool:
        """Whether shards read the samples, and nobody else does."""
        return isinstance(self.data, FolderData) and self.engine.name == RayEngine.name

    @property
    def is_private(self) -> bool:
        return self.privacy.kind == "dp"

    @property
    def is_planned(self) -> bool:
        """Whether the method is left to a plan."""
        return self.method.name == AUTO

    @property
    def variant(self) -> Variant | None:
        """The method by its name; None if it is left to a plan."""
        return None if self.is_planned else METHODS[self.method.name]

    def dump(self) -> dict[str, dict[str, Any]]:
        """The sections as they would stand in a file; files by their names."""
        sections: dict[str, dict[str, Any]] = {"general": {"seed": self.seed}}
        for name in KNOWN[1:]:
            section = getattr(self, name)
            if section is not None:
                values = section.model_dump(by_alias=True, exclude_none=True)
                sections[name] = {k: v.name if isinstance(v, Path) else v for k, v in values.items()}
        return sections

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Config:
        """A TOML file; files that it names are looked up in its own folder."""
        file = Path(path)
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{file}: there is no such file") from None
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {_not_toml(error)}") from None
        try:
            return cls.parse(values, folder=file.parent)
        except ConfigError as error:
            lines = str(error).splitlines()
            raise ConfigError("\n".join(f"{file}: {line}" for line in lines)) from None

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, folder: str | os.PathLike[str] = ".") -> Config:
        """A configuration from nested dictionaries; all problems are found at once, one line each."""
        load_installed_parts()
        reader = _Reader(values, Path(folder))
        config = reader.config()
        lines = reader.lines or misfits(config)
        if lines:
            raise ConfigError("\n".join(lines))
        return config


def _not_toml(error: ValueError) -> str:
    """The error in the text of a file, in words."""
    twice = re.fullmatch(r"Cannot declare \((.*?),?\) twice (\(at .*\))", str(error))
    if twice is None:
        return f"not a TOML file: {error}"
    name = ".".join(re.findall(r"'(.*?)'", twice[1]))
    return f"the section [{name}] is there twice {twice[2]}; put its keys below one heading"


class _Reader:
    """Reads section after section, and keeps a line for each thing that is wrong."""

    def __init__(self, values: Mapping[str, Any], folder: Path) -> None:
        self.lines: list[str] = []
        self._values, self._folder = values, folder

    def config(self) -> Config:
        seed = {"seed": self._values["seed"]} if "seed" in self._values else {}
        general: Any = self._validated("", Kind(General), seed)
        data = self._section("data", data_kind, "source", SOURCES)
        graph = None
        if "graph" in self._values:
            graph = self._section("graph", graph_kind, "kind", _quoted([*GRAPHS.names, EDGES]))
        objective = self._section("objective", objective_kind)
        name = "name" if "method" in self._values else ""
        method = self._section("method", method_kind, name, _quoted([*METHODS.names, AUTO]))
        privacy = self._privacy(method)
        engine = self._section("engine", engine_kind)
        network = self._section("network", lambda values: Kind(NetworkSection))
        for name in self._values.keys() - set(KNOWN):
            self.lines.append(f"{name}: unknown section or key; known are {', '.join(KNOWN)}")
        seed = 0 if general is None else general.seed
        return Config(seed, data, graph, objective, method, privacy, engine, network)

    def _privacy(self, method: Any) -> Any:
        values = self._values.get("privacy")
        if not isinstance(values, Mapping) or values.get("kind") is None:
            self.lines.append(f"privacy.kind: missing; {SAY_WHICH}")
            return None
        variant = None if method is None or method.name == AUTO else METHODS[method.name]
        return self._section("privacy", partial(privacy_kind, variant=variant), "kind", '"none", "dp"')

    def _section(
        self, name: str, kind: Callable[[Mapping[str, Any]], Kind | None], key: str = "", allowed: str = ""
    ) -> Any:
        """One section. key: what says of which kind it is, where it has to; allowed: words for its values."""
        if key and name not in self._values:
            self.lines.append(f"[{name}]: missing; write it with {key} = {allowed}")
            return None
        values = self._values.get(name, {})
        if not isinstance(values, Mapping):
            self.lines.append(_wrong(name, values, f"a section [{name}]"))
            return None
        found = kind(values)
        if found is None:
            self.lines.append(_wrong(f"{name}.{key}", values.get(key), allowed))
            return None
        return self._validated(name, found, values)

    def _validated(self, name: str, kind: Kind, values: Mapping[str, Any]) -> Section | None:
        try:
            return kind.model.model_validate(dict(values), context={"folder": self._folder})
        except ValidationError as error:
            lines: dict[Any, str] = {}
            for details in error.errors(include_url=False):
                # A value that may be of two types is reported for both: the first line says it all.
                lines.setdefault(details["loc"][0], _line(name, kind, details))
            self.lines += lines.values()
            return None


def _line(name: str, kind: Kind, details: ErrorDetails) -> str:
    """The error of one field, for people: section.field, the value given, and what is allowed."""
    field, model = str(details["loc"][0]), kind.model
    place = f"{name}.{field}" if name else field
    if details["type"] == "extra_forbidden":
        if field in kind.elsewhere:
            return f"{place}: only for {kind.elsewhere[field]}; leave it out"
        keys = (info.alias or key for key, info in model.model_fields.items())
        return f"{place}: unknown key; known here are {', '.join(keys)}"
    if details["type"] == "no_such_file":
        return f"{place}: got {_shown(details['input'])}; {details['msg']}"
    allowed = _allowed(next(i for key, i in model.model_fields.items() if field in (key, i.alias)))
    if details["type"] == "finite_number":
        allowed = allowed.replace("a number", "a finite number", 1)
    return _wrong(place, None if details["type"] == "missing" else details["input"], allowed)


def _wrong(place: str, value: Any, allowed: str) -> str:
    if value is None:
        return f"{place}: missing; allowed: {allowed}"
    return f"{place}: got {_shown(value)}; allowed: {allowed}"


def _shown(value: Any) -> str:
    """As it stands in the file, nearly."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(_shown(name) for name in names)


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
            return _quoted(choices)
    return "another value"
