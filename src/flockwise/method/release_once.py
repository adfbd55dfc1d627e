"""Release once and smooth: one private release per agent, then any amount of collaboration for free.

An agent releases a statistic. A smoother then turns all releases into models:

    Propagation   model propagation over the releases (supplement C): "release_once" in a configuration
    LowPass       a graph filter over as many hops as the releases show to be worth it: "lowpass"
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Configured, Part, Positive, check_fields
from flockwise.errors import ConfigError, PrivacyError
from flockwise.method.base import METHODS, Candidate, Deployment, Prepared, PublicFacts
from flockwise.method.baselines import propagated
from flockwise.method.rules import Descent, Edges, Outcome, Rounds
from flockwise.method.smoothing import (
    PROPAGATION_TRADEOFF,
    Smoothing,
    collected,
    lowpass_traffic,
    noise_like,
    propagate,
    smooth,
    variances_of,
)
from flockwise.objective import CollaborativeObjective, Objective, Problem
from flockwise.objective.losses import has_two_classes, loss_name
from flockwise.privacy.budget import Budgets
from flockwise.privacy.guarantee import Guarantee
from flockwise.protocol import LowPassProtocol, PropagationProtocol
from flockwise.protocol.conversation import Conversation, Public
from flockwise.protocol.lowpass import collaborate
from flockwise.protocol.propagation import (
    ShrunkenMean,
    expected_correlations,
    precision_confidences,
    shrunken_mean,
    variance_around,
)
from flockwise.protocol.rows import AgentRows
from flockwise.registry import declared_by
from flockwise.release.finish import (
    finish_along_directions,
    finish_around_models,
    neighbor_means,
)
from flockwise.release.mean import PointMean
from flockwise.release.model import OutputPerturbation
from flockwise.release.statistic import STATISTICS, Misfit, Released, Statistic, declaring_parts
from flockwise.solve.local import solve_local_models

# Updates of a propagation that a plan tries: it costs no privacy, and has settled by then.
SMOOTHING_UPDATES: Final = 50
# λ of a released model that a plan tries, in units of the curvature that its data have in one direction.
PENALTY_SHARES: Final = (0.5, 2.0)
# Its width, in units of the residuals that are expected.
WIDTH_SHARES: Final = (0.5, 1.0)
# μ of the propagation that a plan tries.
SMOOTHING_TRADEOFFS: Final = (PROPAGATION_TRADEOFF, 0.6)


class Smoother(Protocol):
    """Turns releases into models. Only its finish, whose result is never sent, looks at samples."""

    name: ClassVar[str]
    rule: ClassVar[type]

    def misfits(self, statistic: Statistic, objective: Objective) -> Iterator[Misfit]: ...

    @property
    def protocol(self) -> Any:
        """What real agents do instead; None if they cannot."""
        ...

    def prepare(self, problem: Problem, statistic: Statistic, released: Released) -> Prepared:
        """Rule, objective and finish."""
        ...


@dataclass(frozen=True)
class Propagation:
    """Model propagation, whose confidences follow the public precision of each release.

    tradeoff: μ of it. Everyone's first message is its release. The mean over all releases is shrunk as far as
    it does not stand out of its noise. Agents of a network find that mean by gossip
    (flockwise.protocol.propagation); here it is computed at once, and its messages are not counted.
    """

    tradeoff: Positive = PROPAGATION_TRADEOFF
    name: ClassVar[str] = "release_once"
    rule: ClassVar[type] = Descent

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)

    def misfits(self, statistic: Statistic, objective: Objective) -> Iterator[Misfit]:
        yield from ()

    @property
    def protocol(self) -> PropagationProtocol:
        return PropagationProtocol(self.tradeoff)

    def prepare(self, problem: Problem, statistic: Statistic, released: Released) -> Prepared:
        mean = shrunken_mean(released.vectors, released.variances)
        anchors = mean.replace_in(released.vectors, released.variances).astype(problem.population.dtype)
        pulls = self._pulls(released)
        prepared = propagated(problem, anchors, pulls)

        def finish(models: NDArray[Any], details: Any) -> NDArray[np.float64]:
            return self._finish(problem, statistic, released, mean, models)

        return replace(prepared, finish=finish, settled=partial(propagate, problem.neighbors, anchors, pulls))

    def _pulls(self, released: Released) -> NDArray[np.float64]:
        return self.tradeoff * precision_confidences(released.variances)

    def _finish(
        self,
        problem: Problem,
        statistic: Statistic,
        released: Released,
        mean: ShrunkenMean,
        models: NDArray[Any],
    ) -> NDArray[np.float64]:
        """Everyone's own model from its data and the smoothed models of a run; never to be sent."""
        graph, signal = problem.neighbors, statistic.signal_power(problem.dimension)
        # Public noise, as large as that of the releases, before and after all that is done to them.
        variances = released.noise_variances if signal is None else released.variances
        noise = mean.replace_in_noise(noise_like(np.where(np.isfinite(variances), variances, 0.0)))
        before = AgentRows(mean.replace_in(released.vectors, released.variances), noise)
        after = AgentRows(np.asarray(models), propagate(graph, noise, self._pulls(released)))
        if signal is not None:
            correlations = expected_correlations(before, after, released.variances, mean.shares, signal)
            return finish_along_directions(problem, models, correlations)
        around = AgentRows(*(neighbor_means(graph.offsets, graph, rows) for rows in after))
        spread = variance_around(before, around, mean.shares)
        own = finish_around_models(problem, around.vectors, spread + variances_of(around.noise), released.l2)
        return _with_local_models(problem, own, np.flatnonzero(graph.degrees == 0))


@dataclass(frozen=True)
class LowPass:
    """A graph filter of many hops; each agent finishes alone.

    How far to smooth, how much of the result to believe, and whether to use it at all are decided from
    the releases and public quantities, so they cost no privacy. The reference engine does it by messages
    between neighbors (flockwise.protocol.lowpass); the cpu engine computes the same for all agents at once.
    """

    name: ClassVar[str] = "lowpass"
    rule: ClassVar[type] = Rounds

    def misfits(self, statistic: Statistic, objective: Objective) -> Iterator[Misfit]:
        if statistic.signal_power(1) is None and objective.loss.metric != "rmse":
            yield Misfit(
                "method.kind",
                f'got "{statistic.name}"; it is for losses of a residual, and '
                f'loss = "{loss_name(objective.loss)}" is not: use kind = "mean", or name = "release_once"',
            )

    @property
    def protocol(self) -> LowPassProtocol:
        return LowPassProtocol()

    def prepare(self, problem: Problem, statistic: Statistic, released: Released) -> Prepared:
        signal = statistic.signal_power(problem.dimension)

        def converse(position: int, number: int, weights: Mapping[int, float]) -> Conversation[Any]:
            public = Public(
                released.vectors[position],
                float(released.variances[position]),
                float(released.noise_variances[position]),
                signal,
            )
            return collaborate(number, public, weights)

        def at_once(ids: NDArray[np.int64]) -> Outcome:
            smoothing = smooth(problem.neighbors, released, signal, ids=ids)
            traffic = lowpass_traffic(problem.neighbors, released, ids, smoothing, signal is None)
            return Outcome(smoothing.beliefs.vectors, smoothing.hops, traffic, smoothing)

        def collect(results: Mapping[int, Any], traffic: Any) -> Outcome:
            smoothing = collected(results, problem.n_agents, problem.dimension)
            return Outcome(smoothing.beliefs.vectors, smoothing.hops, traffic, smoothing)

        def finish(models: NDArray[Any], smoothing: Smoothing) -> NDArray[np.float64]:
            return finish_smoothed(problem, statistic, released, smoothing)

        rule = Rounds(
            np.arange(problem.n_agents), Edges.of(problem.neighbors), converse, collect, at_once=at_once
        )
        return Prepared(rule, CollaborativeObjective(problem), finish=finish)


def finish_smoothed(
    problem: Problem, statistic: Statistic, released: Released, smoothing: Smoothing
) -> NDArray[np.float64]:
    """Everyone's own model, from its data and its estimates; the local one if it does not collaborate.

    Directions are taken without what the agent's own release added to them by smoothing, so its data
    count once; what it added to the mean over all agents, a share of about 1/n, is left in.
    """
    beliefs = smoothing.beliefs
    alone = np.flatnonzero(~beliefs.collaborates)
    if statistic.signal_power(problem.dimension) is not None:
        of_others = beliefs.vectors - beliefs.own_weights[:, None] * released.vectors
        models = finish_along_directions(problem, of_others, np.sqrt(beliefs.shares))
    else:
        models = finish_around_models(problem, beliefs.vectors, beliefs.variances, released.l2)
    return _with_local_models(problem, models, alone)


def _with_local_models(
    problem: Problem, models: NDArray[np.float64], agents: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The same, with local models for these agents."""
    if agents.size:
        models[agents] = solve_local_models(problem, agents=agents)
    return models


@METHODS.register
@dataclass(frozen=True)
class ReleaseOnce:
    """Every agent releases one noisy vector within its budget; a smoother makes the best of all of them.

    privacy: the budgets (ε, δ), one for all agents or one each; the one release spends them.
    statistic: what is released: the mean of y·x/‖x‖ for two classes, or a local model.

    Nothing after the release touches the data again but the silent finish, so the smoothing may go on for as
    long as one likes.
    """

    privacy: Annotated[Budgets, Configured(None)]
    statistic: Annotated[Any, Part(STATISTICS, "kind")] = field(default_factory=PointMean)
    smoother: Annotated[Any, Configured(None)] = field(default_factory=Propagation)
    label: ClassVar[str] = "release once"
    labels: ClassVar[Mapping[str, str]] = {"release_once": "release once, propagated", "lowpass": "low-pass"}
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "release_once": {"smoother": Propagation()},
        "lowpass": {"smoother": LowPass()},
    }
    rules: ClassVar[Mapping[str, type]] = {"release_once": Descent, "lowpass": Rounds}
    needs_graph: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)

    @property
    def name(self) -> str:
        return self.smoother.name

    @property
    def parts(self) -> tuple[Any, ...]:
        """What else may come from another package."""
        return self.statistic, self.smoother

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        yield from self.statistic.misfits(objective)
        yield from self.smoother.misfits(self.statistic, objective)

    def release(self, problem: Problem, seed: int) -> Released:
        """The one step that sees the data; the same every time, by its seed."""
        if problem.population.n_samples == 0:
            raise PrivacyError("no agent has a sample, so there is nothing to release")
        return self.statistic.release(problem, self.privacy, seed)

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        released = self.release(problem, seed)
        prepared = self.smoother.prepare(problem, self.statistic, released)
        return replace(prepared, guarantee=self._guarantee(problem, released))

    def _guarantee(self, problem: Problem, released: Released) -> Guarantee:
        return Guarantee.of(
            self.privacy,
            mechanism=self.statistic.words,
            accountant=released.accountant,
            plan=released.plan,
            dimension=problem.dimension,
            origins=problem.origins,
            declared=filter(None, map(declared_by, declaring_parts(self.statistic, problem.loss))),
        )

    def deployment(self, problem: Problem, updates: int | None) -> Deployment:
        if self.statistic.signal_power(problem.dimension) is None:
            raise ConfigError(
                f'method.kind: real agents release means of two classes, got "{self.statistic.name}"; write '
                'kind = "mean"'
            )
        return Deployment(
            1,
            self.privacy,
            mechanism=self.statistic.mechanism,
            statistic=self.statistic,
            protocol=self.smoother.protocol,
        )

    @classmethod
    def candidates(cls, facts: PublicFacts) -> Iterator[Candidate]:
        """Means for two classes; for several classes and for numbers a model, if it can be bounded."""
        if facts.graph is None or facts.least_delta == 0:
            return
        stops = {"updates": SMOOTHING_UPDATES}
        if has_two_classes(facts.objective.loss):
            yield Candidate("lowpass, means", cls(facts.budgets, smoother=LowPass()))
            for tradeoff in SMOOTHING_TRADEOFFS:
                method = cls(facts.budgets, smoother=Propagation(tradeoff))
                yield Candidate(f"release once, means, μ = {tradeoff:g}", method, stops)
            return
        for words, statistic in _released_models(facts):
            if facts.objective.loss.metric == "rmse":
                yield Candidate(f"lowpass, {words}", cls(facts.budgets, statistic, LowPass()))
            for tradeoff in SMOOTHING_TRADEOFFS:
                method = cls(facts.budgets, statistic, Propagation(tradeoff))
                yield Candidate(f"release once, {words}, μ = {tradeoff:g}", method, stops)


def _released_models(facts: PublicFacts) -> Iterator[tuple[str, OutputPerturbation]]:
    """Models with every penalty and, for a loss without bounded slopes, every width that a plan tries."""
    loss, bound = facts.bounded_loss, facts.objective.feature_bound
    if loss is None or bound is None:
        return
    is_wide = math.isinf(facts.objective.loss.slope_bound("l2"))
    for width_share in WIDTH_SHARES if is_wide else (1.0,):
        width = width_share * facts.residual_scale if is_wide and facts.residual_scale else None
        for share in PENALTY_SHARES:
            statistic = OutputPerturbation(width, share * loss.curvature * bound**2 / facts.n_features)
            words = f"models, λ = {statistic.l2:.3g}"
            yield words if width is None else f"{words}, width {width:.3g}", statistic
