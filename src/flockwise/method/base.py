"""Methods: frozen descriptions, each of which prepares a problem into a rule, a guarantee and a finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.checks import field_types
from flockwise.errors import ConfigError, FlockwiseError, PrivacyError, SimulationError
from flockwise.graph import SimilarityGraph
from flockwise.method.rules import Rounds, Rule
from flockwise.objective import Loss, Objective, Problem
from flockwise.privacy.budget import Budgets, least_delta
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.mechanisms import USUAL_MECHANISM
from flockwise.privacy.origin import Origin
from flockwise.protocol.aggregation import Neighbors
from flockwise.registry import Registry, declared_by
from flockwise.release.statistic import Misfit

# Residuals where nobody said how large they are, as a share of the range of targets.
RESIDUAL_SHARE: Final = 0.25


class Evaluator(Protocol):
    """The function that a run minimizes: one value per agent, whose sum is the objective."""

    def agent_values(self, models: NDArray[Any]) -> Floats: ...


# Own models from the released ones and from what else a conversation ended with; never sent.
Finish: TypeAlias = Callable[[NDArray[Any], Any], Floats]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A problem made ready: the rule to run, what records evaluate, what is guaranteed, the silent finish.

    A private method has both a guarantee and a finish; a run without them is refused. settled: the models to
    which its updates tend in any order, computed at once; plans take these instead of a run.
    """

    rule: Rule
    objective: Evaluator | None = None
    guarantee: Guarantee | None = None
    finish: Finish | None = None
    settled: Callable[[], NDArray[Any]] | None = None


class Method(Protocol):
    """A frozen dataclass: its annotated fields are the keys of [method] in a configuration.

    name: in configurations and results. label: in reports. privacy: what it may spend; None for a run without
    privacy. needs_graph: whether a problem without a graph is refused. A class may also state is_baseline
    (it is compared with every run, and made without arguments), tunes_l2 (it chooses the penalty),
    minimizes_eq_2 (its runs tend to the minimum of Eq. (2)), sends_nothing, and look (its color and marker in
    pictures).
    """

    label: ClassVar[str]
    needs_graph: ClassVar[bool]

    @property
    def name(self) -> str: ...

    @property
    def privacy(self) -> Any: ...

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        """Why it cannot run under this objective: said once, for constructors, configurations and plans."""
        ...

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        """Everything that a run needs; what is released once is released here, with noise from the seed."""
        ...


class NeverPrivate:
    """Of methods without a private form, which fit every objective."""

    privacy = None

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        yield from ()


@dataclass(frozen=True)
class Deployment:
    """How real agents run a method: a method that they can run has `deployment(problem, updates)`.

    updates: after so many an agent stops; None goes on for ever. budgets: what agents may spend; None sends
    models as they are. clip, mechanism: of what is released at each update. statistic, protocol: what is
    released once instead, and what agents talk about after it. neighbors: which mean of their models counts.
    """

    updates: int | None
    budgets: Budgets | None = None
    clip: float | None = None
    mechanism: str = USUAL_MECHANISM
    statistic: Any = None
    protocol: Any = None
    neighbors: Neighbors = "mean"


def deployment_of(method: Any, problem: Problem, updates: int | None) -> Deployment:
    """How real agents run it, or why they cannot."""
    deploy = getattr(method, "deployment", None)
    if deploy is None:
        able = ", ".join(f'"{one.name}"' for one in METHODS if hasattr(one.kind, "deployment"))
        raise ConfigError(f'method.name: real agents cannot run "{method.name}"; they run {able}')
    return deploy(problem, updates)


class Variant(NamedTuple):
    """A name of a method in configurations: the class, and the fields that the name stands for."""

    name: str
    kind: type[Any]
    preset: Mapping[str, Any]

    @property
    def label(self) -> str:
        return getattr(self.kind, "labels", {}).get(self.name, self.kind.label)

    @property
    def rule(self) -> type:
        """The kind of rule that it prepares."""
        return getattr(self.kind, "rules", {}).get(self.name) or self.kind.rule

    @property
    def shown(self) -> str:
        """In tables: what it does, where its name does not say it."""
        return getattr(self.kind, "shown", self.name)

    @property
    def privacy(self) -> Any:
        """The annotation of its privacy field; None if it has no private form."""
        return field_types(self.kind).get("privacy")

    @property
    def needs_privacy(self) -> bool:
        """Whether it releases within a budget in any case."""
        return any(field.name == "privacy" and field.default is MISSING for field in fields(self.kind))


def _variants(kind: type[Any]) -> Iterator[tuple[str, Variant]]:
    """A method under its name, or under each of its `names`."""
    for name, preset in getattr(kind, "names", {getattr(kind, "name", None): {}}).items():
        if not isinstance(name, str):
            raise SimulationError(
                f"{kind.__name__}: a method needs a name, such as name: ClassVar[str] = ..."
            )
        yield name, Variant(name, kind, preset)


METHODS: Registry[Variant] = Registry("method", SimulationError, entries=_variants)


def label_of(name: str) -> str:
    """What reports call a method."""
    return METHODS[name].label if name in METHODS else name


def shown_name(name: str) -> str:
    """What tables call a method."""
    return METHODS[name].shown if name in METHODS else name


def baselines_beside(method: Any) -> list[Any]:
    """Every baseline but the method itself."""
    own = [one for one in METHODS if one.name != method.name]
    return [one.kind(**one.preset) for one in own if getattr(one.kind, "is_baseline", False)]


def stated(name: str, what: str) -> Any:
    """What the class of a method states of itself, such as its look; None if it states nothing."""
    return getattr(METHODS[name].kind, what, None) if name in METHODS else None


def check_prepared(method: Any, prepared: Prepared) -> Prepared:
    """Fail closed: what is private comes with its guarantee and own models, or not at all.

    A rule that adds noise, releases while agents talk, or opens sums is private, whatever its method says.
    The guarantee of a method from another package, or with such parts, says whose word it is.
    """
    rule = prepared.rule
    spends = getattr(method, "privacy", None) is not None or getattr(rule, "noise", None) is not None
    spends = spends or (isinstance(rule, Rounds) and rule.spends)
    if spends and (prepared.guarantee is None or prepared.finish is None):
        lacks = "guarantee" if prepared.guarantee is None else "finish for own models"
        raise PrivacyError(
            f"method {method.name!r} is private and prepared no {lacks}; return one from prepare()"
        )
    if prepared.guarantee is None:
        return prepared
    packages = filter(None, map(declared_by, (method, *getattr(method, "parts", ()))))
    return replace(prepared, guarantee=prepared.guarantee.also_declared_by(packages))


def check_method(method: Any, problem: Problem, error: type[FlockwiseError] = SimulationError) -> None:
    """Refuse a problem that the method does not fit, with the first reason."""
    if getattr(method, "needs_graph", True) and problem.graph is None:
        raise error(f"method {method.name!r} needs neighbors: give Problem a graph")
    for misfit in method.misfits(problem.objective):
        raise error(str(misfit))


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """Sizes, graph, objective and budgets; nothing here was computed from a feature or a target.

    chooses_tradeoff: whether μ is for the plan to choose. has_intercept: whether the last feature is 1 for
    everyone. residual_scale: how far targets lie from predictions, roughly, where targets are numbers; None
    if nobody has said. origins: of graph and samples.
    """

    sample_counts: NDArray[np.int64]
    n_features: int
    graph: SimilarityGraph | None
    objective: Objective
    budgets: Budgets
    chooses_tradeoff: bool = False
    has_intercept: bool = False
    residual_scale: float | None = None
    origins: tuple[Origin, ...] = ()

    @classmethod
    def of(
        cls,
        problem: Problem,
        budgets: Budgets,
        *,
        chooses_tradeoff: bool = False,
        residual_scale: float | None = None,
    ) -> PublicFacts:
        """The one place where a problem with data is made into public facts: read here what is taken."""
        return cls(
            sample_counts=problem.population.sample_counts,
            n_features=problem.population.n_features,
            graph=problem.graph,
            objective=_public(problem),
            budgets=budgets,
            chooses_tradeoff=chooses_tradeoff,
            has_intercept=problem.population.has_intercept,
            residual_scale=_residual_scale(problem.objective, residual_scale),
            origins=tuple(one for one in problem.origins if one != _chosen(problem.objective)),
        )

    @property
    def n_agents(self) -> int:
        return len(self.sample_counts)

    @property
    def least_delta(self) -> float:
        return least_delta(self.budgets)

    @property
    def bounded_loss(self) -> Loss | None:
        """The loss, or for one without bounded slopes its bounded form, if someone said how wide."""
        loss = self.objective.loss
        if loss.slope_bound("l2") < float("inf"):
            return loss
        bounded = getattr(loss, "bounded", None)
        return None if bounded is None or self.residual_scale is None else bounded(self.residual_scale)

    def tradeoffs(self, tried: tuple[float, ...]) -> tuple[float, ...]:
        """μ that was given, or those to try where the plan chooses it."""
        return tried if self.chooses_tradeoff else (self.objective.tradeoff,)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Facts that were derived from private data all the same. A plan made with them leaks them."""
        return tuple(origin.words for origin in self.origins if not origin.is_covered)


def _residual_scale(objective: Objective, said: float | None) -> float | None:
    """The width of a loss that has one; else what somebody said; else a quarter of the range of targets."""
    if said is None and objective.target_range is not None:
        low, high = objective.target_range
        said = RESIDUAL_SHARE * (high - low)
    return getattr(objective.loss, "largest_residual", said)


def _public(problem: Problem) -> Objective:
    """The objective, less penalties that were chosen on samples."""
    objective = problem.objective
    l2 = objective.l2 if _chosen(objective) is None else "auto"
    return replace(objective, max_samples=problem.sample_cap, l2=l2)


def _chosen(objective: Objective) -> Origin | None:
    """The origin of penalties that were chosen on samples."""
    return getattr(objective.l2, "origin", None)


@dataclass(frozen=True)
class Candidate:
    """A method with all its settings, as a plan may try it.

    words: how a plan calls it. stops: when its run ends. tradeoff: the μ that belongs to it, if another one.
    caution: what its method says against it from public facts, short of a refusal.
    """

    words: str
    method: Any
    stops: Mapping[str, Any] = field(default_factory=dict)
    tradeoff: float | None = None
    caution: str = ""

    @property
    def sends_nothing(self) -> bool:
        return getattr(self.method, "privacy", None) is None

    def problem(self, problem: Problem) -> Problem:
        """With the μ that belongs to it."""
        return problem if self.tradeoff is None else problem.with_tradeoff(self.tradeoff)


def candidates(facts: PublicFacts) -> tuple[Candidate, ...]:
    """What can be run with these facts, the same for any agents that share them, in a fixed order."""
    offered = (getattr(kind, "candidates", None) for kind in _kinds())
    return tuple(candidate for offer in offered if offer is not None for candidate in offer(facts))


def reasons_against(facts: PublicFacts) -> tuple[str, ...]:
    """Why methods that could be run in principle are not worth it, by what they say of public facts."""
    asked = (getattr(kind, "reason_against", None) for kind in _kinds())
    return tuple(filter(None, (ask(facts) for ask in asked if ask is not None)))


def _kinds() -> Iterable[Any]:
    return dict.fromkeys(variant.kind for variant in METHODS)
