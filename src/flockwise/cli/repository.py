"""Experiments and benchmarks: kept in the repository beside the package, and not installed with it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from flockwise.errors import FlockwiseError

REPOSITORY = Path(__file__).resolve().parents[3]


def load(module: str) -> Any:
    """A module of the clone that the package runs from."""
    folder = module.partition(".")[0]
    if not (REPOSITORY / folder / "__init__.py").is_file():
        raise FlockwiseError(f"the {folder} are kept in the repository: run this command from a clone of it")
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    return importlib.import_module(module)
