"""The methods and settings that a plan compares: private ones, and learning alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from flockwise.method import CoordinateDescent, Local, PrivateUpdates, ReleaseOnce
from flockwise.method.lowpass import LowPass
from flockwise.method.output_perturbation import OutputPerturbation
from flockwise.method.point_mean import PointMean
from flockwise.objective import Huber, Loss, Problem, gradient_bound
from flockwise.planner.facts import PublicFacts

PrivateMethod: TypeAlias = CoordinateDescent | ReleaseOnce | LowPass

UPDATES: Final = (5, 20)
# Of the largest gradient that a sample can have.
CLIP_SHARES: Final = (0.125, 0.25)
# Where none is given; the best one without noise on the paper's task, where the optimum is flat.
TRADEOFF: Final = 4.0
# Of the smoothing of what was released; it costs no privacy, and has settled by then.
SMOOTHING_UPDATES: Final = 50
# λ of a released model, in units of the curvature that its data have in one direction.
PENALTY_SHARES: Final = (0.5, 2.0)


@dataclass(frozen=True)
class Candidate:
    """A method with all its settings; it can be run on the real problem as on a twin."""

    words: str
    method: Local | PrivateMethod
    updates: int | None = None
    tradeoff: float | None = None

    @property
    def sends_nothing(self) -> bool:
        return isinstance(self.method, Local)

    @property
    def stops(self) -> dict[str, Any]:
        """When its run ends: nothing to say for a method that is computed at once."""
        return {} if self.updates is None else {"updates": self.updates}

    def problem(self, problem: Problem) -> Problem:
        """With the μ that belongs to it."""
        return problem if self.tradeoff is None else problem.with_tradeoff(self.tradeoff)

    def seeded(self, seed: int) -> Local | PrivateMethod:
        """The method with its simulated noise from this seed; that of descent comes from the run's own."""
        if isinstance(self.method, Local | CoordinateDescent):
            return self.method
        return replace(self.method, noise_seed=seed)


def candidates(facts: PublicFacts) -> tuple[Candidate, ...]:
    """What can be run with these facts, the same for any agents that share them, in a fixed order."""
    return (Candidate("local", Local()), *_released_means(facts), *_released_models(facts), *_descents(facts))


def _released_means(facts: PublicFacts) -> Iterator[Candidate]:
    has_two_classes = facts.loss.metric == "accuracy" and facts.loss.outputs == 1
    if has_two_classes and facts.least_delta > 0:
        yield Candidate("lowpass, means", LowPass(facts.budgets, PointMean()))
        yield Candidate(
            "release once, means", ReleaseOnce(facts.budgets, PointMean()), updates=SMOOTHING_UPDATES
        )


def _released_models(facts: PublicFacts) -> Iterator[Candidate]:
    """For several classes and for numbers: a model, which needs a bound on features and on slopes."""
    loss = _bounded_loss(facts)
    is_about_means = facts.loss.metric == "accuracy" and facts.loss.outputs == 1
    if loss is None or is_about_means or facts.feature_bound is None or facts.least_delta == 0:
        return
    curvature = loss.curvature * facts.feature_bound**2 / facts.n_features
    for share in PENALTY_SHARES:
        kind = OutputPerturbation(share * curvature, facts.feature_bound, loss)
        words = f"models, λ = {kind.l2:.3g}"
        if loss.metric == "rmse":
            yield Candidate(f"lowpass, {words}", LowPass(facts.budgets, kind))
        yield Candidate(
            f"release once, {words}", ReleaseOnce(facts.budgets, kind), SMOOTHING_UPDATES, _tradeoff(facts)
        )


def _descents(facts: PublicFacts) -> Iterator[Candidate]:
    loss = _bounded_loss(facts)
    if loss is None or facts.feature_bound is None:
        return
    mechanism, accountant = ("gaussian", "gdp") if facts.least_delta > 0 else ("knorm", "basic")
    largest = gradient_bound(loss, facts.feature_bound, "l2")
    for updates in UPDATES:
        for share in CLIP_SHARES:
            privacy = PrivateUpdates(facts.budgets, updates, share * largest, mechanism, accountant)
            words = f"cd, {updates} updates, clip {privacy.clip:.3g}"
            yield Candidate(words, CoordinateDescent(privacy=privacy), updates, _tradeoff(facts))


def _bounded_loss(facts: PublicFacts) -> Loss | None:
    """The loss, or for the quadratic one that with bounded slopes, if someone said how wide."""
    if facts.loss.slope_bound("l2") < float("inf"):
        return facts.loss
    return None if facts.residual_scale is None else Huber(facts.residual_scale)


def _tradeoff(facts: PublicFacts) -> float:
    return TRADEOFF if facts.tradeoff is None else facts.tradeoff
