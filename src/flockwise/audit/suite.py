"""All attacks of the audit: every mechanism, at 1 and at 10 updates, by itself and in the whole pipeline.

The ε and δ are chosen for what can be measured: a bound of ε = 1 at δ = 1e-5 shows in one run of thousands,
and would need millions of them. What a mechanism does wrong at one budget it does wrong at others.
"""

from __future__ import annotations

from collections.abc import Iterator

from flockwise.audit.agent import AgentAttack
from flockwise.audit.descent import DescentAttack
from flockwise.audit.local_dp import LocalDPAttack
from flockwise.audit.release_once import ReleaseOnceAttack
from flockwise.audit.samples import lone_opposites, opposite_labels, opposite_targets, present_or_zero
from flockwise.privacy.audit import Attack, GateAttack, SupportAttack
from flockwise.privacy.audit.gate import along_axis, along_diagonal, secure
from flockwise.privacy.budget import Budget
from flockwise.release import ObjectivePerturbation, OutputPerturbation, PointMean

DIMENSION = 4
AXIS, DIAGONAL = along_axis(DIMENSION), along_diagonal(DIMENSION)
# The more dimensions K-norm noise has, the seldomer it points where the shift goes.
PLANE = along_axis(2)
PURE, LOOSE = Budget(1.0), Budget(1.0, 0.01)
# Where a run takes long there are few, and few runs measure a larger ε better.
LARGER_PURE, LARGE = Budget(2.0), Budget(3.0, 0.01)


def every_attack(*, with_secure_noise: bool = True) -> list[Attack]:
    """In the order of the table. Secure noise needs its extra."""
    return [*_simulated(), *(_secure() if with_secure_noise else ()), *_descents(), *_releases()]


def _simulated() -> Iterator[Attack]:
    """Mechanisms with simulated noise, through the gate."""
    yield GateAttack("laplace", "laplace", PURE, "basic", 1, 12_000, AXIS)
    yield GateAttack("l1 clipping", "laplace", LARGER_PURE, "basic", 1, 6_000, DIAGONAL)
    yield GateAttack("laplace", "laplace", LARGE, "pld", 10, 3_000, AXIS)
    yield GateAttack("gaussian", "gaussian", LOOSE, "gdp", 1, 50_000, AXIS)
    yield GateAttack("gaussian", "gaussian", LARGE, "gdp", 10, 3_000, AXIS)
    yield GateAttack("knorm", "knorm", PURE, "basic", 1, 12_000, PLANE)
    yield GateAttack("knorm", "knorm", LARGE, "kov", 10, 3_000, PLANE)


def _secure() -> Iterator[Attack]:
    """What real agents use: exact integer sums and integer noise."""

    def attack(
        name: str, mechanism: str, budget: Budget, accountant: str, updates: int, runs: int
    ) -> GateAttack:
        direction = DIAGONAL if "clipping" in name else AXIS
        return GateAttack(name, mechanism, budget, accountant, updates, runs, direction, secure, on_grid=True)

    yield attack("secure laplace", "laplace", PURE, "basic", 1, 6_000)
    yield attack("secure l1 clipping", "laplace", LARGER_PURE, "basic", 1, 6_000)
    yield attack("secure laplace", "laplace", LARGE, "kov", 10, 1_000)
    yield attack("secure gaussian", "gaussian", LOOSE, "zcdp", 1, 10_000)
    yield attack("secure gaussian", "gaussian", LARGE, "zcdp", 10, 1_000)
    yield AgentAttack("agent, secure gaussian", "gaussian", LARGE, "zcdp", 10, 1_000, lone_opposites(AXIS))
    yield SupportAttack("support of integer noise, l1", "laplace", PURE, "basic", 1_500, AXIS)
    yield SupportAttack("support of integer noise, l2", "gaussian", LOOSE, "zcdp", 1_500, AXIS)


def _descents() -> Iterator[Attack]:
    """Private coordinate descent in the compiled engine."""
    opposite, diagonal = opposite_targets(AXIS), opposite_targets(DIAGONAL)
    for updates, runs in ((1, 50_000), (10, 20_000)):
        yield DescentAttack("descent, laplace", "laplace", LOOSE, "pld", updates, runs, opposite)
        yield DescentAttack("descent, gaussian", "gaussian", LOOSE, "gdp", updates, runs, opposite)
        yield DescentAttack("descent, knorm", "knorm", LOOSE, "kov", updates, runs, opposite)
    yield DescentAttack("descent, l1 clipping", "laplace", LARGER_PURE, "basic", 1, 50_000, diagonal)
    yield DescentAttack("descent, point or zero", "gaussian", LOOSE, "gdp", 10, 20_000, present_or_zero(AXIS))
    warm = OutputPerturbation(width=1.0, l2=10.0)
    yield DescentAttack("descent, warm start", "gaussian", LOOSE, "gdp", 1, 50_000, opposite, warm_start=warm)


def _releases() -> Iterator[Attack]:
    """Release once, and the baseline that perturbs every point."""
    labels = opposite_labels(AXIS)
    yield ReleaseOnceAttack("release once, mean", PointMean(), LOOSE, 50_000, labels)
    yield ReleaseOnceAttack("release once, output", OutputPerturbation(l2=10.0), LOOSE, 30_000, labels)
    yield ReleaseOnceAttack("release once, objective", ObjectivePerturbation(l2=10.0), LOOSE, 50_000, labels)
    yield LocalDPAttack("local dp", LOOSE, 25_000, AXIS)
