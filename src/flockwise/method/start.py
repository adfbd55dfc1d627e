"""Where a descent starts: from a public point, from local models, or from models that were released."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.arrays import Floats
from flockwise.checks import Configured, Key, Positive, ShareInside, check_fields
from flockwise.data.checks import quoted
from flockwise.data.labels import unless_numbered
from flockwise.data.rows import named_rows
from flockwise.errors import DataError, PrivacyError, SimulationError
from flockwise.method.smoothing import PROPAGATION_TRADEOFF, propagated_releases
from flockwise.objective import Objective, Problem
from flockwise.objective.losses import coefficient_names
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.origin import Origin
from flockwise.privacy.schedule import Schedule
from flockwise.privacy.tracked import origin_of
from flockwise.registry import Registry
from flockwise.release.model import OutputPerturbation
from flockwise.release.statistic import Misfit, release_first
from flockwise.solve.local import solve_local_models

Start: TypeAlias = str | NDArray[Any]

# Of the budget, for a released start: about what the paper gives it.
START_SHARE: Final = 0.1
# λ of a released start, in units of the curvature that an agent's data have in one direction. On generated
# instances of the paper's task (20 and 100 features, ε from ½ to 1) results change little from 8 to 50; with
# less the start has too much noise.
START_PENALTY: Final = 24.0


@dataclass(frozen=True, eq=False)
class PublicModels:
    """Models to start a private run from: public ones, or what an earlier run released (`run.models`).

    `run.models` knows its origin, and the guarantee adds up what was spent on it. Plain arrays know none,
    `run.state[...]` and `np.asarray(run.models)` among them: the guarantee says that it does not cover them.

    source: what the models are, for models that were known beforehand, such as "a model published in 2019".
    This is your word: the guarantee takes plain arrays with a source as public, and counts nothing for them.
    """

    models: ArrayLike
    source: str | None = None

    def __post_init__(self) -> None:
        origin = origin_of(self.models)
        if origin is not None and origin.status == "private":
            raise PrivacyError(
                f"{origin.what}: they are not a start for a private run; start from the released ones "
                "(run.models of a private run)"
            )

    @property
    def origin(self) -> Origin:
        """The start in the words of a guarantee."""
        known = origin_of(self.models)
        if known is not None:
            return replace(known, what=f"the start, {known.what}")
        if self.source is None:
            return Origin("the start", "unknown")
        return Origin(f"the start, {self.source}", "public")


def seeds_before(method: Any, problem: Problem) -> frozenset[int]:
    """The seeds that drew the noise of what a run builds on: its start, its graph and all else given."""
    start = getattr(method, "start", None)
    origins = [*problem.origins, *([start.origin] if isinstance(start, PublicModels) else [])]
    return frozenset[int]().union(*(origin.seeds for origin in origins))


def refuse_seed_again(seed: int, before: frozenset[int]) -> None:
    """Of a run that draws noise for its privacy."""
    if seed in before:
        raise PrivacyError(
            f"seed={seed} drew the noise of the start or the graph as well, and the difference of both runs "
            "would have none; give another seed"
        )


STARTS: Registry[type[Any]] = Registry("start", SimulationError)


@STARTS.register
@dataclass(frozen=True)
class WarmStart:
    """Everyone's local model, released within the plan of a private descent, and propagated over the graph.

    The release is the first of an agent's plan: one budget covers it and all updates, so the guarantee
    states the total of both. It is output perturbation with the noise of the updates. Smoothing the releases
    costs no privacy: model propagation (supplement C) until it has settled. Here it is computed at
    once, and its messages are not counted.

    l2: λ of the released models, the same for all agents; by default a public rule, START_PENALTY.
    width: for a quadratic loss: residuals from this on count as absolute (Huber).
    share: of the budget, in inverse noise: that of the release and that of all updates together are in the
        ratio share to 1 − share. Where the ε of releases add up (δ = 0) this is their ratio in ε; under other
        accountants the release alone has another ε.
    tradeoff: μ of the propagation; None leaves the releases as they are.
    """

    l2: Annotated[Positive | None, Key("start_l2")] = None
    width: Annotated[Positive | None, Key("start_width")] = None
    share: Annotated[ShareInside, Key("start_share")] = START_SHARE
    tradeoff: Annotated[Positive | None, Configured(None)] = PROPAGATION_TRADEOFF
    name: ClassVar[str] = "propagated"

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        for misfit in OutputPerturbation(self.width, 1.0).misfits(objective):
            place = "method.start_width" if misfit.place == "method.width" else misfit.place
            yield Misfit(place, misfit.problem.replace('kind = "output"', f'start = "{self.name}"'))

    def cost(self, costs: Sequence[float], *, adds_epsilons: bool) -> float:
        """Relative to those of the updates, whose ε or squares of ε add up."""
        updates = sum(costs) if adds_epsilons else math.hypot(*costs)
        return self.share / (1 - self.share) * updates

    def statistic(self, problem: Problem) -> OutputPerturbation:
        """The statistic of the release."""
        loss, bound = problem.loss, problem.objective.feature_bound
        assert bound is not None
        rule = START_PENALTY * loss.curvature * bound**2 / problem.population.n_features
        return OutputPerturbation(self.width, self.l2 or rule)

    def sensitivities(self, problem: Problem, mechanism: str) -> Floats:
        """How far each agent's model may move, in the norm of the mechanism: ‖v‖₁ ≤ √p·‖v‖₂."""
        stretch = math.sqrt(problem.dimension) if MECHANISMS[mechanism].norm == "l1" else 1.0
        return stretch * self.statistic(problem).sensitivities(problem)

    def models(self, problem: Problem, schedule: Schedule, seed: int) -> Floats:
        """Θ(0): nothing here but the release sees the data."""
        statistic = self.statistic(problem)
        released = release_first(
            schedule,
            statistic.models(problem),
            problem.population.sample_counts,
            self.sensitivities(problem, schedule.mechanism),
            seed,
            lengths=statistic.sensitivities(problem),
        )
        if self.tradeoff is None:
            return released.vectors
        return propagated_releases(problem.neighbors, released, self.tradeoff)

    def words(self, mechanism: str) -> str:
        """Its noise, as guarantees name it."""
        smoothed = "" if self.tradeoff is None else ", propagated"
        return f"{mechanism} noise on local models (output perturbation) for the start{smoothed}"


def starting_models(problem: Problem, start: Any) -> tuple[NDArray[Any], bool]:
    """Θ(0), and whether it is known to all without a message."""
    shape, dtype = (problem.n_agents, problem.dimension), problem.population.dtype
    if isinstance(start, str):
        if start == "zeros":
            return np.zeros(shape, dtype), True
        if start == "local":
            return solve_local_models(problem).astype(dtype), False
        raise SimulationError(f"start must be 'zeros', 'local' or an array of models, got start={start!r}")
    models = np.array(_rows_of(problem, start), dtype)
    if models.shape != shape:
        raise SimulationError(f"start must have one row per agent, shape {shape}, got shape {models.shape}")
    if not np.isfinite(models).all():
        agent = int(np.flatnonzero(~np.isfinite(models).all(axis=1))[0])
        raise SimulationError(f"start of agent {agent} has a value that is not finite")
    return models, False


def _rows_of(problem: Problem, start: Any) -> Any:
    """Models that were given, in the order of the agents where both sides have names."""
    population, rows = problem.population, named_rows(start)
    names = unless_numbered(population.given_names)
    coefficients = coefficient_names(problem.loss, population.feature_names)
    if rows.columns not in (None, coefficients):
        raise SimulationError(
            f"start has the columns {quoted(rows.columns)}; it needs {quoted(coefficients)}"
        )
    if rows.columns is not None and rows.agent_names is None and names is not None:
        raise SimulationError(
            f"start does not say whose row is whose, and the agents have names ({quoted(names)}): make them "
            "the index of the frame with set_index"
        )
    if rows.agent_names is None:
        return rows.numbers
    try:
        return rows.in_order(population.agent_names).numbers
    except DataError as error:
        raise SimulationError(f"start: {error}") from None
