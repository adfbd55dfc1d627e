"""Noise mechanisms, each with all that is known of it: law, norm, integer version, what is proven.

One instance is one event: a sensitivity and the noise that hides it. The cost of an event depends on the
ratio of noise to sensitivity alone, its `multiplier`, so a plan holds multipliers and the gate scales them
to the sensitivity of what it is given.

`grid` is the step of the integer grid on which a real agent draws (flockwise.privacy.noise); the rounding
onto it is already part of `sensitivity`. Without a grid the noise is real-valued, which no computer draws
exactly: that is for theory and simulation.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from flockwise.arrays import Floats
from flockwise.errors import PrivacyError
from flockwise.registry import Registry

Norm: TypeAlias = Literal["l1", "l2"]

# Below this ε the terms of ε + e^(−ε) − 1 cancel to fewer digits than its series has.
_SMALL_EPSILON = 0.01


class IntegerLaw(NamedTuple):
    """How opendp draws an integer version, and the cost that it must certify."""

    measurement: str
    metric: str
    cost: float


@dataclass(frozen=True)
class Mechanism(ABC):
    """Noise of a given scale on `dimension` coordinates that move by at most `sensitivity` in `norm`.

    accountants: proven for its real-valued noise, the default first. grid_accountants: the same for its
    integer version; empty if there is none. is_pure: whether one event has δ = 0.
    """

    sensitivity: float
    scale: float
    grid: float | None = None
    dimension: int = 1
    name: ClassVar[str]
    words: ClassVar[str]
    norm: ClassVar[Norm]
    is_pure: ClassVar[bool]
    accountants: ClassVar[tuple[str, ...]]
    grid_accountants: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in ("sensitivity", "scale"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise PrivacyError(f"{self.name}: {field} must be positive and finite, got {value!r}")
        if self.grid is not None and not (math.isfinite(self.grid) and self.grid > 0):
            raise PrivacyError(f"{self.name}: grid must be positive and finite, got {self.grid!r}")
        if self.grid is not None and not self.grid_accountants:
            raise PrivacyError(f"{self.name}: it has no integer version, so no grid; use laplace or gaussian")
        if self.dimension < 1:
            raise PrivacyError(f"{self.name}: dimension must be at least 1, got dimension={self.dimension!r}")

    @property
    def multiplier(self) -> float:
        """Scale of the noise for a sensitivity of 1."""
        return self.scale / self.sensitivity

    @property
    def epsilon(self) -> float:
        """The ε of this event alone at δ = 0; on a grid the integer law has the same ratios."""
        return 1 / self.multiplier if self.is_pure else math.inf

    @property
    def mu(self) -> float:
        """The μ of Gaussian differential privacy, exact for real-valued normal noise; infinite for others."""
        return math.inf

    @property
    @abstractmethod
    def rho(self) -> float:
        """What this event costs in zero-concentrated differential privacy."""

    @property
    @abstractmethod
    def noise_std(self) -> float:
        """Standard deviation of one coordinate."""

    @abstractmethod
    def log_likelihood(self, noise: Floats) -> Floats:
        """Of each row of noise, up to a constant."""

    def privacy_curve(self, epsilons: Floats) -> Floats:
        """δ(ε) of this event alone, real-valued, for the worst shift: what `pld` composes."""
        raise PrivacyError(f"{self.name}: its privacy curve is not known, so pld cannot account it")

    @classmethod
    @abstractmethod
    def sampler(cls) -> Any:
        """Draws standard noise in simulations (flockwise.randomness.noise.Sampler)."""

    def integer_law(self) -> IntegerLaw | None:
        """How a real agent draws it; None if there is no integer version."""
        return None

    def with_multiplier(self, multiplier: float) -> Self:
        """The same mechanism with more or less noise."""
        return dataclasses.replace(self, scale=multiplier * self.sensitivity)

    @classmethod
    def check_accountant(cls, accountant: str, *, on_grid: bool = False) -> None:
        """Refuse an accountant that is not proven for this noise."""
        proven = cls.grid_accountants if on_grid else cls.accountants
        if accountant not in proven:
            where = " on a grid" if on_grid else ""
            raise PrivacyError(
                f"accountant={accountant!r} is not proven for {cls.name} noise{where}; "
                f"use {', '.join(proven) or 'gaussian or laplace noise'}"
            )


MECHANISMS: Registry[type[Mechanism]] = Registry("mechanism", PrivacyError)


@MECHANISMS.register
@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Independent normal noise of standard deviation `scale` on each coordinate; sensitivity in L2.

    One event is (sensitivity/scale)-Gaussian differentially private. zCDP: ρ = μ²/2, on a grid (discrete
    Gaussian, any dimension) as well as off it: Bun and Steinke, "Concentrated differential privacy" (TCC
    2016), Prop. 1.6; Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (NeurIPS
    2020), Thm. 4.
    """

    name: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "Gaussian noise"
    norm: ClassVar[Norm] = "l2"
    is_pure: ClassVar[bool] = False
    accountants: ClassVar[tuple[str, ...]] = ("gdp", "zcdp", "pld", "remark")
    grid_accountants: ClassVar[tuple[str, ...]] = ("zcdp",)

    @property
    def mu(self) -> float:
        return 1 / self.multiplier if self.grid is None else math.inf

    @property
    def rho(self) -> float:
        return 0.5 / self.multiplier**2

    @property
    def noise_std(self) -> float:
        return self.scale

    def log_likelihood(self, noise: Floats) -> Floats:
        return -np.square(noise).sum(axis=-1) / (2 * self.scale**2)

    def privacy_curve(self, epsilons: Floats) -> Floats:
        """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
        from scipy.special import log_ndtr, ndtr  # slow to import, and only for pld

        mu = 1 / self.multiplier
        here = ndtr(mu / 2 - epsilons / mu)
        there = np.exp(epsilons + log_ndtr(-mu / 2 - epsilons / mu))
        return (here - there).clip(0, 1)

    @classmethod
    def sampler(cls) -> Any:
        from flockwise.randomness.noise import (
            NormalSampler,  # brings a compiler, which real agents never need
        )

        return NormalSampler()

    def integer_law(self) -> IntegerLaw | None:
        return IntegerLaw("make_gaussian", "l2_distance", self.rho)


@MECHANISMS.register
@dataclass(frozen=True)
class Laplace(Mechanism):
    """Independent Laplace noise of parameter `scale` on each coordinate; sensitivity in L1.

    One event is (sensitivity/scale)-differentially private. zCDP: ρ = ε + e^(−ε) − 1 for real-valued noise
    (Harrison and Manurangsi, "Exact zCDP characterizations for fundamental differentially private
    mechanisms", FORC 2026; for vectors by the domination argument of flockwise.privacy.accounting.pld),
    ε²/2 on a grid (Bun and Steinke 2016, Prop. 1.4). Its privacy loss distribution on a grid depends on
    the grid's step, so a plan, which holds for any number of samples, does not use it there.
    """

    name: ClassVar[str] = "laplace"
    words: ClassVar[str] = "Laplace noise"
    norm: ClassVar[Norm] = "l1"
    is_pure: ClassVar[bool] = True
    accountants: ClassVar[tuple[str, ...]] = ("pld", "basic", "theorem1", "kov", "zcdp")
    grid_accountants: ClassVar[tuple[str, ...]] = ("basic", "theorem1", "kov", "zcdp")

    @property
    def rho(self) -> float:
        return _rho_of_laplace(self.epsilon) if self.grid is None else self.epsilon**2 / 2

    @property
    def noise_std(self) -> float:
        return math.sqrt(2) * self.scale

    def log_likelihood(self, noise: Floats) -> Floats:
        return -np.abs(noise).sum(axis=-1) / self.scale

    def privacy_curve(self, epsilons: Floats) -> Floats:
        """1 − e^((ε − ε₀)/2) up to ε₀ = sensitivity/scale, and 1 − e^ε from −ε₀ down."""
        return -np.expm1(np.minimum(epsilons, (epsilons - 1 / self.multiplier) / 2)).clip(None, 0)

    @classmethod
    def sampler(cls) -> Any:
        from flockwise.randomness.noise import LaplaceSampler

        return LaplaceSampler()

    def integer_law(self) -> IntegerLaw | None:
        return IntegerLaw("make_laplace", "l1_distance", self.epsilon)


@MECHANISMS.register
@dataclass(frozen=True)
class KNorm(Mechanism):
    """Density ∝ exp(−‖z‖₂/scale) in `dimension` coordinates; sensitivity in L2.

    A uniform direction with a Gamma(dimension, scale) radius. One event is
    (sensitivity/scale)-differentially private, and zCDP with ρ = ε²/2 (Bun and Steinke 2016, Prop. 1.4).
    There is no integer version.
    """

    name: ClassVar[str] = "knorm"
    words: ClassVar[str] = "K-norm noise"
    norm: ClassVar[Norm] = "l2"
    is_pure: ClassVar[bool] = True
    accountants: ClassVar[tuple[str, ...]] = ("basic", "theorem1", "kov", "zcdp")

    @property
    def rho(self) -> float:
        return self.epsilon**2 / 2

    @property
    def noise_std(self) -> float:
        """√(E‖z‖²/p) = scale·√(p + 1)."""
        return self.scale * math.sqrt(self.dimension + 1)

    def log_likelihood(self, noise: Floats) -> Floats:
        return -np.linalg.norm(noise, axis=-1) / self.scale

    @classmethod
    def sampler(cls) -> Any:
        from flockwise.randomness.noise import KNormSampler

        return KNormSampler()


def usual_mechanism(norm: Norm, *, pure: bool = False) -> str:
    """The mechanism of this norm where nobody has chosen one. pure: with δ = 0 for one event."""
    return next(kind.name for kind in MECHANISMS if kind.norm == norm and (kind.is_pure or not pure))


USUAL_MECHANISM: Final = usual_mechanism("l2")


def _rho_of_laplace(epsilon: float) -> float:
    """ε + e^(−ε) − 1; for small ε by ε²/2! − ε³/3! + …, which is no smaller when a positive term ends it."""
    if epsilon >= _SMALL_EPSILON:
        return epsilon + math.expm1(-epsilon)
    x = epsilon
    return x**2 * (1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x / 720))))


def accountants_of(mechanism: str, *, on_grid: bool = False) -> tuple[str, ...]:
    """The accountants that are proven for this noise, real-valued or on a grid."""
    kind = MECHANISMS[mechanism]
    return kind.grid_accountants if on_grid else kind.accountants


def event_to_json(event: Mechanism) -> str:
    """An event as text."""
    return json.dumps({"mechanism": event.name, **dataclasses.asdict(event)})


def event_from_json(text: str) -> Mechanism:
    """What event_to_json wrote, to the last digit."""
    try:
        fields = json.loads(text)
        return MECHANISMS[fields.pop("mechanism")](**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PrivacyError(f"unknown event in the ledger: {text}") from error
