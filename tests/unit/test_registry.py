"""Parts are registered under all their names or under none."""

import pytest

from flockwise.errors import ConfigError
from flockwise.registry import Registry


class Ours:
    names = ("taken",)


class Theirs:
    names = ("free", "taken")


def test_a_part_with_one_name_that_is_taken_is_not_registered_at_all():
    registry = Registry("part", entries=lambda part: [(name, part) for name in part.names])
    registry.register(Ours)
    with pytest.raises(ConfigError, match="a part named 'taken' already"):
        registry.register(Theirs)
    assert registry.names == ("taken",)
