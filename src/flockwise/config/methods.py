"""The [method] and [privacy] sections → the method, with everyone's budget where it is private."""

from __future__ import annotations

import math

from flockwise.config.budgets import budgets_of, smallest_delta
from flockwise.config.schema import Config
from flockwise.config.sections import (
    AdmmMethod,
    BaselineMethod,
    DescentMethod,
    DifferentialPrivacy,
    LowPassMethod,
    Objective,
    ReleaseOnceMethod,
)
from flockwise.engine.run import Method
from flockwise.errors import ConfigError, PrivacyError
from flockwise.method import (
    CoordinateDescent,
    Global,
    GossipADMM,
    Local,
    LowPass,
    ModelPropagation,
    PrivateUpdates,
    ReleaseOnce,
)
from flockwise.method.objective_perturbation import ObjectivePerturbation
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.method.point_mean import PointMean
from flockwise.method.release_once import Kind
from flockwise.objective import Huber, Problem, gradient_bound
from flockwise.privacy.allocation import exponent_for, late_heavy_by_own_clock
from flockwise.privacy.noise_plan import unit_event

# Of the largest gradient that a sample can have. Few samples come near to it, while all the noise is
# meant for it: on generated instances of the paper's task (20 features, ε = 1) results are best, and
# change little, from 1/8 to 1/4, and with all of it agents do worse than alone.
CLIP_SHARE = 0.25


def build_method(config: Config, problem: Problem) -> Method:
    """The method as configured; the sections are known to fit each other."""
    section, privacy = config.method, config.privacy
    match section:
        case BaselineMethod():
            return Local() if section.name == "local" else Global()
        case DescentMethod():
            if isinstance(privacy, DifferentialPrivacy):
                return CoordinateDescent(privacy=_private_updates(privacy, section, problem))
            return CoordinateDescent(start=section.start)
        case AdmmMethod():
            return GossipADMM(
                penalty=section.penalty, gradient_steps=section.gradient_steps, start=section.start
            )
        case ReleaseOnceMethod():
            assert isinstance(privacy, DifferentialPrivacy)
            kind = _released(section, config.objective)
            return ReleaseOnce(budgets_of(privacy, problem), kind, noise_seed=config.seed)
        case LowPassMethod():
            assert isinstance(privacy, DifferentialPrivacy)
            kind = _smoothed(section, config.objective)
            return LowPass(budgets_of(privacy, problem), kind, noise_seed=config.seed)
        case _:
            return ModelPropagation()


def _private_updates(
    privacy: DifferentialPrivacy, section: DescentMethod, problem: Problem
) -> PrivateUpdates:
    assert section.updates is not None
    budgets = budgets_of(privacy, problem)
    delta = smallest_delta(budgets)
    accountant = privacy.accountant or _default_accountant(privacy.mechanism, delta)
    return PrivateUpdates(
        budgets=budgets,
        updates=section.updates,
        clip=privacy.clip_norm or _default_clip(privacy, problem),
        mechanism=privacy.mechanism,
        accountant=accountant,
        costs=_costs(privacy, section.updates, exponent_for(accountant, delta)),
    )


def _default_accountant(mechanism: str, delta: float) -> str:
    """The tightest for normal and Laplace noise; basic where δ is 0 for anyone, and for K-norm noise."""
    if mechanism == "gaussian":
        return "gdp"
    return "pld" if mechanism == "laplace" and delta > 0 else "basic"


def _default_clip(privacy: DifferentialPrivacy, problem: Problem) -> float:
    """A share of the largest gradient that a sample can have: public, as it looks at bounds alone."""
    assert problem.feature_bound is not None
    norm = unit_event(privacy.mechanism, problem.dimension).norm
    # ‖x‖₁ ≤ √p·‖x‖₂.
    stretch = math.sqrt(problem.population.n_features) if norm == "l1" else 1.0
    return CLIP_SHARE * gradient_bound(problem.loss, stretch * problem.feature_bound, norm)


def _costs(privacy: DifferentialPrivacy, updates: int, exponent: float) -> tuple[float, ...] | None:
    if privacy.allocation == "uniform":
        return None
    assert privacy.contraction is not None
    try:
        return late_heavy_by_own_clock(updates, privacy.contraction, exponent)
    except PrivacyError as error:
        raise ConfigError(f"privacy.contraction: got {privacy.contraction}; {error}") from None


def _smoothed(section: LowPassMethod, objective: Objective) -> PointMean | OutputPerturbation:
    if section.kind == "mean":
        return PointMean()
    assert objective.l2 is not None
    assert objective.feature_bound is not None
    loss = None if section.width is None else Huber(section.width)
    return OutputPerturbation(l2=objective.l2, feature_bound=objective.feature_bound, loss=loss)


def _released(section: ReleaseOnceMethod, objective: Objective) -> Kind:
    if section.kind == "mean":
        return PointMean()
    assert objective.l2 is not None
    assert objective.feature_bound is not None
    perturbation = OutputPerturbation if section.kind == "output" else ObjectivePerturbation
    return perturbation(l2=objective.l2, feature_bound=objective.feature_bound)
