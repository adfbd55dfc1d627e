"""The configuration as one tree of validated values."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flockwise.config.fields import Section, Seed
from flockwise.config.misfits import misfits
from flockwise.config.network import Network
from flockwise.config.problems import problem_lines
from flockwise.config.sections import Data, Engine, Graph, Method, Objective, PlannedMethod, Privacy
from flockwise.errors import ConfigError


class Config(Section):
    """What `flockwise simulate` runs: data, graph, objective, method, privacy and engine."""

    seed: Seed = 0
    data: Data
    graph: Graph
    objective: Objective = Objective()
    method: Method = PlannedMethod(name="auto")
    privacy: Privacy
    engine: Engine = Engine()
    network: Network = Network()

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
        try:
            config = cls.model_validate(dict(values), context={"folder": Path(folder)})
        except ValidationError as error:
            raise ConfigError("\n".join(problem_lines(cls, error))) from None
        lines = misfits(
            config.data, config.graph, config.objective, config.method, config.privacy, config.engine
        )
        if lines:
            raise ConfigError("\n".join(lines))
        return config
