"""Asynchronous block coordinate descent: the paper's Section 2.3, and its private form, Section 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Configured
from flockwise.errors import ConfigError, PrivacyError
from flockwise.method.base import METHODS, Candidate, Deployment, Prepared, PublicFacts
from flockwise.method.private import PrivateUpdates, tail_noise_variances
from flockwise.method.rules import Descent, DescentNoise, Edges, LocalData
from flockwise.method.start import PublicModels, Start, WarmStart, seeds_before, starting_models
from flockwise.objective import CollaborativeObjective, Objective, Problem, gradient_bound
from flockwise.privacy.guarantee import THE_START, USUALLY_PUBLIC, Guarantee
from flockwise.privacy.mechanisms import MECHANISMS, accountants_of
from flockwise.registry import declared_by
from flockwise.release.finish import finish_own_block, neighbor_mean_variances
from flockwise.release.statistic import Misfit, declaring_parts

# What a plan tries: numbers of updates, and clips as shares of the largest gradient that a sample can have.
UPDATES: Final = (5, 20)
CLIP_SHARES: Final = (0.125, 0.25)
# μ where none is given; the best one without noise on the paper's task, where the optimum is flat.
TRADEOFF: Final = 4.0


@METHODS.register
@dataclass(frozen=True)
class CoordinateDescent:
    """Eq. (4) at each tick, from `start`: "zeros" (public), "local" (Eq. (1)), or an array of models.

    With `privacy` it is Eq. (6): clipped gradients and noise within everyone's budget. It then starts
    from a public point, "zeros" or `PublicModels`, or from a `WarmStart`, released within the same plan.
    """

    start: Annotated[Start | PublicModels | WarmStart, Configured(Literal["zeros", "local"])] = "zeros"
    privacy: PrivateUpdates | None = None
    name = "cd"
    label: ClassVar[str] = "collaborative (CD)"
    shown: ClassVar[str] = "collaborative"
    rule: ClassVar[type] = Descent
    needs_graph: ClassVar[bool] = True
    minimizes_eq_2: ClassVar[bool] = True

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        if self.privacy is None:
            if isinstance(self.start, WarmStart):
                yield Misfit(
                    "method.start", "a WarmStart spends a budget: give privacy=PrivateUpdates(...) as well"
                )
            return
        if not isinstance(self.start, PublicModels | WarmStart) and not _is(self.start, "zeros"):
            what = f'got "{self.start}"' if isinstance(self.start, str) else "got an array of models"
            yield Misfit(
                "method.start",
                f"{what}; the first message of a private run would give it away without noise: use "
                '"zeros", or wrap models that are public or were released as PublicModels(models)',
            )
        yield from self.privacy.misfits(objective)

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        objective = CollaborativeObjective(problem)
        if self.privacy is None:
            start = self.start.models if isinstance(self.start, PublicModels) else self.start
            return Prepared(_rule(problem, *starting_models(problem, start)), objective)
        if seed in seeds_before(self):
            raise PrivacyError(
                f"seed={seed} drew the noise of the start as well, and the difference of both runs would "
                "have none; give another seed"
            )
        warm = self.start if isinstance(self.start, WarmStart) else None
        noise = self.privacy.noise(problem, warm)
        if warm is not None:
            released = warm.statistic.release(problem, noise.schedule, seed).vectors
            models, is_public = released.astype(problem.population.dtype), False
        else:
            start = self.start.models if isinstance(self.start, PublicModels) else "zeros"
            models, is_public = starting_models(problem, start)[0], True
        rule = replace(_rule(problem, models, is_public), noise=noise)
        return Prepared(rule, objective, self._guarantee(problem, noise, warm), _finish(problem, noise))

    def _guarantee(self, problem: Problem, noise: DescentNoise, warm: WarmStart | None) -> Guarantee:
        assert self.privacy is not None
        start = (self.start.origin,) if isinstance(self.start, PublicModels) else ()
        parts = [MECHANISMS[self.privacy.mechanism]]
        if warm is not None:
            parts.extend(declaring_parts(warm.statistic, problem.loss))
        return Guarantee.of(
            (plan.budget for plan in noise.schedule.plans),
            mechanism=self.privacy.words(problem, warm),
            accountant=noise.schedule.plans[0].accountant,
            plan=noise.schedule.least,
            dimension=problem.dimension,
            origins=(*problem.origins, *start),
            declared=filter(None, map(declared_by, parts)),
            public=USUALLY_PUBLIC
            if warm is None
            else tuple(words for words in USUALLY_PUBLIC if words != THE_START),
        )

    def deployment(self, problem: Problem, updates: int | None) -> Deployment:
        if not _is(self.start, "zeros"):
            raise ConfigError(f'method.start: real agents start from "zeros", got {self.start!r}')
        privacy = self.privacy
        if privacy is None:
            return Deployment(updates)
        if not accountants_of(privacy.mechanism, on_grid=True):
            raise ConfigError(
                f'privacy.mechanism: "{privacy.mechanism}" has no integer noise, which real agents draw; use '
                '"gaussian" or "laplace"'
            )
        if privacy.allocation != "uniform":
            raise ConfigError('privacy.allocation: real agents spend evenly; write allocation = "uniform"')
        return Deployment(privacy.updates, privacy.budgets, privacy.clip_for(problem), privacy.mechanism)

    @classmethod
    def candidates(cls, facts: PublicFacts) -> Iterator[Candidate]:
        """Private descents of few and of more updates, with two clips."""
        loss, bound = facts.bounded_loss, facts.objective.feature_bound
        if loss is None or bound is None or facts.graph is None:
            return
        mechanism = "gaussian" if facts.least_delta > 0 else "knorm"
        largest = gradient_bound(loss, bound, "l2")
        for updates in UPDATES:
            for share in CLIP_SHARES:
                privacy = PrivateUpdates(facts.budgets, updates, share * largest, mechanism)
                words = f"cd, {updates} updates, clip {share * largest:.3g}"
                yield Candidate(words, cls(privacy=privacy), {"updates": updates}, facts.tradeoff(TRADEOFF))


def _rule(problem: Problem, models: NDArray[Any], is_public: bool) -> Descent:
    return Descent(
        np.arange(problem.n_agents),
        Edges.of(problem.neighbors),
        LocalData.of(problem),
        models,
        is_public,
        problem.step_sizes,
        problem.pulls,
    )


def _finish(problem: Problem, noise: DescentNoise) -> Any:
    """Everyone's own model by an exact solve on its own data, given what the others released.

    How far it trusts them follows from the public noise in their models. Never to be sent.
    """

    def finish(models: NDArray[Any], details: Any) -> NDArray[np.float64]:
        variances = tail_noise_variances(problem.step_sizes, problem.pulls, noise.stds())
        return finish_own_block(problem, models, neighbor_mean_variances(problem.neighbors, variances))

    return finish


def _is(start: Any, word: str) -> bool:
    return isinstance(start, str) and start == word
