"""Names of a package that are imported when they are first used, because what makes them is large."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def names_from(package: str, **homes: tuple[str, ...]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: which of its modules has which names."""
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home_of[name]), name)

    return get
