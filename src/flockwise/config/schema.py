"""A configuration, read and checked: every problem is found at once, in a line each."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flockwise.config.lines import error_lines, is_section, quoted, wrong
from flockwise.config.misfits import misfits
from flockwise.config.sections import (
    AUTO,
    SOURCES,
    General,
    NetworkSection,
    data_kind,
    engine_kind,
    graph_kind,
    graph_names,
    method_kind,
    method_names,
    objective_kind,
    privacy_kind,
    spending_settings,
)
from flockwise.config.values import Section
from flockwise.errors import ConfigError
from flockwise.method import METHODS
from flockwise.method.base import Variant
from flockwise.registry import load_installed_parts

KNOWN = ("seed", "data", "graph", "objective", "method", "privacy", "engine", "network")
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

    def with_(self, **changes: Any) -> Config:
        return replace(self, **changes)

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
            raise ConfigError(f"{file}: not a TOML file: {error}") from None
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


class _Reader:
    """Reads section after section, and keeps a line for each thing that is wrong."""

    def __init__(self, values: Mapping[str, Any], folder: Path) -> None:
        self.lines: list[str] = []
        self._values, self._folder = values, folder

    def config(self) -> Config:
        seed = {"seed": self._values["seed"]} if "seed" in self._values else {}
        general = self._validated("", General, seed)
        data = self._kind("data", "source", SOURCES, data_kind)
        graph = None
        if "graph" in self._values:
            graph = self._kind("graph", "kind", quoted(graph_names()), graph_kind)
        objective = self._plain("objective", objective_kind)
        method = self._method()
        privacy = self._privacy(method)
        engine = self._plain("engine", engine_kind)
        network = self._plain("network", lambda values: NetworkSection)
        for name in self._values.keys() - set(KNOWN):
            self.lines.append(f"{name}: unknown section or key; known are {', '.join(KNOWN)}")
        seed_value = 0 if general is None else general.seed  # type: ignore[attr-defined]
        return Config(seed_value, data, graph, objective, method, privacy, engine, network)  # type: ignore[arg-type]

    def _plain(self, name: str, kind: Callable[[Mapping[str, Any]], type[Section]]) -> Section | None:
        values = self._values.get(name, {})
        if not is_section(values):
            self.lines.append(wrong(name, values, f"a section [{name}]"))
            return None
        return self._validated(name, kind(values), values)

    def _kind(
        self, name: str, key: str, allowed: str, kind: Callable[[Mapping[str, Any]], type[Section] | None]
    ) -> Section | None:
        """A section that comes in kinds."""
        if name not in self._values:
            self.lines.append(f"[{name}]: missing; write it with {key} = {allowed}")
            return None
        values = self._values[name]
        if not is_section(values):
            self.lines.append(wrong(name, values, f"a section [{name}]"))
            return None
        found = kind(values)
        if found is None:
            self.lines.append(wrong(f"{name}.{key}", values.get(key), allowed))
            return None
        return self._validated(name, found, values)

    def _method(self) -> Section | None:
        if "method" not in self._values:
            return self._validated("method", method_kind({}) or Section, {})
        return self._kind("method", "name", quoted(method_names()), method_kind)

    def _privacy(self, method: Any) -> Section | None:
        values: Any = self._values.get("privacy")
        if not is_section(values) or values.get("kind") is None:
            self.lines.append(f"privacy.kind: missing; {SAY_WHICH}")
            return None
        variant = None if method is None or method.name == AUTO else METHODS[method.name]
        kept: dict[str, Any] = dict(values)
        if method is not None and kept["kind"] == "dp":
            kept = self._without_strange_keys(kept, variant)
        return self._kind_of_privacy(kept, variant)

    def _kind_of_privacy(self, values: dict[str, Any], variant: Variant | None) -> Section | None:
        found = privacy_kind(values, variant)
        if found is None:
            self.lines.append(wrong("privacy.kind", values.get("kind"), '"none", "dp"'))
            return None
        return self._validated("privacy", found, values)

    def _without_strange_keys(self, values: dict[str, Any], variant: Variant | None) -> dict[str, Any]:
        """Keys that say how another method spreads its budget are refused with that method's name."""
        own = {setting.key for setting in spending_settings(variant)}
        for other in METHODS:
            for setting in spending_settings(other):
                if setting.key in values and setting.key not in own:
                    self.lines.append(
                        f'privacy.{setting.key}: only for method.name = "{other.name}"; leave it out'
                    )
                    del values[setting.key]
        return values

    def _validated(self, name: str, model: type[Section], values: Mapping[str, Any]) -> Section | None:
        try:
            return model.model_validate(dict(values), context={"folder": self._folder})
        except ValidationError as error:
            self.lines += error_lines(name, model, error)
            return None
