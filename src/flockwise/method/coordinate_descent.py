"""Asynchronous block coordinate descent: the paper's Section 2.3, and its private form, Section 3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Configured, Part, check_fields
from flockwise.errors import ConfigError, SimulationError
from flockwise.method.base import METHODS, Candidate, Deployment, Prepared, PublicFacts
from flockwise.method.own_block import ClippedOwnBlock, OwnBlock
from flockwise.method.private import CLIP_SHARE, PrivateUpdates, tail_noise_variances
from flockwise.method.rules import ClippedDescent, Descent, DescentNoise, Edges, local_data
from flockwise.method.start import STARTS, PublicModels, Start, WarmStart, starting_models
from flockwise.objective import CollaborativeObjective, Objective, Problem, gradient_bound
from flockwise.privacy.guarantee import THE_START, USUALLY_PUBLIC, Guarantee
from flockwise.privacy.mechanisms import MECHANISMS, accountants_of, usual_mechanism
from flockwise.protocol.aggregation import Neighbors
from flockwise.registry import declared_by
from flockwise.release.finish import neighbor_mean_variances
from flockwise.release.statistic import Misfit, declaring_parts

# Plans try these numbers of updates, and clips as shares of the largest gradient that a sample can have.
UPDATES: Final = (5, 20)
# μ where none is given; the best one without noise on the paper's task, where the optimum is flat.
TRADEOFF: Final = 4.0
TRADEOFFS: Final = (1.0, TRADEOFF, 16.0)


@METHODS.register
@dataclass(frozen=True)
class CoordinateDescent:
    """Eq. (4) at each tick, from `start`: "zeros" (public), "local" (Eq. (1)), or an array of models.

    With `privacy` it is Eq. (6): clipped gradients and noise within everyone's budget. It then starts
    from a public point, "zeros" or `PublicModels`, or from a `WarmStart`, "propagated" in a configuration,
    which is released within the same plan.

    neighbors: what stands for Σ_j W_ij/D_ii·Θ_j: the "mean", or "clipped", a mean in which no neighbor is
        farther from their median than half of them are. A neighbor that lies then does little harm, and the
        models no longer minimize Eq. (2).
    """

    start: Annotated[
        Start | PublicModels | WarmStart, Configured(Literal["zeros", "local"]), Part(STARTS, "start")
    ] = "zeros"
    privacy: PrivateUpdates | None = None
    neighbors: Neighbors = "mean"
    name = "cd"
    label: ClassVar[str] = "collaborative"
    look: ClassVar[tuple[str, str]] = ("green", "o")
    shown: ClassVar[str] = "collaborative"
    rule: ClassVar[type] = Descent
    needs_graph: ClassVar[bool] = True
    minimizes_eq_2: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, SimulationError)

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        if self.privacy is None:
            if isinstance(self.start, WarmStart):
                yield Misfit(
                    "method.start",
                    f'got "{self.start.name}"; a released start spends a budget: write '
                    'privacy.kind = "dp", in Python privacy=PrivateUpdates(...)',
                )
            return
        if not isinstance(self.start, PublicModels | WarmStart) and not _is(self.start, "zeros"):
            what = f'got "{self.start}"' if isinstance(self.start, str) else "got an array of models"
            yield Misfit(
                "method.start",
                f"{what}; the first message of a private run would give it away without noise: use "
                '"zeros" or "propagated", or, in Python, wrap models that are public or were released as '
                "PublicModels(models)",
            )
        warm = self._warm
        yield from self.privacy.misfits(objective, warm)
        if warm is not None:
            yield from warm.misfits(objective)

    @property
    def _warm(self) -> WarmStart | None:
        return self.start if isinstance(self.start, WarmStart) else None

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        objective = CollaborativeObjective(problem)
        if self.privacy is None:
            start = self.start.models if isinstance(self.start, PublicModels) else self.start
            return Prepared(self._rule(problem, *starting_models(problem, start)), objective)
        warm = self._warm
        noise = self.privacy.noise(problem, warm)
        if warm is not None:
            models = warm.models(problem, noise.schedule, seed).astype(problem.population.dtype)
            is_public = False
        else:
            start = self.start.models if isinstance(self.start, PublicModels) else "zeros"
            models, is_public = starting_models(problem, start)[0], True
        rule = replace(self._rule(problem, models, is_public), noise=noise)
        return Prepared(rule, objective, self._guarantee(problem, noise, warm), self._finish(problem, noise))

    def _rule(self, problem: Problem, models: NDArray[Any], is_public: bool) -> Descent:
        kind = ClippedDescent if self.neighbors == "clipped" else Descent
        return kind(
            np.arange(problem.n_agents),
            Edges.of(problem.neighbors),
            local_data(problem),
            models,
            is_public,
            problem.step_sizes,
            problem.pulls,
        )

    def _finish(self, problem: Problem, noise: DescentNoise) -> OwnBlock | ClippedOwnBlock:
        variances = tail_noise_variances(problem.step_sizes, problem.pulls, noise.stds(), noise.tail_start)
        kind = ClippedOwnBlock if self.neighbors == "clipped" else OwnBlock
        return kind(problem, neighbor_mean_variances(problem.neighbors, variances))

    def _guarantee(self, problem: Problem, noise: DescentNoise, warm: WarmStart | None) -> Guarantee:
        assert self.privacy is not None
        start = (self.start.origin,) if isinstance(self.start, PublicModels) else ()
        parts = [MECHANISMS[self.privacy.mechanism]]
        if warm is not None:
            parts.extend(declaring_parts(warm.statistic(problem), problem.loss))
        return Guarantee.of(
            self.privacy.budgets,
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
            got = f'"{self.start}"' if isinstance(self.start, str) else f"a {type(self.start).__name__}"
            if self._warm is not None:
                got = f'"{self._warm.name}", which only simulations have'
            raise ConfigError(f'method.start: real agents start from "zeros", got {got}')
        privacy = self.privacy
        if privacy is None:
            return Deployment(updates, neighbors=self.neighbors)
        if not accountants_of(privacy.mechanism, on_grid=True):
            raise ConfigError(
                f'privacy.mechanism: "{privacy.mechanism}" has no integer noise, which real agents draw; use '
                '"gaussian" or "laplace"'
            )
        if privacy.models != "tail":
            raise ConfigError('privacy.models: real agents show the tail; write models = "tail"')
        if privacy.allocation != "uniform":
            raise ConfigError('privacy.allocation: real agents spend evenly; write allocation = "uniform"')
        return Deployment(
            privacy.updates,
            privacy.budgets,
            privacy.clip_for(problem),
            privacy.mechanism,
            neighbors=self.neighbors,
        )

    @classmethod
    def candidates(cls, facts: PublicFacts) -> Iterator[Candidate]:
        """Private descents of few and of more updates, with several μ, and from a released start."""
        loss, bound = facts.bounded_loss, facts.objective.feature_bound
        if loss is None or bound is None or facts.graph is None:
            return
        mechanism = usual_mechanism("l2", pure=facts.least_delta == 0)
        clip = CLIP_SHARE * gradient_bound(loss, bound, "l2")
        width = facts.residual_scale if math.isinf(facts.objective.loss.slope_bound("l2")) else None
        for updates in UPDATES:
            privacy = PrivateUpdates(facts.budgets, updates, clip, mechanism)
            for tradeoff in facts.tradeoffs(TRADEOFFS):
                words = f"cd, {updates} updates, μ = {tradeoff:g}"
                yield Candidate(words, cls(privacy=privacy), {"updates": updates}, tradeoff)
            for tradeoff in facts.tradeoffs((TRADEOFF,)):
                words = f"cd, propagated start, {updates} updates, μ = {tradeoff:g}"
                yield Candidate(words, cls(WarmStart(width=width), privacy), {"updates": updates}, tradeoff)


def _is(start: Any, word: str) -> bool:
    return isinstance(start, str) and start == word
