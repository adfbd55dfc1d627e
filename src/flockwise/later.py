"""Names of a package that are imported when they are first used, because what makes them is large."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


def homes_in(package: str) -> dict[str, str]:
    """The names that a package imports for type checkers alone, `if TYPE_CHECKING`, and their modules."""
    tree = ast.parse(pkgutil.get_data(package, "__init__.py") or b"")
    [late] = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in late.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def names_from(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package for these names."""
    home_of = homes_in(package)

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home_of[name]), name)

    return get
