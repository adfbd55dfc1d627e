"""A learned prior: what all agents have in common, learned from sums alone, and own models shrunken toward
it.

Without privacy this is partial pooling: a mixed model, fitted to everyone's samples (flockwise.solve.mixed).
With a budget agents add up noisy second moments that nobody can open one by one, learn a normal prior from
the totals (flockwise.protocol.prior), and finish silently on their own samples. There is no graph.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Configured, ShareBelowOne, check_fields
from flockwise.data.samples import joined
from flockwise.errors import FlockwiseWarning, PrivacyError
from flockwise.method.base import METHODS, Candidate, Prepared, PublicFacts
from flockwise.method.rules import Contributions, Edges, Outcome, Rounds, Solved, Traffic
from flockwise.objective import Logistic, Objective, Problem, Quadratic
from flockwise.objective.bounds import bounded_targets
from flockwise.objective.losses import loss_name
from flockwise.privacy.budget import Budgets
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.sums import Crowd, SumNoise, SumPlan, SumSize
from flockwise.protocol.conversation import Conversation, SumRequest
from flockwise.protocol.prior import (
    FURTHER_SHARES,
    LearnedValues,
    PriorFacts,
    Spread,
    learn_prior,
    spread_to_ask,
)
from flockwise.release.moments import TargetScale, moment_size, moment_sum, unit_features
from flockwise.release.spread import pair_weights, spread_part, spread_rows, spread_size
from flockwise.release.statistic import Misfit
from flockwise.solve.local import solve_local_models
from flockwise.solve.mixed import fit_mixed_model
from flockwise.solve.penalty import CHOSEN_ALONE
from flockwise.solve.prior import Prior, posterior_models

# The noise in the second moments against the moments themselves: from the first on a run comes with a
# warning, and above the second nothing can be learned.
MUCH_NOISE, LARGEST_NOISE = 0.15, 0.3
# Agents who differ more than is usual would be drawn to a mean that is not theirs, and nobody would know.
UNMEASURED: Final = (
    "keep the local models: this budget does not pay for a look at how far agents differ, and where that is "
    "more than usual a learned prior makes them worse"
)
PUBLIC: Final = (
    "how many samples each agent has (m_i)",
    "every agent's budget, and who takes part",
    "which features and labels there are, and their range",
    "the bounds on features and targets, the loss and the settings of the method",
)


@METHODS.register
@dataclass(frozen=True)
class LearnedPrior:
    """Partial pooling: own models, shrunken toward what all agents have in common.

    privacy: the budgets (ε, δ), one for all agents or one each; None fits a mixed model without noise.
    spread: what is asked about how agents differ: "default" (nothing), "number", "numbers" (one for
        intercepts and one for slopes), "matrix", or "auto", which compares the public noise of each answer
        with what is unknown.
    colluding, absent: the largest shares of agents that may pool what they know, or fail to deliver.

    A private run needs public bounds on features and, for regression, on targets. Its guarantee holds if
    only sums are opened. `models` are then the common model, the same for everyone; own models are never
    sent.
    """

    privacy: Annotated[Budgets | None, Configured(None)] = None
    spread: Literal["auto", "default", "number", "numbers", "matrix"] = "auto"
    colluding: ShareBelowOne = 1 / 3
    absent: ShareBelowOne = 0.1
    name = "learned_prior"
    label: ClassVar[str] = "learned prior"
    rule: ClassVar[type] = Rounds
    needs_graph: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        if self.privacy is None:
            return
        if not isinstance(objective.loss, Quadratic | Logistic):
            yield Misfit(
                "objective.loss",
                f'got "{loss_name(objective.loss)}"; a private learned prior is for loss = "quadratic" or '
                '"logistic"',
            )
        if objective.feature_bound is None:
            yield Misfit(
                "objective.feature_bound",
                "missing; what agents add up is bounded by a public bound on the length of every sample",
            )
        if isinstance(objective.loss, Quadratic) and objective.target_range is None:
            yield Misfit(
                "objective.target_range",
                "missing; what agents add up is bounded by a public range of targets",
            )

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        if self.privacy is None:
            fitted = fit_mixed_model(problem)
            return Prepared(Solved(fitted.models, prior=fitted.prior))
        return _Private(self, problem, self.privacy, seed).prepared()

    @classmethod
    def candidates(cls, facts: PublicFacts) -> Iterator[Candidate]:
        method = cls(facts.budgets)
        can_run = facts.least_delta > 0 and not any(method.misfits(facts.objective))
        if can_run and cls.reason_against(facts) is None:
            yield Candidate("learned prior", method, caution=method.caution(facts) or "")

    @classmethod
    def reason_against(cls, facts: PublicFacts) -> str | None:
        """Why a plan does not try it, where it could be run."""
        method = cls(facts.budgets)
        if facts.least_delta == 0 or any(method.misfits(facts.objective)):
            return None
        refused = method.refusal(facts)
        if refused is not None:
            return refused
        asked = _Asked(method, facts)
        return UNMEASURED if asked.spread == "default" else asked.grid_too_coarse

    def refusal(self, facts: PublicFacts) -> str | None:
        """Why a private run is not worth it, from public facts alone; None if it may be."""
        noise, n_samples = self._noise(facts)
        if noise <= LARGEST_NOISE:
            return None
        return (
            f"keep the local models: with {facts.n_features} features the noise would hide what "
            f"{n_samples:,.0f} samples have in common; {_needed(noise, n_samples, LARGEST_NOISE)}"
        )

    def caution(self, facts: PublicFacts) -> str | None:
        """What speaks against a private run that is not refused; None if nothing does."""
        noise, n_samples = self._noise(facts)
        if noise <= MUCH_NOISE:
            return None
        return (
            f"with {facts.n_features} features the noise hides much of what {n_samples:,.0f} samples have in "
            f"common; {_needed(noise, n_samples, MUCH_NOISE)} to learn it well"
        )

    def _noise(self, facts: PublicFacts) -> tuple[float, float]:
        """ρ, the noise in a sum of second moments against the moments, and N, the samples in it."""
        if self.privacy is None:
            return 0.0, math.inf
        crowd = Crowd(facts.n_agents, self.colluding, self.absent)
        plan = SumPlan.fitting(self.privacy, crowd, [1.0])
        n_samples = float(plan.weights @ facts.sample_counts)
        if n_samples == 0:
            return math.inf, n_samples
        return plan.std(1) * math.sqrt(2) * facts.n_features**1.5 / n_samples, n_samples


def _needed(noise: float, n_samples: float, largest: float) -> str:
    needed = n_samples * noise / largest
    wanted = f"{needed:,.0f} samples in all" if math.isfinite(needed) else "samples"
    return f"this budget needs about {wanted}"


class _Asked:
    """What sums are asked for, and what they cost: from public facts alone."""

    def __init__(self, method: LearnedPrior, facts: PublicFacts) -> None:
        self.facts = facts
        self.crowd = Crowd(facts.n_agents, method.colluding, method.absent)
        self.spread: Spread = self._choose() if method.spread == "auto" else method.spread

    @cached_property
    def chosen(self) -> SumPlan:
        return self.plan(self.spread)

    @cached_property
    def sizes(self) -> list[SumSize]:
        """Of all sums, in order."""
        further = spread_size(self.spread, self.facts.n_features, float(self.chosen.weights.min()))
        return [moment_size(self.facts.n_features), *[further] * (len(self.chosen.plan) - 1)]

    @cached_property
    def share_stds(self) -> tuple[NDArray[np.float64], ...]:
        """The noise in each agent's share of each sum."""
        return tuple(self.chosen.share_stds(number, size) for number, size in enumerate(self.sizes, start=1))

    @property
    def grid_too_coarse(self) -> str | None:
        """Why the noise is too small for the grid that it is drawn on; None if it is not."""
        try:
            _ = self.share_stds
        except PrivacyError as error:
            return str(error)
        return None

    def plan(self, spread: Spread) -> SumPlan:
        further = FURTHER_SHARES[spread]
        return SumPlan.fitting(self.facts.budgets, self.crowd, [1 - sum(further), *further])

    def pairs(self, spread: Spread, directions: int) -> NDArray[np.float64]:
        """The weights of agents in a further sum that looks in so many directions."""
        return pair_weights(spread, directions, self.facts.sample_counts.astype(np.float64))

    def _choose(self) -> Spread:
        """What to ask in further sums, from the public noise of each answer."""
        p, has_intercept = self.facts.n_features, self.facts.has_intercept
        noise = {
            "number": self._noise("number", 1 if has_intercept else p),
            "numbers": self._noise("numbers", max(p - 1, 1)),
            "matrix": self._noise("matrix", p),
        }
        return spread_to_ask(p, has_intercept, noise)

    def _noise(self, spread: Spread, directions: int) -> float:
        plan = self.plan(spread)
        pairs = float((plan.weights * self.pairs(spread, directions)).sum())
        return plan.std(2) / pairs if pairs > 0 else math.inf


class _Private:
    """One private run: what is public about it, and what each agent adds."""

    def __init__(self, method: LearnedPrior, problem: Problem, budgets: Budgets, seed: int) -> None:
        self.method, self.problem, self.seed, self.budgets = method, problem, seed, budgets
        self.two_classes = isinstance(problem.loss, Logistic)
        self.has_intercept = problem.population.has_intercept
        if method.spread == "numbers" and not (self.has_intercept and self.n_features > 1):
            raise PrivacyError(
                'spread="numbers" measures intercepts and slopes: give the population an intercept '
                '(with_intercept()) beside its features, or leave spread="auto"'
            )
        self.targets = TargetScale(problem.objective, self.has_intercept)
        self.public = PublicFacts.of(problem, budgets)
        self.asked = _Asked(method, self.public)
        self.crowd = self.asked.crowd
        self.spread: Spread = self.asked.spread
        if self.spread != "default" and not self.asked.pairs(self.spread, 1).any():
            raise PrivacyError(
                f'spread="{self.spread}" compares samples of the same agent, and no agent has two; say '
                'spread="default", which asks nothing, or leave spread="auto"'
            )
        self.plan = self.asked.chosen

    @property
    def n_features(self) -> int:
        return self.problem.population.n_features

    @property
    def _noise(self) -> SumNoise:
        return SumNoise(self.seed, self.asked.share_stds)

    @property
    def facts(self) -> PriorFacts:
        first, *further = self.asked.sizes
        spread_std, step, directions = math.inf, 1.0, set[int]()
        if further:
            spread_std, step = self.plan.std(2) * further[0].sensitivity * further[0].step, further[0].step
            directions = {1, max(self.n_features - 1, 1), self.n_features}
        return PriorFacts(
            samples=self.plan.weights * self.problem.population.sample_counts,
            n_features=self.n_features,
            has_intercept=self.has_intercept,
            two_classes=self.two_classes,
            moments_std=self.plan.std(1) * first.sensitivity * first.step,
            spread=self.spread,
            pairs={one: self.plan.weights * self.asked.pairs(self.spread, one) for one in directions},
            spread_std=spread_std,
            steps=(first.step, step),
        )

    def prepared(self) -> Prepared:
        facts = self.facts
        refused = self.method.refusal(self.public)
        if refused is not None:
            return Prepared(self._nothing_released(refused), None, self._guarantee(), self._finish)
        caution = self.method.caution(self.public)
        if caution is not None:
            warnings.warn(f"learned prior: {caution}", FlockwiseWarning, stacklevel=2)
        self._check_bound()

        def converse(
            position: int, number: int, edges: Mapping[int, float]
        ) -> Conversation[LearnedValues | str]:
            return learn_prior(facts)

        rule = Rounds(
            np.arange(self.problem.n_agents),
            Edges.none(self.problem.n_agents),
            converse,
            self._collect,
            sums=Contributions(self._part, self._whole, self._noise, self.crowd.least_present),
        )
        return Prepared(rule, None, self._guarantee(), self._finish)

    def _check_bound(self) -> None:
        """Targets of a regression are scaled with their rows; labels cannot be."""
        bound = self.problem.objective.feature_bound
        assert bound is not None
        if self.two_classes and self.has_intercept and bound <= 1:
            warnings.warn(
                f"learned prior: objective.feature_bound = {bound:g} scales down every sample, as an "
                "intercept alone has length 1, and coefficients come out too large; for features of length "
                "up to r give √(1 + r²)",
                FlockwiseWarning,
                stacklevel=3,
            )

    def _part(self, position: int, request: SumRequest) -> NDArray[np.int64]:
        """What the samples of one agent add."""
        return self._whole(np.array([position]), request)

    def _whole(self, positions: NDArray[np.intp], request: SumRequest) -> NDArray[np.int64]:
        """What the samples of these agents add together."""
        features, targets, counts = self._samples(positions)
        weights = self.plan.weights[positions]
        if request.kind == "moments":
            return moment_sum(features, targets, np.repeat(weights, counts))
        rows = spread_rows(request.at, features, targets, self.two_classes)
        ends = np.cumsum(counts)
        parts = (
            spread_part(self.spread, rows[end - count : end], float(weight))
            for end, count, weight in zip(ends, counts, weights, strict=True)
        )
        return reduce(np.add, parts)

    def _samples(
        self, positions: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Within ‖x‖ ≤ 1 and |y| ≤ 1, and how many there are of each agent."""
        objective, population = self.problem.objective, self.problem.population
        assert objective.feature_bound is not None
        samples = joined([population.samples(position) for position in positions.tolist()])
        features = unit_features(samples.features, objective.feature_bound)
        # Of targets around their center: that is where the intercept, scaled with its row, leaves them.
        targets = bounded_targets(samples.features, self.targets(samples.targets), objective)
        return features, targets, population.sample_counts[positions]

    def _collect(self, results: Mapping[int, LearnedValues | str], traffic: Traffic) -> Outcome:
        """Everyone ends with the same prior; what is released is its mean."""
        learned = next(iter(results.values()))
        n_agents = self.problem.n_agents
        sums = np.full(n_agents, len(traffic.vectors))
        if isinstance(learned, str):
            nothing = np.zeros((n_agents, self.problem.dimension))
            return Outcome(nothing, sums, traffic, advice=f"keep the local models: {learned}")
        prior = self._unscaled(learned)
        return Outcome(np.tile(prior.mean, (n_agents, 1)), sums, traffic, prior, prior=prior)

    def _nothing_released(self, advice: str) -> Solved:
        """For a run that would teach nothing: no sum is opened, and nothing is spent."""
        return Solved(np.zeros((self.problem.n_agents, self.problem.dimension)), advice=advice)

    def _unscaled(self, learned: LearnedValues) -> Prior:
        """The prior for samples as they are.

        Where rows were scaled down their residuals were, too: agents then trust their own samples more than
        they need to.
        """
        assert self.problem.objective.feature_bound is not None
        scale = self.targets.half / self.problem.objective.feature_bound
        mean = scale * learned.mean
        if self.has_intercept:
            mean[-1] += self.targets.center
        dispersion = 1.0 if self.two_classes else 2 * learned.residual * self.targets.half**2
        return Prior(mean, scale**2 * learned.covariance, dispersion)

    def _finish(self, models: NDArray[Any], prior: Prior | None) -> NDArray[np.float64]:
        """Everyone's own model, on its samples as they are; the local one if nothing was learned."""
        return solve_local_models(self.problem) if prior is None else posterior_models(self.problem, prior)

    def _guarantee(self) -> Guarantee:
        guarantee = Guarantee.of(
            self.budgets,
            mechanism=f"Gaussian noise on {len(self.plan.plan)} sum(s) over all agents, in shares",
            accountant=self.plan.plan.accountant,
            origins=(origin for origin in self.problem.origins if origin != CHOSEN_ALONE),
            public=PUBLIC,
            adversary=self.crowd.adversary,
            if_all_collude=self.plan.if_all_collude,
        )
        return replace(guarantee, noise_multiplier=self.plan.largest_multiplier)
