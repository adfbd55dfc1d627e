"""All attacks of the audit: every registered mechanism at 1 and 10 updates, by itself and in whole methods.

The registries are walked, so parts from other packages are attacked as well. The ε and δ are chosen for what
can be measured: a bound of ε = 1 at δ = 1e-5 shows in one run of thousands, and would need millions of them.
A mechanism that is wrong at one budget is wrong at others.
"""

from __future__ import annotations

from collections.abc import Iterator

from flockwise.audit.bounds import Attack
from flockwise.audit.gate import GateAttack, along_axis, along_diagonal, opposite_samples, secure
from flockwise.audit.methods import (
    DescentAttack,
    LocalDPAttack,
    ReleaseOnceAttack,
    lone_opposites,
    noisy_gradients,
    opposite_targets,
    present_or_zero,
)
from flockwise.audit.sums import SumAttack, far_and_opposite
from flockwise.audit.support import (
    SupportAttack,
    numpy_laplace_misfits,
    philox_gaussian_misfits,
    philox_laplace_misfits,
)
from flockwise.method import WarmStart
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS, Mechanism
from flockwise.privacy.plan import Plan
from flockwise.release import STATISTICS

DIMENSION = 4
AXIS, DIAGONAL = along_axis(DIMENSION), along_diagonal(DIMENSION)
# The more dimensions K-norm noise has, the seldomer it points where the shift goes.
PLANE = along_axis(2)
PURE, LOOSE = Budget(1.0), Budget(1.0, 0.01)
# Where a run takes long there are few, and few runs measure a larger ε better.
LARGER_PURE, LARGE = Budget(2.0), Budget(3.0, 0.01)


def every_attack(*, with_secure_noise: bool = True) -> list[Attack]:
    """In the order of the table. Secure noise needs its extra."""
    return [*_simulated(), *(_secure() if with_secure_noise else ()), *_descents(), *_releases(), *_sums()]


def tightest(kind: type[Mechanism], budget: Budget, updates: int, *, on_grid: bool = False) -> str:
    """Of the accountants that are proven for a mechanism, the one with the least noise."""
    proven = kind.grid_accountants if on_grid else kind.accountants

    def noise(accountant: str) -> float:
        plan = Plan.fitting(budget, kind.name, updates, accountant=accountant, on_grid=on_grid)
        return plan.multipliers[0]

    return min(proven, key=noise)


def _simulated() -> Iterator[Attack]:
    """Mechanisms with simulated noise, through the gate."""
    pair, diagonal = opposite_samples(PLANE), opposite_samples(DIAGONAL)
    for kind in MECHANISMS:
        budget, runs = (PURE, 12_000) if kind.is_pure else (LOOSE, 50_000)
        larger = LARGER_PURE if kind.is_pure else LARGE
        yield GateAttack(kind.name, budget, runs, kind.name, None, pair)
        yield GateAttack(kind.name, LARGE, 3_000, kind.name, tightest(kind, LARGE, 10), pair, updates=10)
        yield GateAttack(f"{kind.name}, diagonal", larger, 6_000, kind.name, None, diagonal)


def _secure() -> Iterator[Attack]:
    """What real agents use: exact integer sums and integer noise."""

    def attack(name: str, budget: Budget, runs: int, kind: type[Mechanism], updates: int = 1) -> GateAttack:
        pair = opposite_samples(DIAGONAL if "clipping" in name else AXIS)
        accountant = None if budget.delta == 0 else tightest(kind, budget, updates, on_grid=True)
        return GateAttack(
            name, budget, runs, kind.name, accountant, pair, secure, on_grid=True, updates=updates
        )

    for kind in MECHANISMS:
        if kind.grid_accountants:
            budget, runs = (PURE, 6_000) if kind.is_pure else (LOOSE, 10_000)
            yield attack(f"secure {kind.name}", budget, runs, kind)
            yield attack(f"secure {kind.name}", LARGE, 1_000, kind, 10)
    yield attack("secure l1 clipping", LARGER_PURE, 6_000, MECHANISMS["laplace"])
    yield GateAttack(
        "agent, secure gaussian",
        LARGE,
        1_000,
        "gaussian",
        "zcdp",
        lone_opposites(AXIS),
        secure,
        on_grid=True,
        observe=noisy_gradients,
        updates=10,
    )
    of_laplace, of_gaussian = (numpy_laplace_misfits, philox_laplace_misfits), (philox_gaussian_misfits,)
    pair = opposite_samples(AXIS)
    yield SupportAttack("support of integer noise, l1", PURE, 1_500, "laplace", pair, of_laplace)
    yield SupportAttack("support of integer noise, l2", LOOSE, 1_500, "gaussian", pair, of_gaussian)


def _descents() -> Iterator[Attack]:
    """Private coordinate descent in the compiled engine."""
    pair = opposite_targets(AXIS)
    for updates, runs in ((1, 50_000), (10, 20_000)):
        for kind in MECHANISMS:
            name, accountant = f"descent, {kind.name}", tightest(kind, LOOSE, updates)
            yield DescentAttack(name, LOOSE, runs, kind.name, accountant, pair, updates=updates)
    diagonal, present = opposite_targets(DIAGONAL), present_or_zero(AXIS)
    yield DescentAttack("descent, l1 clipping", LARGER_PURE, 50_000, "laplace", "basic", diagonal)
    yield DescentAttack("descent, sample or zero", LOOSE, 20_000, "gaussian", "gdp", present, updates=10)
    warm = WarmStart(l2=10.0, width=1.0, share=0.5, tradeoff=None)
    yield DescentAttack("descent, warm start", LOOSE, 50_000, "gaussian", "gdp", pair, warm_start=warm)
    # Along the diagonal the model moves farther in L1 than in L2.
    laplace = "descent, warm start, laplace"
    yield DescentAttack(laplace, LOOSE, 50_000, "laplace", "theorem1", diagonal, warm_start=warm)


def _releases() -> Iterator[Attack]:
    """Release once, and the baseline that perturbs every sample."""
    for kind in STATISTICS:
        yield ReleaseOnceAttack(f"release once, {kind.name}", LOOSE, 50_000, kind(), AXIS)
    yield LocalDPAttack("local dp", LOOSE, 25_000, AXIS)


def _sums() -> Iterator[Attack]:
    """Sums over all agents, as a coalition sees them."""
    pair = far_and_opposite(PLANE)
    yield SumAttack("sums, second moments", LOOSE, 30_000, "default", pair)
    yield SumAttack("sums, a smaller budget", LOOSE, 10_000, "default", pair, others=LARGE)
    for spread in ("number", "matrix"):
        yield SumAttack(f"sums, and a {spread}", LARGE, 30_000, spread, pair, updates=2)
    yield SumAttack("sums, and two numbers", LARGE, 30_000, "numbers", pair, updates=3)
    far_means = far_and_opposite(PLANE, other_targets=1.0)
    yield SumAttack("sums, and a matrix, far means", LARGE, 30_000, "matrix", far_means, updates=2)
