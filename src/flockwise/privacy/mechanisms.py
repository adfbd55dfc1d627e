"""Noise mechanisms: a sensitivity and the noise that hides it. One instance is one event of a plan.

What an event costs depends on the ratio of noise to sensitivity alone, its `multiplier`, so that
agents with other sensitivities share one calibration.

`grid` is the step of the integer grid on which a real agent draws (flockwise.privacy.noise); the
rounding onto it is already part of `sensitivity`. Without a grid the noise is real-valued, which
no computer draws exactly: that is for theory and simulation.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

from flockwise.errors import PrivacyError

Norm: TypeAlias = Literal["l1", "l2"]


@dataclass(frozen=True)
class _Additive:
    """Noise of a given scale on a vector that moves by at most `sensitivity` in `norm`."""

    sensitivity: float
    scale: float
    grid: float | None = None
    norm: ClassVar[Norm]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in ("sensitivity", "scale"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise PrivacyError(f"{self.name}: {field} must be positive and finite, got {value!r}")
        if self.grid is not None and not (math.isfinite(self.grid) and self.grid > 0):
            raise PrivacyError(f"{self.name}: grid must be positive and finite, got {self.grid!r}")

    @property
    def multiplier(self) -> float:
        """Scale of the noise for a sensitivity of 1."""
        return self.scale / self.sensitivity

    def with_multiplier(self, multiplier: float) -> Self:
        """The same mechanism with more or less noise."""
        return dataclasses.replace(self, scale=multiplier * self.sensitivity)


@dataclass(frozen=True)
class Laplace(_Additive):
    """Independent Laplace noise of parameter `scale` on each coordinate; sensitivity in L1.

    One event is (sensitivity/scale)-differentially private.
    """

    norm: ClassVar[Norm] = "l1"
    name: ClassVar[str] = "laplace"

    @property
    def epsilon(self) -> float:
        return 1 / self.multiplier

    @property
    def noise_std(self) -> float:
        """Standard deviation of one coordinate."""
        return math.sqrt(2) * self.scale


@dataclass(frozen=True)
class Gaussian(_Additive):
    """Independent normal noise of standard deviation `scale` on each coordinate; sensitivity in L2.

    One event is (sensitivity/scale)-Gaussian differentially private.
    """

    norm: ClassVar[Norm] = "l2"
    name: ClassVar[str] = "gaussian"

    @property
    def noise_std(self) -> float:
        """Standard deviation of one coordinate."""
        return self.scale


@dataclass(frozen=True)
class KNorm(_Additive):
    """Density ∝ exp(−‖z‖₂/scale) in `dimension` coordinates; sensitivity in L2.

    A uniform direction with a Gamma(dimension, scale) radius. One event is
    (sensitivity/scale)-differentially private; there is no integer version, so no grid.
    """

    dimension: int = 1
    norm: ClassVar[Norm] = "l2"
    name: ClassVar[str] = "knorm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is not None:
            raise PrivacyError("knorm: drawn in simulations only, so that it has no grid; use laplace")
        if self.dimension < 1:
            raise PrivacyError(f"knorm: dimension must be at least 1, got dimension={self.dimension!r}")

    @property
    def epsilon(self) -> float:
        return 1 / self.multiplier

    @property
    def noise_std(self) -> float:
        """Standard deviation of one coordinate: √(E‖z‖²/p) = scale·√(p + 1)."""
        return self.scale * math.sqrt(self.dimension + 1)


Mechanism: TypeAlias = Laplace | Gaussian | KNorm

_MECHANISMS: dict[str, type[Mechanism]] = {kind.name: kind for kind in (Laplace, Gaussian, KNorm)}


def events_to_json(events: Iterable[Mechanism]) -> list[dict[str, Any]]:
    """Events in their order, as plain values; a run of equal ones is one entry with its length."""
    return [
        {"mechanism": event.name, "times": len(list(run)), **dataclasses.asdict(event)}
        for event, run in itertools.groupby(events)
    ]


def events_from_json(entries: Iterable[dict[str, Any]]) -> tuple[Mechanism, ...]:
    """What events_to_json wrote, to the last digit."""
    return tuple(itertools.chain.from_iterable(_run_from_json(entry) for entry in entries))


def _run_from_json(entry: dict[str, Any]) -> Iterable[Mechanism]:
    try:
        fields = dict(entry)
        kind, times = _MECHANISMS[fields.pop("mechanism")], fields.pop("times")
        return itertools.repeat(kind(**fields), times)
    except (KeyError, TypeError) as error:
        raise PrivacyError(f"this is no event of a plan: {entry!r}") from error
