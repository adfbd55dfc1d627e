"""The packages of real agents stay small, and their classes do not change each other's methods."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import flockwise

ROOMS = ("net", "deploy", "runtime")


@pytest.mark.parametrize("room", ROOMS)
def test_no_package_has_more_than_20_modules(room):
    folder = Path(flockwise.__path__[0]) / room
    modules = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
    assert 5 < len(modules) <= 20


@pytest.mark.parametrize("room", ROOMS)
def test_no_concrete_method_is_overridden(room):
    package = importlib.import_module(f"flockwise.{room}")
    found = set()
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name and overridden(kind):
                found.add(kind.__name__)
    assert not found


def overridden(kind):
    """Methods and properties of this class that replace those of a class of ours."""
    own = {name for name, what in vars(kind).items() if is_code(what) and not name.startswith("__")}
    bases = [one for one in kind.__mro__[1:] if one.__module__.startswith("flockwise.")]
    concrete = [one for one in bases if not getattr(one, "_is_protocol", False)]
    return [
        name
        for name in own
        for base in concrete
        if name in vars(base) and not getattr(vars(base)[name], "__isabstractmethod__", False)
    ]


def is_code(what):
    return inspect.isfunction(what) or isinstance(what, property | classmethod | staticmethod)


def test_an_overridden_method_is_seen():
    class Base:
        def act(self): ...

    class Derived(Base):
        def act(self): ...

    Base.__module__ = "flockwise.toy"
    assert overridden(Derived) == ["act"]
    assert overridden(Base) == []
