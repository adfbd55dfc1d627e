"""Private coordinate descent, Eq. (6): how much each agent may give away, and what a private run refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import numpy as np

from flockwise.arrays import Floats
from flockwise.checks import Choice, Configured, Count, Key, Positive, ShareAboveZero, check_fields
from flockwise.errors import PrivacyError
from flockwise.method.rules import DescentNoise
from flockwise.method.start import WarmStart
from flockwise.objective import Objective, Problem, gradient_bound
from flockwise.objective.losses import loss_name
from flockwise.privacy.accounting import ACCOUNTANTS, default_accountant
from flockwise.privacy.allocation import ADDS_EPSILONS, exponent_for, late_heavy_by_own_clock, uniform
from flockwise.privacy.budget import Budgets, least_delta
from flockwise.privacy.mechanisms import MECHANISMS, USUAL_MECHANISM, accountants_of
from flockwise.privacy.plan import tail_start
from flockwise.privacy.schedule import Schedule
from flockwise.release.statistic import Misfit

# Of the largest gradient that a sample can have, where no clip is given. Few samples come near to it, while
# all the noise is meant for it: on generated instances of the paper's task (20 features, ε = 1) results are
# best, and change little, from 1/8 to 1/4, and with all of it agents do worse than alone.
CLIP_SHARE: Final = 0.25


@dataclass(frozen=True)
class PrivateUpdates:
    """A budget for `updates` releases of a noisy mean gradient; its fields are the keys of [privacy].

    budgets: (ε, δ), one for all agents or one each.
    clip: bound on the gradient of one sample, in the norm of the noise (L2, for Laplace L1); by default a
        quarter of the largest gradient that public bounds allow.
    accountant: by default the tightest that is proven for the noise.
    allocation: how the budget is spread: "uniform"; "late", more for later updates, which needs
        `contraction`, what is left of the error after one update of each agent; or the relative ε of each
        update (flockwise.privacy.allocation).
    models: what a run shows of all that an agent released: the "tail", the mean of the later half of its
        models, which has less noise, or the "last" one.
    """

    budgets: Annotated[Budgets, Configured(None)]
    updates: Annotated[Count, Configured(None)]
    clip: Annotated[Positive | None, Key("clip_norm")] = None
    mechanism: Annotated[str, Choice(MECHANISMS)] = USUAL_MECHANISM
    accountant: Annotated[str | None, Choice(ACCOUNTANTS)] = None
    allocation: Annotated[
        Literal["uniform", "late"] | Sequence[float], Configured(Literal["uniform", "late"])
    ] = "uniform"
    contraction: ShareAboveZero | None = None
    models: Literal["tail", "last"] = "tail"

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)
        _ = MECHANISMS[self.mechanism]
        if not isinstance(self.allocation, str) and len(self.allocation) != self.updates:
            raise PrivacyError(
                f"allocation must have one number per update, got {len(self.allocation)} for "
                f"updates={self.updates}"
            )

    def misfits(self, objective: Objective, start: WarmStart | None = None) -> Iterator[Misfit]:
        """What does not fit the objective, or within itself."""
        if objective.feature_bound is None:
            yield Misfit(
                "objective.feature_bound",
                'missing; private "cd" takes its step sizes from a public bound on the length of every '
                "sample: taken from the data, a released step would leak them",
            )
        if self.clip is None and math.isinf(objective.loss.slope_bound("l2")):
            yield Misfit(
                "privacy.clip_norm",
                f'missing; loss = "{loss_name(objective.loss)}" does not bound the gradient of a sample: '
                'give a bound to clip it to, or use loss = "huber"',
            )
        yield from self._in_accounting(start)

    def _in_accounting(self, start: WarmStart | None) -> Iterator[Misfit]:
        proven = accountants_of(self.mechanism)
        if self.accountant is not None and self.accountant not in proven:
            allowed = ", ".join(f'"{name}"' for name in proven)
            yield Misfit(
                "privacy.accountant",
                f'got "{self.accountant}"; allowed for mechanism = "{self.mechanism}": {allowed}',
            )
        named = None if self.accountant is None else ACCOUNTANTS[self.accountant]
        equal_only = named is not None and named.equal_steps_only
        if equal_only and start is not None:
            yield Misfit(
                "privacy.accountant",
                f'got "{self.accountant}"; it composes equal releases only, and that of the start costs less '
                'than an update: use "theorem1"',
            )
        if self.allocation == "late":
            if equal_only:
                yield Misfit(
                    "privacy.accountant",
                    f'got "{self.accountant}"; it composes equal updates only: use allocation = "uniform", '
                    'or "theorem1"',
                )
            if self.contraction is None:
                yield Misfit(
                    "privacy.contraction",
                    'missing; allocation = "late" needs what is left of the error after one update of each '
                    "agent, a number above 0 and at most 1",
                )
        elif self.contraction is not None:
            yield Misfit("privacy.contraction", 'only for allocation = "late"; leave it out')

    def clip_for(self, problem: Problem) -> float:
        """The clip that is given, or the default: public, as it looks at bounds alone."""
        if self.clip is not None:
            return self.clip
        return usual_clip(problem.objective, self.mechanism, problem.population.n_features)

    def costs(self) -> tuple[float, ...]:
        """The relative ε of each update."""
        if self.allocation == "uniform":
            return uniform(self.updates)
        if not isinstance(self.allocation, str):
            return tuple(self.allocation)
        assert self.contraction is not None
        try:
            return late_heavy_by_own_clock(self.updates, self.contraction, self._exponent)
        except PrivacyError as error:
            raise PrivacyError(f"privacy.contraction: got {self.contraction}; {error}") from None

    @property
    def _exponent(self) -> float:
        delta = least_delta(self.budgets)
        return exponent_for(self.accountant or default_accountant(self.mechanism, delta), delta)

    @property
    def _adds_epsilons(self) -> bool:
        """Whether the ε of releases add up, and not their squares."""
        return self._exponent == ADDS_EPSILONS

    def noise(self, problem: Problem, start: WarmStart | None = None) -> DescentNoise:
        """Everyone's releases, that of a released start included."""
        costs = self.costs()
        before = () if start is None else (start.cost(costs, adds_epsilons=self._adds_epsilons),)
        counts, clip = problem.population.sample_counts, self.clip_for(problem)
        return DescentNoise(
            Schedule.fitting(
                self.budgets,
                problem.n_agents,
                self.mechanism,
                (*before, *costs),
                accountant=self.accountant,
            ),
            clip,
            problem.dimension,
            np.where(counts > 0, 2 * clip / np.maximum(counts, 1), 0.0),
            None if start is None else start.sensitivities(problem, self.mechanism),
            self.models,
        )

    def words(self, problem: Problem, start: WarmStart | None = None) -> str:
        """Its noise, as guarantees name it."""
        clip = self.clip_for(problem)
        updates = f"{self.mechanism} noise on mean gradients clipped at {clip:g} a sample"
        return updates if start is None else f"{start.words(self.mechanism)}, {updates}"


def tail_noise_variances(step_sizes: Floats, pulls: Floats, stds: Floats, first: int | None = None) -> Floats:
    """Variance per coordinate that the noise leaves in each agent's average of its later models; public.

    stds: of one coordinate of the noisy mean gradients, by agent and update. first: the update from which on
    is averaged, by default that of the tail.

    An update takes (1 − α) of the model along and adds α·μc_i times its noise, so the noise of
    update u counts α·μc_i·(1 − α)^(t − u) in model t. What comes back from neighbors is left out.
    """
    keep, gains = 1 - step_sizes, step_sizes * pulls
    n_updates = stds.shape[1]
    first = tail_start(n_updates) if first is None else first
    # Σ over t from max(u, first) to the last of keep^(t − u), for one u after the other.
    reach, total = np.zeros(len(keep)), np.zeros(len(keep))
    for update in reversed(range(n_updates)):
        reach = keep * reach + (update >= first)
        total += (gains * reach * stds[:, update]) ** 2
    return total / (n_updates - first) ** 2


def usual_clip(objective: Objective, mechanism: str, n_features: int) -> float:
    """The clip where none is given: public, as it looks at bounds alone."""
    bound, norm = objective.feature_bound, MECHANISMS[mechanism].norm
    assert bound is not None
    # ‖x‖₁ ≤ √p·‖x‖₂.
    stretch = math.sqrt(n_features) if norm == "l1" else 1.0
    return CLIP_SHARE * gradient_bound(objective.loss, stretch * bound, norm)
