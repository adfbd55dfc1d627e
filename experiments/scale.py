"""How much to compute: a look at everything in two minutes, or the numbers that are reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# Instances that settings are chosen on have seeds from here on; those that are reported stay below.
TUNING_SEEDS = 1_000_000


@dataclass(frozen=True)
class Scale:
    """Quick or full."""

    quick: bool = False

    def pick(self, *, quick: T, full: T) -> T:
        """The value for this scale."""
        return quick if self.quick else full

    @property
    def instances(self) -> int:
        """Fresh instances of a synthetic task; the paper takes 5."""
        return self.pick(quick=2, full=10)

    @property
    def test_samples(self) -> int:
        """Clean test points per agent; the paper takes 100."""
        return self.pick(quick=200, full=4000)

    @property
    def seeds(self) -> range:
        """Of the instances that are reported."""
        return range(self.instances)

    def tuning_seeds(self, count: int) -> range:
        """Of instances that settings are chosen on: never among those reported."""
        return range(TUNING_SEEDS, TUNING_SEEDS + count)
